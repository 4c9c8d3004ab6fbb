//! The judgement itself.

use fumehood_protocol::message::{EndedBy, Ending, Exited, Filesystem};
use serde_json::Number;

use super::{Cause, CauseKind, End, Facts, Limit, Verdict, format_seconds};
use crate::execution::result::Status;

const MIB: u64 = 1 << 20;

/// A file system with less free space than this counts as full: a write of one block would fail
/// or nearly so.
const FULL_BELOW_BYTES: u64 = 64 << 10;

/// The file systems that a program can fill, as people are told of them.
const WORKSPACE: &str = "the workspace";
const TEMPORARY: &str = "/tmp";
const SHARED_MEMORY: &str = "/dev/shm";

const SIGABRT: i32 = 6;
const SIGBUS: i32 = 7;
const SIGKILL: i32 = 9;
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

/// Judges how an execution ended.
#[must_use]
pub fn judge(facts: &Facts<'_>) -> Verdict {
    match &facts.end {
        End::KilledAtDeadline(wall) => timed_out(facts, *wall, "the daemon destroyed the sandbox"),
        End::KilledOnCancel => Verdict::cancelled("the daemon destroyed the sandbox"),
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
        End::Reported(exited) => reported(facts, exited),
    }
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

/// A limit that was reached.
struct Reached {
    limit: Limit,
    observed: Option<Number>,
    evidence: Vec<String>,
    /// The file system that was full, where one was.
    full: Option<Full>,
}

impl Reached {
    fn new(limit: Limit, observed: Option<Number>, evidence: Vec<String>) -> Self {
        Self {
            limit,
            observed,
            evidence,
            full: None,
        }
    }

    fn full(limit: Limit, full: Full, evidence: String) -> Self {
        Self {
            observed: Some(full.used().into()),
            full: Some(full),
            ..Self::new(limit, None, vec![evidence])
        }
    }
}

/// A full file system.
struct Full {
    place: &'static str,
    sizes: Filesystem,
}

impl Full {
    /// Files can be too many while there is room for their bytes.
    fn of_files(&self) -> bool {
        self.sizes.free_inodes == 0
    }

    /// Its size in what ran out: inodes or bytes.
    fn size(&self) -> u64 {
        if self.of_files() {
            self.sizes.total_inodes
        } else {
            self.sizes.total_bytes
        }
    }

    fn used(&self) -> u64 {
        if self.of_files() {
            self.sizes.total_inodes
        } else {
            used_bytes(&self.sizes)
        }
    }

    fn message(&self) -> String {
        let size = if self.of_files() {
            format!("room for {} files and directories", self.size())
        } else {
            format!("{} MiB", self.size() / MIB)
        };
        let option = match self.place {
            TEMPORARY => "memory_mb, an eighth of which /tmp gets,",
            SHARED_MEMORY => "shm_mb",
            _ => "workspace_mb",
        };
        format!(
            "The program filled {}, which has {size}; raise {option} or write less.",
            self.place
        )
    }
}

/// The limit behind a failure, most certain sign first: counters of the kernel before the state of
/// a file system, and both before the program's own words.
fn find_limit(facts: &Facts<'_>, exited: &Exited, ending: Ending) -> Option<Reached> {
    let usage = &exited.usage;
    let signal = match ending {
        Ending::Signal(signal) => Some(signal),
        Ending::Code(_) => None,
    };
    if let Some(evidence) = memory_kill(facts, exited) {
        let observed = usage.peak_memory_bytes.map(Number::from);
        return Some(Reached::new(Limit::Memory, observed, vec![evidence]));
    }
    if signal == Some(SIGXCPU) {
        let used = usage.cpu_microseconds / 1_000_000;
        let evidence = vec!["SIGXCPU".to_owned()];
        return Some(Reached::new(Limit::Cpu, Some(used.into()), evidence));
    }
    if signal == Some(SIGXFSZ) {
        let evidence = vec!["SIGXFSZ".to_owned()];
        return Some(Reached::new(Limit::FileSize, None, evidence));
    }
    if let Some(sizes) = usage.shared_memory_fullest.filter(is_full)
        && signal == Some(SIGBUS)
    {
        let full = Full {
            place: SHARED_MEMORY,
            sizes,
        };
        let evidence = "SIGBUS with /dev/shm full".to_owned();
        return Some(Reached::full(Limit::Memory, full, evidence));
    }
    if let Some(refusals) = usage.process_refusals.filter(|&count| count > 0)
        && points_at(facts.stderr, ending, PROCESS_WORDS)
    {
        let refused = counted(
            refusals,
            "new process or thread",
            "new processes or threads",
        );
        let evidence = format!("the kernel refused {refused}");
        let observed = facts.limits.max_processes.into();
        return Some(Reached::new(
            Limit::Processes,
            Some(observed),
            vec![evidence],
        ));
    }
    if let Some((place, sizes)) = fullest(exited, facts.stderr)
        && points_at(facts.stderr, ending, DISK_WORDS)
    {
        let evidence = format!(
            "{place} had {} of {} bytes and {} of {} inodes free at its fullest",
            sizes.free_bytes, sizes.total_bytes, sizes.free_inodes, sizes.total_inodes
        );
        return Some(Reached::full(Limit::Disk, Full { place, sizes }, evidence));
    }
    if mentions(facts.stderr, "File too large", 27) {
        let evidence = "standard error reports EFBIG (File too large)".to_owned();
        return Some(Reached::new(Limit::FileSize, None, vec![evidence]));
    }
    None
}

/// A process killed for memory, in words; the supervisor's counter and the engine's flag are two
/// views of the same kernel event, and either may be missing.
fn memory_kill(facts: &Facts<'_>, exited: &Exited) -> Option<String> {
    match (exited.usage.memory_kills, facts.engine_saw_memory_kill) {
        (Some(kills), _) if kills > 0 => Some(format!(
            "the kernel killed {} of the sandbox for memory",
            counted(kills, "process", "processes")
        )),
        (None, Some(true)) => Some("the engine reports a kill for memory".to_owned()),
        _ => None,
    }
}

fn fullest(exited: &Exited, stderr: &str) -> Option<(&'static str, Filesystem)> {
    let places = [
        (WORKSPACE, exited.usage.workspace_fullest),
        (TEMPORARY, exited.usage.temporary_fullest),
        (SHARED_MEMORY, exited.usage.shared_memory_fullest),
    ];
    let said = mentions(stderr, "No space left on device", 28);
    places
        .into_iter()
        .filter_map(|(place, fs)| Some((place, fs?)))
        .find(|(_, fs)| {
            // The supervisor looks every few milliseconds and can miss the very moment; the program's
            // own report then counts if the file system was seen nearly full.
            is_full(fs)
                || (said
                    && (fs.free_bytes < fs.total_bytes / 10
                        || fs.free_inodes < fs.total_inodes / 10))
        })
}

fn is_full(fs: &Filesystem) -> bool {
    fs.total_bytes > 0 && (fs.free_bytes < FULL_BELOW_BYTES || fs.free_inodes == 0)
}

fn used_bytes(fs: &Filesystem) -> u64 {
    fs.total_bytes.saturating_sub(fs.free_bytes)
}

/// Whether an error of the kernel is reported, number and text: the text alone is anybody's.
fn mentions(stderr: &str, text: &str, errno: i32) -> bool {
    stderr.contains(&format!("[Errno {errno}] {text}"))
}

/// What programs say that were refused a process or thread.
const PROCESS_WORDS: &[&str] = &[
    "[Errno 11]",
    "Resource temporarily unavailable",
    "can't start new thread",
    "pthread_create",
    "fork:",
    "retry: Resource",
];

/// What programs say that found no room.
const DISK_WORDS: &[&str] = &["[Errno 28]", "No space left on device", "disk is full"];

/// Whether a failure can be about a limit that was hit at some time: a signal and silence say
/// nothing else, words have to be about it. A limit that was survived before an unrelated failure
/// is a warning.
fn points_at(stderr: &str, ending: Ending, words: &[&str]) -> bool {
    match ending {
        Ending::Signal(_) => true,
        Ending::Code(_) => {
            stderr.trim().is_empty() || words.iter().any(|word| stderr.contains(word))
        }
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
        },
        error_info: Some(text),
        warnings: Vec::new(),
    }
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
        },
        error_info: Some(message),
        warnings: Vec::new(),
    }
}

fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

fn cause(kind: CauseKind, message: String, evidence: Vec<String>) -> Cause {
    Cause {
        kind,
        limit: None,
        configured: None,
        observed: None,
        evidence,
        message,
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
