//! What everything that happened to a program means for its result: no I/O, only putting together.

use std::time::Duration;

use fumehood_protocol::message::{Exited, StreamTotals};
use jiff::Timestamp;

use super::conversation::{Conversation, TalkEnd};
use crate::artifacts::{Collected, Staging};
use crate::clock;
use crate::execution::cause::{End, Facts, Stop, Verdict, judge};
use crate::execution::output::{Head, tail_text};
use crate::execution::result::{ExecutionResult, ResourceUsage, Status};
use crate::execution::spec::ExecutionSpec;
use crate::execution::{Artifact, SkippedArtifact};
use crate::telemetry::log_chain;

/// What was collected, whether or not it could be published.
#[derive(Default)]
pub(super) struct Gathered {
    staging: Option<Staging>,
    artifacts: Vec<Artifact>,
    output_files: Vec<String>,
    unchanged_inputs: Vec<String>,
    skipped: Vec<SkippedArtifact>,
    /// Whether everything that the program left was looked at and has reached its place.
    complete: bool,
}

impl From<Collected> for Gathered {
    fn from(collected: Collected) -> Self {
        Self {
            staging: Some(collected.staging),
            complete: collected.complete,
            artifacts: collected.artifacts,
            output_files: collected.output_files,
            unchanged_inputs: collected.unchanged_inputs,
            skipped: collected.skipped,
        }
    }
}

impl Gathered {
    pub(super) fn take_staging(&mut self) -> Option<Staging> {
        self.staging.take()
    }

    /// Nothing of it reached its place.
    pub(super) fn forget(&mut self) {
        self.artifacts.clear();
        self.output_files.clear();
        self.complete = false;
    }

    /// Whether an expected file is there: at its path under `out`, or at the top of the workspace
    /// (contract section 2.8).
    fn has(&self, expected: &str) -> bool {
        let name = expected.strip_prefix("./").unwrap_or(expected);
        let below_out = name.strip_prefix("out/").unwrap_or(name);
        let mut present = self.output_files.iter().chain(&self.unchanged_inputs);
        present.any(|file| file == name || file == below_out)
    }
}

/// The result of a program that was not started.
pub(super) fn never_started(spec: &ExecutionSpec, verdict: Verdict) -> ExecutionResult {
    let nothing = Gathered::default();
    let head = || Head::new(0);
    let talk = Talked {
        stdout: head(),
        stderr: head(),
        exited: None,
        started_at: None,
        wall: Duration::ZERO,
    };
    result(spec, talk, verdict, nothing, Vec::new())
}

/// What the talk leaves for the result.
struct Talked {
    stdout: Head,
    stderr: Head,
    exited: Option<Box<Exited>>,
    started_at: Option<Timestamp>,
    wall: Duration,
}

/// The result of a program that was started. `engine` is what is known of a stop that it was asked
/// for, and its word that the kernel killed something for memory.
pub(super) fn conclude(
    spec: &ExecutionSpec,
    talk: Conversation,
    engine: (Stop, Option<bool>),
    collected: Gathered,
    notes: Vec<String>,
) -> ExecutionResult {
    let (stop, engine_saw_memory_kill) = engine;
    let expected = spec.expected_output_files.iter();
    let missing: Vec<String> = expected
        .filter(|name| !collected.has(name))
        .cloned()
        .collect();
    let (end, exited) = match talk.end {
        TalkEnd::Reported(exited) => (None, Some(exited)),
        TalkEnd::LateAtDeadline(wall) => (Some(End::KilledAtDeadline(wall, stop)), None),
        TalkEnd::LateOnCancel => (Some(End::KilledOnCancel(stop)), None),
        TalkEnd::Lost(error) => {
            log_chain("the talk with a supervisor broke off", &error);
            let how = error.to_string();
            let end = if error.is_senseless() {
                End::Senseless(how)
            } else {
                End::Lost(how)
            };
            (Some(end), None)
        }
    };
    let stderr = last_words(&talk.stderr, exited.as_deref());
    let lost = || End::Lost("no report".to_owned());
    let end = end
        .or_else(|| exited.as_deref().map(End::Reported))
        .unwrap_or_else(lost);
    let facts = Facts {
        limits: &spec.limits,
        end,
        engine_saw_memory_kill,
        missing_expected_files: &missing,
        stderr: &stderr,
    };
    let mut verdict = judge(&facts);
    if verdict.status == Status::InvalidOutput && !collected.complete {
        verdict = lost_by_us(&missing, verdict.return_code);
    }
    let talked = Talked {
        stdout: talk.stdout,
        stderr: talk.stderr,
        exited,
        started_at: Some(talk.started_at),
        wall: talk.wall,
    };
    let mut result = result(spec, talked, verdict, collected, notes);
    result.missing_expected_files = missing;
    result
}

/// Expected files that are not there, of a program whose files did not all reach their place: that
/// is not known to be its fault, so it is not said to be (invariant 7).
fn lost_by_us(missing: &[String], return_code: Option<i32>) -> Verdict {
    let message = format!(
        "The expected output files could not all be collected: {}. The program exited with code 0 \
         and is not at fault; submit the run again.",
        missing.join(", ")
    );
    let evidence = vec!["collecting the artifacts was not completed".to_owned()];
    Verdict {
        return_code,
        ..Verdict::infrastructure(message, evidence)
    }
}

/// The end of standard error, where a traceback names what happened.
fn last_words(head: &Head, exited: Option<&Exited>) -> String {
    let tail = exited
        .map(|exited| exited.stderr.tail.as_slice())
        .unwrap_or_default();
    if tail.is_empty() {
        head.peek()
    } else {
        tail_text(tail)
    }
}

fn result(
    spec: &ExecutionSpec,
    talk: Talked,
    verdict: Verdict,
    collected: Gathered,
    notes: Vec<String>,
) -> ExecutionResult {
    let exited = talk.exited.as_deref();
    let (stdout, stdout_bytes, stdout_tail) = stream(talk.stdout, exited.map(|e| &e.stdout));
    let (mut stderr, stderr_bytes, stderr_tail) = stream(talk.stderr, exited.map(|e| &e.stderr));
    let timed_out = verdict.status == Status::Timeout;
    if timed_out && stderr.is_empty() {
        stderr = verdict.error_info.clone().unwrap_or_default();
    }
    let mut warnings = verdict.warnings;
    warnings.extend(
        exited
            .into_iter()
            .flat_map(|exited| cut_short(spec, exited)),
    );
    warnings.extend(notes);
    ExecutionResult {
        execution_id: spec.id.clone(),
        success: verdict.status == Status::Success,
        status: verdict.status,
        return_code: verdict.return_code,
        stdout,
        stderr,
        duration_seconds: duration(exited, talk.wall),
        timed_out,
        output_files: collected.output_files,
        missing_expected_files: Vec::new(),
        error_info: verdict.error_info,
        workspace_dir: format!("outputs/models/{}", spec.id),
        limit: verdict.cause.limit,
        cause: verdict.cause,
        warnings,
        stdout_bytes,
        stderr_bytes,
        stdout_tail,
        stderr_tail,
        usage: exited.map(usage),
        sandbox: None,
        started_at: talk.started_at,
        finished_at: clock::now(),
        artifacts: collected.artifacts,
        artifacts_skipped: collected.skipped,
    }
}

/// What a program wrote below the cap and nobody took: no daemon was there for longer than its
/// supervisor could keep it. That has nothing to do with the program.
fn cut_short(spec: &ExecutionSpec, exited: &Exited) -> Vec<String> {
    let limits = &spec.limits;
    let streams = [
        ("stdout", &exited.stdout, limits.max_stdout_size_bytes),
        ("stderr", &exited.stderr, limits.max_stderr_size_bytes),
    ];
    let cut = streams.into_iter().filter_map(|(name, totals, cap)| {
        let forwarded = totals.forwarded_bytes;
        (forwarded < totals.bytes.min(cap))
            .then(|| format!("{name} was cut after {forwarded} bytes: no daemon took it in time."))
    });
    cut.collect()
}

/// Text, bytes written in all, and the tail where the head was cut.
fn stream(head: Head, totals: Option<&StreamTotals>) -> (String, u64, Option<String>) {
    let written = totals.map_or(head.total(), |totals| totals.bytes.max(head.total()));
    let cut = head.is_cut(written);
    let tail = totals.filter(|_| cut).map(|totals| tail_text(&totals.tail));
    (head.into_text(written), written, tail)
}

/// Wall clock of the program: by the supervisor's clock, or by the daemon's where that is lost.
#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds of a run fit a double exactly"
)]
fn duration(exited: Option<&Exited>, wall: Duration) -> f64 {
    exited.map_or(wall.as_secs_f64(), |exited| {
        exited.wall_microseconds as f64 / 1e6
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "microseconds of a run fit a double exactly"
)]
fn usage(exited: &Exited) -> ResourceUsage {
    let usage = &exited.usage;
    ResourceUsage {
        cpu_seconds: usage.cpu_microseconds as f64 / 1e6,
        peak_memory_bytes: usage.peak_memory_bytes,
        peak_resident_bytes: usage.peak_resident_bytes,
        peak_workspace_bytes: usage
            .workspace_fullest
            .map(|fs| fs.total_bytes.saturating_sub(fs.free_bytes)),
    }
}
