//! Whether an execution that did not come to its end is tried again: pure decisions.
//!
//! Only what the infrastructure ended, and only if the client asked for it (`options.retries`): a
//! program that may have run a while is started once more then. Without it the daemon promises at
//! most one start.

use std::time::Duration;

use crate::execution::ExecutionResult;
use crate::execution::cause::CauseKind;

/// Pause before the second attempt; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long to wait before another attempt; `None` if there is to be none.
pub(super) fn pause(result: &ExecutionResult, attempt: u32, retries: u32) -> Option<Duration> {
    let is_ours =
        result.cause.kind == CauseKind::Infrastructure && !result.cause.may_be_the_programs;
    let wanted = is_ours && attempt <= retries;
    wanted.then(|| {
        let doublings = attempt.saturating_sub(1).min(16);
        FIRST_PAUSE
            .saturating_mul(1 << doublings)
            .min(LONGEST_PAUSE)
    })
}

/// What the result of a later attempt says of this one.
pub(super) fn note(result: &ExecutionResult, attempt: u32, retries: u32) -> String {
    format!(
        "Attempt {attempt} of {} was ended by the infrastructure: {}",
        retries.saturating_add(1),
        result.cause.message
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ExecutionId, RunId};
    use crate::runs::service::testing::episode;

    fn result(kind: CauseKind) -> ExecutionResult {
        let mut result = episode(RunId::random(), 1, &ExecutionId::random()).execution;
        result.cause.kind = kind;
        result
    }

    #[test]
    fn only_the_infrastructure_is_given_another_chance_and_only_on_request() {
        let lost = result(CauseKind::Infrastructure);
        assert_eq!(pause(&lost, 1, 0), None);
        assert_eq!(pause(&lost, 1, 1), Some(Duration::from_secs(1)));
        assert_eq!(pause(&lost, 2, 1), None);
        for kind in [
            CauseKind::Exited,
            CauseKind::Signal,
            CauseKind::Limit,
            CauseKind::Cancelled,
        ] {
            assert_eq!(pause(&result(kind), 1, 5), None, "{kind:?}");
        }
        // Or a program could have itself started again.
        let mut noise = lost;
        noise.cause.may_be_the_programs = true;
        assert_eq!(pause(&noise, 1, 5), None);
    }

    #[test]
    fn pauses_grow_and_are_bounded() {
        let lost = result(CauseKind::Infrastructure);
        let seconds = [1, 2, 3, 9].map(|attempt| pause(&lost, attempt, 10).unwrap().as_secs());
        assert_eq!(seconds, [1, 2, 4, 30]);
        assert!(pause(&lost, u32::MAX, u32::MAX).is_some());
    }
}
