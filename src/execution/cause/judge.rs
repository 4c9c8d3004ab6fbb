//! The judgement itself.

use fumehood_protocol::message::{EndedBy, Ending, Exited};
use serde_json::Number;

use super::limits::{Reached, counted, find_limit, fullest, memory_kill};
use super::{Cause, CauseKind, End, Facts, Limit, Stop, Verdict, format_seconds};
use crate::execution::result::Status;

const MIB: u64 = 1 << 20;

const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGKILL: i32 = 9;

/// Judges how an execution ended.
#[must_use]
pub fn judge(facts: &Facts<'_>) -> Verdict {
    match &facts.end {
        End::KilledAtDeadline(wall, Stop::Failed) => not_stopped(facts, *wall),
        End::KilledAtDeadline(wall, stop) => timed_out(facts, *wall, stop.words()),
        End::KilledOnCancel(stop) => Verdict::cancelled(stop.words()),
        End::Lost(how) if facts.engine_saw_memory_kill == Some(true) => {
            let evidence = vec![
                how.clone(),
                "the engine reports a kill for memory".to_owned(),
            ];
            limited(
                facts,
                Reached::new(Limit::Memory, None, evidence),
                Some(-SIGKILL),
            )
        }
        End::Lost(how) => Verdict::infrastructure(
            "The sandbox ended without a report: the engine or the host stopped it. \
             The program is not at fault; submit the run again."
                .to_owned(),
            vec![how.clone()],
        ),
        End::Senseless(how) => senseless(how),
        End::Reported(exited) => reported(facts, exited),
    }
}

/// No engine or host makes such a stream, and on Linux no program can.
fn senseless(how: &str) -> Verdict {
    let mut verdict = Verdict::infrastructure(
        "The sandbox sent what is no report, so it was ended and is not tried again by itself. On gVisor \
         a program can write to the stream of its supervisor; otherwise this is a fault of fumehood: \
         please report it."
            .to_owned(),
        vec![how.to_owned()],
    );
    verdict.cause.may_be_the_programs = true;
    verdict
}

fn reported(facts: &Facts<'_>, exited: &Exited) -> Verdict {
    let wall = seconds(exited);
    match (exited.ended_by, exited.ending) {
        // A worker that was killed for memory often leaves a program that waits for ever.
        (EndedBy::Deadline, _) => Verdict {
            warnings: warnings(facts, exited),
            ..timed_out(facts, wall, "the supervisor ended every process")
        },
        (EndedBy::Cancel, _) => Verdict {
            warnings: warnings(facts, exited),
            ..Verdict::cancelled("the supervisor ended every process")
        },
        (EndedBy::Program, Ending::Code(0)) => succeeded(facts, exited, wall),
        (EndedBy::Program, ending) => failed(facts, exited, ending, wall),
    }
}

fn succeeded(facts: &Facts<'_>, exited: &Exited, wall: f64) -> Verdict {
    let missing = facts.missing_expected_files;
    let (status, error_info) = if missing.is_empty() {
        (Status::Success, None)
    } else {
        let text = format!("Missing expected output files: {}", missing.join(", "));
        (Status::InvalidOutput, Some(text))
    };
    let mut message = format!("The program exited with code 0 after {wall:.3} s.");
    if let Some(text) = &error_info {
        message = format!("{message} {text}");
    }
    Verdict {
        status,
        return_code: Some(0),
        cause: cause(CauseKind::Exited, message, vec!["exit code 0".to_owned()]),
        error_info,
        warnings: warnings(facts, exited),
    }
}

fn failed(facts: &Facts<'_>, exited: &Exited, ending: Ending, wall: f64) -> Verdict {
    let (return_code, how) = match ending {
        Ending::Code(code) => (code, format!("exit code {code}")),
        Ending::Signal(signal) => (-signal, format!("signal {signal}")),
    };
    if let Some(mut reached) = find_limit(facts, exited, ending) {
        reached.evidence.insert(0, how);
        return limited(facts, reached, Some(return_code));
    }
    let (kind, message) = match ending {
        Ending::Code(code) => (
            CauseKind::Exited,
            format!(
                "The program exited with code {code} after {wall:.3} s; see its standard error."
            ),
        ),
        Ending::Signal(signal) => (
            CauseKind::Signal,
            format!(
                "The program was ended by {} after {wall:.3} s.",
                signal_name(signal)
            ),
        ),
    };
    Verdict {
        status: Status::Failure,
        return_code: Some(return_code),
        cause: cause(kind, message, vec![how]),
        error_info: None,
        warnings: warnings(facts, exited),
    }
}

/// What a limit did to a program that did not fail over it.
fn warnings(facts: &Facts<'_>, exited: &Exited) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(evidence) = memory_kill(facts, exited) {
        warnings.push(format!(
            "The memory limit of {} MiB was hit, the program itself went on: {evidence}.",
            facts.limits.memory_mb
        ));
    }
    if let Some(refusals) = exited.usage.process_refusals.filter(|&count| count > 0) {
        warnings.push(format!(
            "The limit of {} processes and threads was hit, the program itself went on: \
             the kernel refused {}.",
            facts.limits.max_processes,
            counted(refusals, "new one", "new ones")
        ));
    }
    if let Some((place, _)) = fullest(exited, "") {
        warnings.push(format!(
            "The program went on although {place} was full at some time."
        ));
    }
    if exited.survivors > 0 {
        warnings.push(format!(
            "The supervisor could not end {}: the sandbox was destroyed with them.",
            counted(exited.survivors.into(), "process", "processes")
        ));
    }
    warnings
}

fn timed_out(facts: &Facts<'_>, wall: f64, evidence: &str) -> Verdict {
    let limit = facts.limits.timeout_seconds;
    let text = format!(
        "Execution timed out after {} seconds.",
        format_seconds(limit)
    );
    Verdict {
        status: Status::Timeout,
        return_code: None,
        cause: Cause {
            kind: CauseKind::Limit,
            limit: Some(Limit::Time),
            configured: Number::from_f64(limit),
            observed: Number::from_f64(wall),
            evidence: vec![evidence.to_owned()],
            message: format!("{text} Raise timeout_seconds if the work needs longer."),
            may_be_the_programs: false,
        },
        error_info: Some(text),
        warnings: Vec::new(),
    }
}

/// A time limit means that nothing of the program runs after it (contract section 2.4). Where that
/// cannot be said it is not said (security.md row F9).
fn not_stopped(facts: &Facts<'_>, wall: f64) -> Verdict {
    let limit = format_seconds(facts.limits.timeout_seconds);
    Verdict::infrastructure(
        format!(
            "The end of the sandbox could not be confirmed: its time limit of {limit} s was over, \
             and the container engine did not end it. It is set aside; check the host, where a \
             process may hang in the kernel, and submit the run again."
        ),
        vec![
            format!("nothing was reported within {wall:.3} s of the program's start"),
            Stop::Failed.words().to_owned(),
        ],
    )
}

fn limited(facts: &Facts<'_>, reached: Reached, return_code: Option<i32>) -> Verdict {
    let limits = facts.limits;
    let (configured, message) = match (&reached.full, reached.limit) {
        (Some(full), _) => (Some(full.size().into()), full.message()),
        (None, Limit::Time | Limit::Cpu) => (
            Number::from_f64(limits.timeout_seconds),
            "The program used all its CPU time; raise timeout_seconds.".to_owned(),
        ),
        (None, Limit::Memory) => (
            Some((limits.memory_mb * MIB).into()),
            format!(
                "The program reached the memory limit of {} MiB, which files in the workspace, in \
                 /tmp and in /dev/shm count towards; raise memory_mb or use less.",
                limits.memory_mb
            ),
        ),
        (None, Limit::Processes) => (
            Some(limits.max_processes.into()),
            format!(
                "The program reached the limit of {} processes and threads; raise max_processes \
                 or start fewer.",
                limits.max_processes
            ),
        ),
        (None, Limit::Disk) => (
            Some((limits.workspace_mb * MIB).into()),
            format!(
                "The program ran out of disk space: the workspace has {} MiB; raise workspace_mb \
                 or write less.",
                limits.workspace_mb
            ),
        ),
        (None, Limit::FileSize) => (
            Some((limits.workspace_mb * MIB).into()),
            format!(
                "The program wrote past the largest file size of {} MiB; raise workspace_mb or \
                 write smaller files.",
                limits.workspace_mb
            ),
        ),
    };
    Verdict {
        status: Status::Failure,
        return_code,
        cause: Cause {
            kind: CauseKind::Limit,
            limit: Some(reached.limit),
            configured,
            observed: reached.observed,
            evidence: reached.evidence,
            message: message.clone(),
            may_be_the_programs: false,
        },
        error_info: Some(message),
        warnings: Vec::new(),
    }
}

fn cause(kind: CauseKind, message: String, evidence: Vec<String>) -> Cause {
    Cause {
        kind,
        limit: None,
        configured: None,
        observed: None,
        evidence,
        message,
        may_be_the_programs: false,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds of a run fit a double exactly"
)]
fn seconds(exited: &Exited) -> f64 {
    exited.wall_microseconds as f64 / 1e6
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        2 => "SIGINT",
        4 => "SIGILL",
        SIGABRT => "SIGABRT",
        SIGBUS => "SIGBUS (often shared memory: /dev/shm or a memory-mapped file was full)",
        8 => "SIGFPE",
        SIGKILL => "SIGKILL, sent inside the sandbox",
        11 => "SIGSEGV (a crash in native code)",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests;
