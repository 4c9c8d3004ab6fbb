//! What the tests of the loop share: results and episodes of executions that never took place.

use crate::execution::cause::{Cause, CauseKind};
use crate::execution::{ExecutionResult, Status};
use crate::ids::{ExecutionId, RunId};
use crate::runs::Episode;
use crate::runs::service::testing;
use crate::runs::task::Perceived;

/// A result with this status.
pub(crate) fn result(status: Status) -> ExecutionResult {
    let run = RunId::random();
    let base = testing::episode(run, 1, &ExecutionId::random()).execution;
    ExecutionResult {
        success: status == Status::Success,
        status,
        return_code: match status {
            Status::Success | Status::InvalidOutput => Some(0),
            Status::Failure => Some(1),
            Status::Timeout | Status::Cancelled | Status::Error => None,
        },
        timed_out: status == Status::Timeout,
        error_info: None,
        artifacts: Vec::new(),
        started_at: Some(jiff::Timestamp::UNIX_EPOCH),
        cause: Cause {
            kind: match status {
                Status::Success | Status::InvalidOutput | Status::Failure => CauseKind::Exited,
                Status::Timeout => CauseKind::Limit,
                Status::Cancelled => CauseKind::Cancelled,
                Status::Error => CauseKind::Infrastructure,
            },
            message: format!("It ended with {}.", status.as_str()),
            ..base.cause.clone()
        },
        ..base
    }
}

/// A turn.
pub(crate) fn episode(iteration: u32, status: Status, decision: Option<&str>) -> Episode {
    Episode {
        execution: result(status),
        judge_decision: decision.map(str::to_owned),
        ..testing::episode(RunId::random(), iteration, &ExecutionId::random())
    }
}

/// A look at a data set.
pub(crate) fn perception(status: Status) -> Episode {
    Episode {
        perceived: Some(Box::new(Perceived::default())),
        ..episode(0, status, None)
    }
}
