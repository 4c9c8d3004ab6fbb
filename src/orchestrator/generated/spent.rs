//! The time that a run has used up, by what is recorded of it: no I/O.

use std::time::Duration;

use crate::runs::Episode;
use crate::runs::task::ModelUsage;

/// What earlier daemons spent on a run: on its programs and on its model. No clock is asked, since
/// anybody may have set it (security.md F16); what was lost with a daemon does not count.
pub(super) fn used_up(episodes: &[Episode], under_way: &ModelUsage) -> Duration {
    let executions = episodes.iter().map(|one| one.execution.duration_seconds);
    let usage = episodes.iter().filter_map(|one| one.model_usage.as_ref());
    let asking = usage.chain([under_way]).map(|usage| usage.seconds);
    executions
        .chain(asking)
        .map(seconds)
        .fold(Duration::ZERO, Duration::saturating_add)
}

pub(super) fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}
