//! Which limit is behind a failure: the signs of each, and how certain they are.

use fumehood_protocol::message::{Ending, Exited, Filesystem};
use serde_json::Number;

use super::{Facts, Limit};

const MIB: u64 = 1 << 20;

/// A file system with less free space than this counts as full: a write of one block would fail
/// or nearly so.
const FULL_BELOW_BYTES: u64 = 64 << 10;

/// The file systems that a program can fill, as people are told of them.
const WORKSPACE: &str = "the workspace";
const TEMPORARY: &str = "/tmp";
const SHARED_MEMORY: &str = "/dev/shm";

const SIGBUS: i32 = 7;
const SIGXCPU: i32 = 24;
const SIGXFSZ: i32 = 25;

/// A limit that was reached.
pub(super) struct Reached {
    pub(super) limit: Limit,
    pub(super) observed: Option<Number>,
    pub(super) evidence: Vec<String>,
    /// The file system that was full, where one was.
    pub(super) full: Option<Full>,
}

impl Reached {
    pub(super) fn new(limit: Limit, observed: Option<Number>, evidence: Vec<String>) -> Self {
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
pub(super) struct Full {
    place: &'static str,
    sizes: Filesystem,
}

impl Full {
    /// Files can be too many while there is room for their bytes.
    fn of_files(&self) -> bool {
        lacks_inodes(&self.sizes)
    }

    /// Its size in what ran out: inodes or bytes.
    pub(super) fn size(&self) -> u64 {
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

    pub(super) fn message(&self) -> String {
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
pub(super) fn find_limit(facts: &Facts<'_>, exited: &Exited, ending: Ending) -> Option<Reached> {
    let usage = &exited.usage;
    let signal = match ending {
        Ending::Signal(signal) => Some(signal),
        Ending::Code(_) => None,
    };
    if let Some(evidence) = memory_kill(facts, exited)
        && is_about_memory(facts, exited, ending)
    {
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
pub(super) fn memory_kill(facts: &Facts<'_>, exited: &Exited) -> Option<String> {
    match (exited.usage.memory_kills, facts.engine_saw_memory_kill) {
        (Some(kills), _) if kills > 0 => Some(format!(
            "the kernel killed {} of the sandbox for memory",
            counted(kills, "process", "processes")
        )),
        (None, Some(true)) => Some("the engine reports a kill for memory".to_owned()),
        _ => None,
    }
}

/// Whether a failure can be about a kill for memory: it came soon after it, the program says nothing else, or
/// it speaks of it.
fn is_about_memory(facts: &Facts<'_>, exited: &Exited, ending: Ending) -> bool {
    let since = exited.usage.since_memory_kill_milliseconds;
    since.is_none_or(|milliseconds| milliseconds < SURVIVED_AFTER_MILLISECONDS)
        || matches!(ending, Ending::Code(_)) && points_at(facts.stderr, ending, MEMORY_WORDS)
}

pub(super) fn fullest(exited: &Exited, stderr: &str) -> Option<(&'static str, Filesystem)> {
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
    fs.total_bytes > 0 && (fs.free_bytes < FULL_BELOW_BYTES || lacks_inodes(fs))
}

/// gVisor's file systems count no inodes: none are free then, and none are lacking.
fn lacks_inodes(fs: &Filesystem) -> bool {
    fs.total_inodes > 0 && fs.free_inodes == 0
}

fn used_bytes(fs: &Filesystem) -> u64 {
    fs.total_bytes.saturating_sub(fs.free_bytes)
}

/// Whether an error of the kernel is reported, number and text: the text alone is anybody's.
fn mentions(stderr: &str, text: &str, errno: i32) -> bool {
    stderr.contains(&format!("[Errno {errno}] {text}"))
}

/// Who goes on for so long after something was killed for memory has survived it.
const SURVIVED_AFTER_MILLISECONDS: u64 = 2_000;

/// What programs say of which a part was killed.
const MEMORY_WORDS: &[&str] = &[
    "MemoryError",
    "out of memory",
    "Out of memory",
    "SIGKILL",
    "Killed",
    "killed by signal",
    "terminated abruptly",
    "BrokenProcessPool",
    "TerminatedWorkerError",
    "exited unexpectedly",
];

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

/// "one thing" or "3 things".
pub(super) fn counted(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}
