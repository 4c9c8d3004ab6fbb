//! What goes, given the facts: pure.
//!
//! What goes is always a beginning of the list in order of the runs' ends: a run goes only if all
//! that ended before it go, too. What ended a short while ago stays, whatever the bounds say.

use std::time::Duration;

use crate::ids::RunId;

/// How much is kept of one tenant. What is `None` is not bounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// For how long after its end a run is kept.
    pub age: Option<Duration>,
    /// How many runs that are over are kept.
    pub runs: Option<u64>,
    /// How many bytes of them are kept, artifacts included.
    pub bytes: Option<u64>,
    /// What is younger stays in any case.
    pub fresh: Duration,
}

impl Bounds {
    /// Whether anything can go at all.
    #[must_use]
    pub fn are_set(&self) -> bool {
        self.age.is_some() || self.need_totals()
    }

    /// Whether it matters how much there is.
    #[must_use]
    pub fn need_totals(&self) -> bool {
        self.runs.is_some() || self.bytes.is_some()
    }
}

/// A run that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its place in the order of acceptance.
    pub sequence: i64,
    /// Its id.
    pub run: RunId,
    /// For how long it has been over.
    pub age: Duration,
    /// What is kept of it, artifacts included.
    pub bytes: u64,
}

/// All runs of a tenant that are over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many.
    pub runs: u64,
    /// What is kept of them.
    pub bytes: u64,
}

/// Why a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It ended long enough ago.
    Age,
    /// There are too many.
    Count,
    /// They take too much room.
    Bytes,
}

impl Reason {
    /// As commands show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Count => "count",
            Self::Bytes => "bytes",
        }
    }
}

/// Which of the oldest go, and why, in their order. `oldest` is a beginning of all that `totals`
/// counts, in order of their ends.
#[must_use]
pub fn plan(bounds: &Bounds, totals: Totals, oldest: &[Kept]) -> Vec<(Kept, Reason)> {
    let mut left = totals;
    let mut going = Vec::new();
    for run in oldest {
        let Some(reason) = reason(bounds, left, run) else {
            break;
        };
        left.runs = left.runs.saturating_sub(1);
        left.bytes = left.bytes.saturating_sub(run.bytes);
        going.push((run.clone(), reason));
    }
    going
}

/// Why the oldest of those that are left goes, if it does.
fn reason(bounds: &Bounds, left: Totals, oldest: &Kept) -> Option<Reason> {
    if oldest.age < bounds.fresh {
        return None;
    }
    if bounds.age.is_some_and(|most| oldest.age > most) {
        return Some(Reason::Age);
    }
    if bounds.runs.is_some_and(|most| left.runs > most) {
        return Some(Reason::Count);
    }
    let is_over = bounds.bytes.is_some_and(|most| left.bytes > most);
    is_over.then_some(Reason::Bytes)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    /// Runs in order of their ends: each is younger than the one before.
    fn kept() -> impl Strategy<Value = Vec<Kept>> {
        vec((0u64..50, 0u64..1000), 0..40).prop_map(|rows| {
            let mut age = 0;
            let mut runs: Vec<Kept> = rows
                .into_iter()
                .zip(1..)
                .map(|((younger, bytes), sequence)| {
                    age += younger;
                    Kept {
                        sequence,
                        run: RunId::random(),
                        age: Duration::from_secs(age),
                        bytes,
                    }
                })
                .collect();
            runs.reverse();
            runs
        })
    }

    fn bounds() -> impl Strategy<Value = Bounds> {
        let age = option::of((0u64..1500).prop_map(Duration::from_secs));
        let fresh = (0u64..300).prop_map(Duration::from_secs);
        (age, option::of(0u64..40), option::of(0u64..20_000), fresh).prop_map(
            |(age, runs, bytes, fresh)| Bounds {
                age,
                runs,
                bytes,
                fresh,
            },
        )
    }

    fn totals(runs: &[Kept]) -> Totals {
        Totals {
            runs: runs.len() as u64,
            bytes: runs.iter().map(|run| run.bytes).sum(),
        }
    }

    fn fits(bounds: &Bounds, runs: &[Kept]) -> bool {
        let Totals { runs: count, bytes } = totals(runs);
        bounds.runs.is_none_or(|most| count <= most)
            && bounds.bytes.is_none_or(|most| bytes <= most)
            && bounds
                .age
                .is_none_or(|most| runs.iter().all(|run| run.age <= most))
    }

    proptest! {
        #[test]
        fn what_goes_is_the_oldest_and_never_what_is_fresh(runs in kept(), bounds in bounds()) {
            let going = plan(&bounds, totals(&runs), &runs);
            for ((run, _), expected) in going.iter().zip(&runs) {
                prop_assert_eq!(run, expected);
                prop_assert!(run.age >= bounds.fresh);
            }
        }

        #[test]
        fn what_stays_is_within_the_bounds_or_fresh(runs in kept(), bounds in bounds()) {
            let going = plan(&bounds, totals(&runs), &runs).len();
            let stays = &runs[going..];
            let is_fresh = stays.first().is_some_and(|oldest| oldest.age < bounds.fresh);
            prop_assert!(is_fresh || fits(&bounds, stays));
        }

        #[test]
        fn not_one_goes_more_than_has_to(runs in kept(), bounds in bounds()) {
            let going = plan(&bounds, totals(&runs), &runs).len();
            if going > 0 {
                prop_assert!(!fits(&bounds, &runs[going - 1..]));
            }
        }

        #[test]
        fn steps_come_to_the_same_as_one(runs in kept(), bounds in bounds(), step in 1usize..5) {
            let at_once = plan(&bounds, totals(&runs), &runs).len();
            let mut left = &runs[..];
            loop {
                let oldest = &left[..step.min(left.len())];
                let going = plan(&bounds, totals(left), oldest).len();
                if going == 0 {
                    break;
                }
                left = &left[going..];
            }
            prop_assert_eq!(runs.len() - left.len(), at_once);
        }

        #[test]
        fn without_bounds_nothing_goes(runs in kept()) {
            let bounds = Bounds::default();
            prop_assert!(!bounds.are_set());
            prop_assert_eq!(plan(&bounds, totals(&runs), &runs), vec![]);
        }
    }

    #[test]
    fn the_reason_is_told() {
        let run = |sequence: i64, hours: u64| Kept {
            sequence,
            run: RunId::random(),
            age: Duration::from_secs(hours * 3600),
            bytes: 10,
        };
        let runs = [run(1, 9), run(2, 5), run(3, 4), run(4, 2)];
        let bounds = Bounds {
            age: Some(Duration::from_secs(8 * 3600)),
            runs: Some(2),
            bytes: Some(15),
            fresh: Duration::from_secs(3600),
        };
        let reasons: Vec<Reason> = plan(&bounds, totals(&runs), &runs)
            .into_iter()
            .map(|(_, reason)| reason)
            .collect();
        assert_eq!(reasons, [Reason::Age, Reason::Count, Reason::Bytes]);
    }
}
