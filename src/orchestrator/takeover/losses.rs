//! What the result says of an execution of whose end nothing can be known any more: no I/O.

use super::rules::Loss;
use crate::execution::cause::{Stop, Verdict};
use crate::execution::result::ExecutionResult;
use crate::execution::spec::ExecutionSpec;
use crate::orchestrator::conclusion::{Gathered, conclude, never_started};
use crate::orchestrator::conversation::{HOLD, TalkEnd};
use crate::orchestrator::course::Course;
use crate::orchestrator::executor::failed_before_start;
use crate::orchestrator::handoff::Handoff;
use crate::orchestrator::trouble::Trouble;
use crate::sandbox::EngineError;
use crate::sandbox::session::SessionError;

/// The result of an execution of whose end nothing can be known. That is never its program's fault.
pub(super) fn lost(
    spec: &ExecutionSpec,
    loss: Loss,
    handoff: Option<&Handoff>,
    memory_kill: Option<bool>,
) -> ExecutionResult {
    let error = match (loss, handoff) {
        (Loss::Vanished, _) => EngineError::Vanished,
        (Loss::Stopped, _) | (Loss::HostRestarted, Some(_)) => EngineError::Stopped,
        (Loss::EngineAway, _) => EngineError::TimedOut {
            call: "find a sandbox",
            seconds: HOLD.as_secs(),
        },
        (Loss::HostRestarted, None) => {
            return nothing_known(spec, "the host was restarted before its end was recorded");
        }
        (Loss::Senseless, _) => {
            return nothing_known(
                spec,
                "the daemon that started it left nothing that can be read",
            );
        }
    };
    let Some(handoff) = handoff else {
        return failed_before_start(spec, &Trouble::Engine(error));
    };
    let mut notes = handoff.notes.clone();
    let otherwise = TalkEnd::Lost(SessionError::Engine(error));
    let end = told(handoff, otherwise, &mut notes);
    let talk = Course::resumed(&spec.limits, handoff).ended(end);
    let engine = (Stop::Confirmed, memory_kill);
    let mut result = conclude(spec, talk, engine, Gathered::default(), notes);
    result.sandbox = Some(handoff.sandbox_use);
    result
}

/// How a program ended whose sandbox is lost: as its supervisor had reported, if an earlier daemon heard
/// that and died before it had collected everything. Only the files are lost then.
pub(super) fn told(handoff: &Handoff, otherwise: TalkEnd, notes: &mut Vec<String>) -> TalkEnd {
    let Some(exited) = &handoff.progress.exited else {
        return otherwise;
    };
    let why = match &otherwise {
        TalkEnd::Lost(error) => error.to_string(),
        TalkEnd::Reported(_) | TalkEnd::LateAtDeadline(_) | TalkEnd::LateOnCancel => {
            "the run was cancelled".to_owned()
        }
    };
    notes.push(format!("The files of the program were lost: {why}."));
    TalkEnd::Reported(exited.clone())
}

/// The result of one that was to end anyway; `stop` is what is known of its sandbox.
pub(super) fn cancelled(
    spec: &ExecutionSpec,
    handoff: Option<&Handoff>,
    stop: Stop,
) -> ExecutionResult {
    let Some(handoff) = handoff else {
        let verdict = Verdict::cancelled("it is not known whether the program was started");
        return never_started(spec, verdict);
    };
    let mut notes = handoff.notes.clone();
    let end = told(handoff, TalkEnd::LateOnCancel, &mut notes);
    let talk = Course::resumed(&spec.limits, handoff).ended(end);
    let mut result = conclude(spec, talk, (stop, None), Gathered::default(), notes);
    result.sandbox = Some(handoff.sandbox_use);
    result
}

fn nothing_known(spec: &ExecutionSpec, why: &str) -> ExecutionResult {
    let message = format!(
        "The execution was lost: {why}. The program is not at fault; submit the run again."
    );
    let evidence = vec!["it is not known whether the program was started".to_owned()];
    never_started(spec, Verdict::infrastructure(message, evidence))
}

#[cfg(test)]
mod tests {
    use fumehood_protocol::message::{EndedBy, Ending, Exited, StreamTotals, Usage};

    use super::*;
    use crate::execution::cause::{CauseKind, Limit};
    use crate::execution::result::Status;
    use crate::orchestrator::handoff::tests::handoff;
    use crate::orchestrator::retry;
    use crate::orchestrator::takeover::tests::spec;

    #[test]
    fn no_loss_is_the_programs_fault_whatever_is_known_of_it() {
        let handoff = handoff();
        for loss in [
            Loss::HostRestarted,
            Loss::Senseless,
            Loss::Vanished,
            Loss::Stopped,
            Loss::EngineAway,
        ] {
            for put_away in [None, Some(&handoff)] {
                let result = lost(&spec(), loss, put_away, Some(false));
                assert_eq!(result.status, Status::Error, "{loss:?}");
                assert_eq!(result.cause.kind, CauseKind::Infrastructure, "{loss:?}");
                assert_eq!((result.return_code, result.limit), (None, None));
                assert!(!result.timed_out && !result.success);
            }
        }
    }

    /// The one thing that can be known of a sandbox that stands still.
    #[test]
    fn a_kill_for_memory_that_the_engine_saw_is_that_limit() {
        let result = lost(&spec(), Loss::Stopped, Some(&handoff()), Some(true));
        assert_eq!(result.limit, Some(Limit::Memory));
    }

    fn handoff_after(code: i32) -> Handoff {
        let totals = || StreamTotals {
            bytes: 0,
            forwarded_bytes: 0,
            tail: Vec::new(),
        };
        let mut handoff = handoff();
        handoff.progress.exited = Some(Box::new(Exited {
            ending: Ending::Code(code),
            ended_by: EndedBy::Program,
            wall_microseconds: 1_500_000,
            stdout: totals(),
            stderr: totals(),
            usage: Usage::default(),
            survivors: 0,
        }));
        handoff
    }

    /// Its daemon died while it collected, and then the sandbox was lost.
    #[test]
    fn an_end_that_was_reported_stands_and_only_the_files_are_lost() {
        let handoff = handoff_after(3);
        let mut results = [
            Loss::HostRestarted,
            Loss::Vanished,
            Loss::Stopped,
            Loss::EngineAway,
        ]
        .map(|loss| lost(&spec(), loss, Some(&handoff), Some(false)))
        .to_vec();
        results.push(cancelled(&spec(), Some(&handoff), Stop::Confirmed));
        for result in results {
            assert_eq!(result.status, Status::Failure, "{result:?}");
            assert_eq!(result.return_code, Some(3));
            assert_eq!(retry::pause(&result, 1, 5), None);
            let told = result
                .warnings
                .iter()
                .any(|warning| warning.starts_with("The files of the program were lost: "));
            assert!(told, "{:?}", result.warnings);
        }
    }

    /// What it was to write may have been among the files: it is not known to be at fault.
    #[test]
    fn an_expected_file_that_was_lost_with_the_sandbox_is_not_the_programs_fault() {
        let result = lost(&spec(), Loss::Vanished, Some(&handoff_after(0)), None);
        assert_eq!(result.cause.kind, CauseKind::Infrastructure);
        assert_eq!(result.return_code, Some(0));
        let nothing_expected = ExecutionSpec {
            expected_output_files: Vec::new(),
            ..spec()
        };
        let result = lost(
            &nothing_expected,
            Loss::Vanished,
            Some(&handoff_after(0)),
            None,
        );
        assert_eq!(result.status, Status::Success);
    }

    #[test]
    fn one_that_was_to_end_anyway_is_cancelled() {
        for put_away in [None, Some(&handoff())] {
            let result = cancelled(&spec(), put_away, Stop::Confirmed);
            assert_eq!(result.status, Status::Cancelled);
        }
    }
}
