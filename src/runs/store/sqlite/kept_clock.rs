//! The time by which it is reckoned how long something has been kept: what goes by age goes by this,
//! never by the wall clock, which anybody may set (security.md F16).
//!
//! It counts the microseconds that a daemon has been at work on this store since the store has this
//! clock. Time between two daemons counts as the wall clock says, but never backwards and never more
//! than a day: a clock that is ten years ahead at a start makes nothing old. So a mistake keeps
//! something for too long, and never removes what is fresh.

use std::time::{Duration, Instant};

use crate::clock;

/// The most that the time between two daemons counts.
const BETWEEN: i64 = 86_400 * 1_000_000;

/// Kept time and wall clock as they were last written down, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) kept: i64,
    pub(super) wall: i64,
}

/// The clock of an open store.
#[derive(Debug)]
pub(super) struct KeptClock {
    start: i64,
    since: Instant,
}

impl KeptClock {
    /// The clock goes on from where it was noted.
    pub(super) fn resume(noted: Noted) -> Self {
        Self {
            start: resumed(noted, clock::now().as_microsecond()),
            since: Instant::now(),
        }
    }

    /// Kept time, in microseconds.
    pub(super) fn now(&self) -> i64 {
        let passed = i64::try_from(self.since.elapsed().as_micros()).unwrap_or(i64::MAX);
        self.start.saturating_add(passed)
    }

    /// What to write down.
    pub(super) fn note(&self) -> Noted {
        Noted {
            kept: self.now(),
            wall: clock::now().as_microsecond(),
        }
    }
}

/// Kept time at a start.
fn resumed(noted: Noted, wall: i64) -> i64 {
    let between = wall.saturating_sub(noted.wall).clamp(0, BETWEEN);
    noted.kept.saturating_add(between)
}

/// How long something has been kept.
pub(super) fn age(now: i64, since: i64) -> Duration {
    Duration::from_micros(u64::try_from(now.saturating_sub(since)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3600 * 1_000_000;

    #[test]
    fn between_two_daemons_counts_what_the_wall_clock_says_up_to_a_day() {
        let noted = Noted {
            kept: 5 * HOUR,
            wall: 1000 * HOUR,
        };
        assert_eq!(resumed(noted, 1002 * HOUR), 7 * HOUR);
        assert_eq!(resumed(noted, 1000 * HOUR + 10 * 8766 * HOUR), 29 * HOUR);
        assert_eq!(resumed(noted, 900 * HOUR), 5 * HOUR);
    }

    proptest! {
        #[test]
        fn no_wall_clock_makes_it_go_back_or_more_than_a_day_ahead(kept in 0..i64::MAX / 2, before: i64, after: i64) {
            let now = resumed(Noted { kept, wall: before }, after);
            prop_assert!((kept..=kept + BETWEEN).contains(&now));
        }

        #[test]
        fn what_is_kept_since_later_than_now_has_no_age(now: i64, ahead in 0..i64::MAX) {
            prop_assert_eq!(age(now, now.saturating_add(ahead)), Duration::ZERO);
        }
    }
}
