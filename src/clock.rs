//! The wall clock, which anybody may set: the only place that reads it. And the host's own time, which
//! nobody can.
//!
//! What the wall clock says is shown, signed and compared with what clients and operators wrote down
//! (expiries). No deadline and no age hangs on it: within one daemon those run on the monotonic
//! clock, here and in the supervisor, and from one daemon to the next on the host's time. The fault bench
//! can give a debug build a wrong wall clock while it runs.

use std::fs::read_to_string;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What the wall clock says, however wrong it is.
#[must_use]
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    #[cfg(debug_assertions)]
    let now = crate::fault_point::bench::wrong(now);
    now
}

/// Where the kernel says which life of the host this is (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// And how long that has lasted, time of suspension included (proc(5)).
const UPTIME: &str = "/proc/uptime";

/// A moment in one life of the host. Of the two that are compared either may be of another daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostTime {
    /// Which life; empty if the kernel does not tell.
    pub boot: String,
    /// How long it had lasted, in microseconds.
    pub up: i64,
}

impl HostTime {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        let told = read_to_string(BOOT_ID).ok().zip(uptime());
        told.map_or_else(Self::default, |(boot, up)| Self {
            boot: boot.trim().to_owned(),
            up,
        })
    }

    /// How much time has passed since an earlier moment of the same life; `None` if it is of another one, or
    /// nobody can tell.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<Duration> {
        let is_same = !self.boot.is_empty() && self.boot == earlier.boot;
        let passed = self.up.saturating_sub(earlier.up);
        is_same.then(|| Duration::from_micros(u64::try_from(passed).unwrap_or(0)))
    }
}

fn uptime() -> Option<i64> {
    microseconds(read_to_string(UPTIME).ok()?.split(' ').next()?)
}

/// Of a number of seconds with a fraction, as the kernel writes it.
fn microseconds(seconds: &str) -> Option<i64> {
    let (whole, fraction) = seconds.split_once('.')?;
    let whole: i64 = whole.parse().ok()?;
    let fraction: i64 = format!("{fraction:0<6}").get(..6)?.parse().ok()?;
    whole.checked_mul(1_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(boot: &str, up: i64) -> HostTime {
        HostTime {
            boot: boot.to_owned(),
            up,
        }
    }

    #[test]
    fn only_within_one_life_of_the_host_it_is_known_how_much_time_has_passed() {
        let passed = |from, to: HostTime| to.since(&from).map(|passed| passed.as_micros());
        assert_eq!(passed(moment("a", 5), moment("a", 7)), Some(2));
        assert_eq!(passed(moment("a", 7), moment("a", 5)), Some(0));
        assert_eq!(passed(moment("a", 5), moment("b", 7)), None);
        assert_eq!(passed(moment("", 5), moment("", 7)), None);
    }

    #[test]
    fn the_kernel_tells_in_hundredths_of_a_second() {
        assert_eq!(microseconds("350735.47"), Some(350_735_470_000));
        assert_eq!(microseconds("0.05"), Some(50_000));
        assert_eq!(microseconds("seconds"), None);
        assert_eq!(microseconds("1.x"), None);
    }

    #[test]
    fn time_passes_on_this_host() {
        let first = HostTime::now();
        assert!(!first.boot.is_empty() && first.up > 0, "{first:?}");
        assert!(HostTime::now().since(&first).is_some());
    }
}
