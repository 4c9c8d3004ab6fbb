//! The time by which it is reckoned how long something has been kept: what goes by age goes by this,
//! never by the wall clock, which anybody may set (security.md F16).
//!
//! It counts the microseconds that a daemon has been at work on this store since the store has this
//! clock, and those between two daemons of one life of the host. What lies between two lives of the host
//! only a wall clock could tell: it does not count. So a mistake keeps something for too long, and
//! never removes what is fresh.

use std::time::{Duration, Instant};

use crate::clock::HostTime;

/// Kept time, in microseconds, and when it was written down.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Noted {
    pub(super) kept: i64,
    pub(super) at: HostTime,
}

/// The clock of an open store.
#[derive(Debug)]
pub(super) struct KeptClock {
    start: i64,
    since: Instant,
}

impl KeptClock {
    /// The clock goes on from where it was noted.
    pub(super) fn resume(noted: &Noted) -> Self {
        Self {
            start: resumed(noted, &HostTime::now()),
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
            at: HostTime::now(),
        }
    }
}

/// Kept time at a start.
fn resumed(noted: &Noted, now: &HostTime) -> i64 {
    let between = now.since(&noted.at).unwrap_or_default();
    let between = i64::try_from(between.as_micros()).unwrap_or(i64::MAX);
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

    fn at(boot: &str, up: i64) -> HostTime {
        HostTime {
            boot: boot.to_owned(),
            up,
        }
    }

    #[test]
    fn between_two_daemons_counts_what_the_host_has_been_up() {
        let noted = Noted {
            kept: 5 * HOUR,
            at: at("a", 1000 * HOUR),
        };
        assert_eq!(resumed(&noted, &at("a", 1002 * HOUR)), 7 * HOUR);
        assert_eq!(resumed(&noted, &at("a", 1048 * HOUR)), 53 * HOUR);
        assert_eq!(resumed(&noted, &at("a", 900 * HOUR)), 5 * HOUR);
        // In another life of the host nobody knows how long it was off.
        assert_eq!(resumed(&noted, &at("b", 1002 * HOUR)), 5 * HOUR);
        assert_eq!(resumed(&noted, &HostTime::default()), 5 * HOUR);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_go_back(kept in 0..i64::MAX, before: i64, after: i64, is_same: bool) {
            let noted = Noted { kept, at: at("a", before) };
            let boot = if is_same { "a" } else { "b" };
            prop_assert!(resumed(&noted, &at(boot, after)) >= kept);
        }

        #[test]
        fn what_is_kept_since_later_than_now_has_no_age(now: i64, ahead in 0..i64::MAX) {
            prop_assert_eq!(age(now, now.saturating_add(ahead)), Duration::ZERO);
        }
    }
}
