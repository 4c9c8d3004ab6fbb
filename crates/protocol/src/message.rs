//! The messages. Every field is a claim of its sender: the daemon treats those of the
//! supervisor as hostile, since the program shares the supervisor's container.

use serde::{Deserialize, Serialize};

use crate::ResumeToken;
pub use crate::preload::{FileLimits, Preload, Preloaded};

/// From the daemon to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// Appends bytes to a file of the workspace; before `Start` only.
    Write(WriteFile),
    /// Starts an interpreter that waits for `Start`. Once only, before `Start`, which must not be
    /// sent until this was answered by `Preloaded`.
    Preload(Preload),
    /// Asks for a look at the data set's place as it is now; before `Start` only. Answered by
    /// `Dataset`.
    Look,
    /// Starts the program, or lets the waiting interpreter run it. Once only.
    Start(Start),
    /// Every frame up to this sequence number has been taken.
    Ack(u64),
    /// Ends the program now.
    Cancel,
    /// Asks for the artifacts; after `Exited` only.
    Collect(CollectLimits),
    /// A daemon has attached again and has everything up to this sequence number.
    Resume(u64),
    /// Asks for the artifacts from the first one, whatever was sent of them before; after `Exited`
    /// only. Answered by `Anew` with the same mark: what comes before that belongs to an earlier
    /// request, of which there may have been several.
    CollectAnew(CollectAnew),
}

/// Bytes for a file of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteFile {
    /// Path relative to the workspace, forward slashes, no `.` or `..`; parents are created.
    pub path: String,
    /// Appended to the file, which the first message about it creates.
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Everything about the program to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The program and its arguments; the program is an absolute path or is looked up in the
    /// `PATH` of `environment`. No shell is involved.
    pub arguments: Vec<String>,
    /// The program's whole environment: nothing is inherited.
    pub environment: Vec<(String, String)>,
    /// The limits that the supervisor sets or watches.
    pub limits: ProgramLimits,
    /// How much output is forwarded.
    pub output: OutputLimits,
    /// Marks where a stream starts anew.
    pub resume_token: ResumeToken,
    /// How long the result is kept for a daemon that comes back, in milliseconds after the
    /// program's end; then the supervisor ends.
    pub hold_milliseconds: u64,
}

/// Limits of the program that the supervisor sets before it starts, or watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramLimits {
    /// Wall clock from the start of the program, in milliseconds.
    pub wall_milliseconds: u64,
    /// CPU time per process (`RLIMIT_CPU`), in seconds. What a waiting interpreter has used before
    /// `Start` does not count; its children may then use as much more.
    pub cpu_seconds: Option<u64>,
    /// Size of one file (`RLIMIT_FSIZE`), in bytes.
    pub file_size_bytes: u64,
    /// Open files per process (`RLIMIT_NOFILE`).
    pub open_files: u64,
}

impl ProgramLimits {
    /// Those that are not about time.
    #[must_use]
    pub fn files(&self) -> FileLimits {
        FileLimits {
            file_size_bytes: self.file_size_bytes,
            open_files: self.open_files,
        }
    }
}

/// How much of each output stream is forwarded; the rest is counted and discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLimits {
    /// Bytes of standard output forwarded from its start.
    pub stdout_head_bytes: u64,
    /// Bytes of standard error forwarded from its start.
    pub stderr_head_bytes: u64,
    /// Bytes kept from the end of each stream, for [`StreamTotals::tail`].
    pub tail_bytes: u32,
}

/// Bounds of the walk over the workspace. What exceeds one is reported as skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectLimits {
    /// Apparent bytes of all files together.
    pub total_bytes: u64,
    /// Regular files.
    pub files: u64,
    /// Directory entries looked at, of any kind.
    pub entries: u64,
    /// Directories below `out`.
    pub depth: u32,
    /// Bytes of one path, relative to the workspace.
    pub path_bytes: u32,
    /// Names at the top of the workspace that are no artifacts.
    pub ignore: Vec<String>,
}

/// Asks for the artifacts from the first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectAnew {
    /// Bounds of the walk.
    pub limits: CollectLimits,
    /// Tells this request from those of daemons that died after theirs: a random number.
    pub mark: u64,
}

/// From the supervisor to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// The sandbox waits for a program. Always the first message.
    Ready(Ready),
    /// The answer to `Preload`.
    Preloaded(Preloaded),
    /// The answer to `Look`: the data set, if one is mounted at `/data`.
    Dataset(Option<DatasetMount>),
    /// The program's process has replaced itself by the program.
    Started(Started),
    /// Output of the program.
    Output(Output),
    /// The program has ended, its time is up, or it was cancelled, and every process has been sent
    /// `SIGKILL`: none runs an instruction of its own any more. `Exited` follows when the kernel has
    /// taken them apart, within [`crate::REAPING_LIMIT`]; a crowd on a small share of a busy host
    /// makes that last.
    Killed,
    /// The main process has ended, and every other process is gone or being taken apart by the
    /// kernel: nothing in the sandbox writes or reads any more.
    Exited(Box<Exited>),
    /// The program could not be started; nothing of it ran.
    Failed(Failed),
    /// The answer to the `CollectAnew` with this mark: its list of artifacts begins here.
    Anew(u64),
    /// A regular file or directory follows.
    Entry(Entry),
    /// The next bytes of the entry before.
    Chunk(Chunk),
    /// The entry before is complete.
    EntryEnd,
    /// Something in the workspace is no artifact.
    Skipped(Skipped),
    /// The list of artifacts is complete.
    Done(Done),
}

/// What the supervisor found when it started, before any foreign program ran: the daemon
/// compares it with what it asked the engine for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// [`crate::VERSION`] of the supervisor.
    pub protocol: u16,
    /// Real, effective and saved uid; equal or the supervisor refuses.
    pub uid: u32,
    /// Real, effective and saved gid.
    pub gid: u32,
    /// Supplementary groups other than `gid`.
    pub groups: Vec<u32>,
    /// The union of all five capability sets.
    pub capabilities: u64,
    /// `NoNewPrivs` of `/proc/self/status`, if the kernel tells.
    pub no_new_privileges: Option<bool>,
    /// `Seccomp` of `/proc/self/status` (2: a filter is on), if the kernel tells.
    pub seccomp: Option<u8>,
    /// Whether `/` can be written to.
    pub root_read_only: bool,
    /// The names of the network interfaces.
    pub network_interfaces: Vec<String>,
    /// The data set, if one is mounted at `/data`.
    pub dataset: Option<DatasetMount>,
    /// The file system of the workspace.
    pub workspace: Filesystem,
}

/// The directory found at `/data`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetMount {
    /// Device number (`st_dev`).
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// Whether the program's uid can list the directory.
    pub readable: bool,
}

/// Sizes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filesystem {
    /// Size, in bytes.
    pub total_bytes: u64,
    /// Free, in bytes.
    pub free_bytes: u64,
    /// Inodes in all.
    pub total_inodes: u64,
    /// Inodes free.
    pub free_inodes: u64,
}

/// The program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Process id inside the sandbox.
    pub pid: u32,
}

/// One of the program's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Bytes that the program wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Where it wrote them.
    pub stream: Stream,
    /// What it wrote, at most [`crate::MAX_PAYLOAD_BYTES`].
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// How the main process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ending {
    /// It exited with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}

/// What made the main process end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndedBy {
    /// Itself, or something inside the sandbox.
    Program,
    /// The supervisor, at the wall clock limit.
    Deadline,
    /// The supervisor, on `Cancel`.
    Cancel,
}

/// The program is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// How.
    pub ending: Ending,
    /// Why.
    pub ended_by: EndedBy,
    /// From the start of the program to its end, in microseconds of the monotonic clock.
    pub wall_microseconds: u64,
    /// Totals of standard output.
    pub stdout: StreamTotals,
    /// Totals of standard error.
    pub stderr: StreamTotals,
    /// What the program used.
    pub usage: Usage,
    /// Processes that could not be ended within the supervisor's bound; 0 in a healthy sandbox.
    pub survivors: u32,
}

/// What became of one output stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamTotals {
    /// Bytes written by the program in all.
    pub bytes: u64,
    /// Bytes forwarded as [`Output`].
    pub forwarded_bytes: u64,
    /// The last bytes of the stream, whether forwarded or not.
    #[serde(with = "serde_bytes")]
    pub tail: Vec<u8>,
}

/// What the program used, as read inside the sandbox. `None`: the kernel does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of the program and all its descendants since its start, in microseconds.
    pub cpu_microseconds: u64,
    /// Peak memory charged to the sandbox, tmpfs, page cache and preloaded libraries included, in
    /// bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Largest resident set of one process, in bytes, libraries that were preloaded included.
    pub peak_resident_bytes: u64,
    /// Processes killed because the memory limit was reached.
    pub memory_kills: Option<u64>,
    /// From when the last of them was noticed to the end of the main process, in milliseconds.
    #[serde(default)]
    pub since_memory_kill_milliseconds: Option<u64>,
    /// Times that a process or thread was refused because of the limit on them.
    pub process_refusals: Option<u64>,
    /// The workspace when it was fullest.
    pub workspace_fullest: Option<Filesystem>,
    /// `/tmp` when it was fullest.
    pub temporary_fullest: Option<Filesystem>,
    /// `/dev/shm` when it was fullest.
    pub shared_memory_fullest: Option<Filesystem>,
}

/// Why the program could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// The step that failed, such as `execve` or `write input file`.
    pub step: String,
    /// The error number, 0 if there is none.
    pub errno: i32,
    /// In words.
    pub message: String,
}

/// A regular file or a directory of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path relative to the workspace, as the bytes of the file system.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Apparent size, in bytes; exactly so many follow in chunks.
    pub size: u64,
    /// Whether the owner may execute it.
    pub executable: bool,
    /// Modification time, seconds since the epoch.
    pub modified_seconds: i64,
    /// Nanoseconds of the modification time.
    pub modified_nanoseconds: u32,
}

/// Bytes of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// At most [`crate::MAX_PAYLOAD_BYTES`].
    #[serde(with = "serde_bytes")]
    pub bytes: Vec<u8>,
}

/// Something that was left out of the artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// Path relative to the workspace, cut at the path limit.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Why.
    pub reason: SkipReason,
    /// Apparent size, in bytes.
    pub size: u64,
}

/// Why something in the workspace is no artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum SkipReason {
    /// A symbolic link: links are never followed nor kept.
    SymbolicLink,
    /// A FIFO, socket or device.
    SpecialFile,
    /// The limit on bytes would be exceeded.
    TotalBytes,
    /// The limit on files is reached.
    FileCount,
    /// The limit on entries looked at is reached; the rest of this directory was not seen.
    EntryCount,
    /// Too deep.
    Depth,
    /// The path is too long.
    PathLength,
    /// It cannot be opened or read.
    Unreadable,
    /// It changed while it was read.
    Changed,
}

/// The walk is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Regular files sent.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Further things skipped that were counted but not listed.
    pub skipped_unlisted: u64,
}
