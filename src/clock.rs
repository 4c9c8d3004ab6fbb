//! The wall clock: the only place that reads it.
//!
//! What it says is shown, signed and compared with what clients and operators wrote down (expiries,
//! retention). No deadline hangs on it: those run on the monotonic clock, here and in the supervisor.
//! The fault bench can give a debug build a wrong one while it runs.

use jiff::Timestamp;

/// What the wall clock says, however wrong it is.
#[must_use]
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    #[cfg(debug_assertions)]
    let now = crate::fault_point::bench::wrong(now);
    now
}
