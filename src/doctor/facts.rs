//! What was seen: of a sandbox from inside and outside, of the host, of the engine. Plain data,
//! without a judgement; a fact that is missing is missing, never the harmless value.
//!
//! The probe is a program of ours, but it ran in a sandbox: its words are read with a cap and by a
//! schema, and what only the engine can know is asked of the engine.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::execution::runtime::has_own_kernel;
use crate::sandbox::policy::Sizes;
use crate::sandbox::survey::{AppliedSettings, EngineFacts};

/// Answers by the name of what was tried: `ok`, or the name of an error.
pub type Answers = BTreeMap<String, String>;

/// Everything about the sandboxes of one runtime.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxFacts {
    /// The runtime that was asked for.
    pub runtime: String,
    /// The uid that was asked for.
    pub uid: u32,
    /// The sizes that were asked for.
    pub sizes: Sizes,
    /// The image's id that was asked for.
    pub image: String,
    /// Billionths of a CPU that were asked for.
    pub nano_cpus: u64,
    /// Names of the variables that a program gets.
    pub environment: Vec<String>,
    /// The host's name, which must not be seen inside.
    pub host_name: String,
    /// Release of the kernel that the engine runs on, as it says.
    pub host_kernel: String,
    /// Whether the host has Linux security modules that confine sandboxes.
    pub host_has_lsm: bool,
    /// What the supervisor finds otherwise than it was asked for. It is ours, whatever the image
    /// is, and knows less than the probe.
    pub supervisor: Option<String>,
    /// What the probe saw.
    pub seen: Seen,
    /// What became of the program that wanted to outlive its limits.
    pub endurance: Endurance,
    /// What became of the one that took more memory than there is.
    pub memory: MemoryEnd,
    /// What came out of the sandbox besides output; `None` if it ended before.
    pub collected: Option<Collected>,
    /// Whether the directory at `/data` was the one that was checked, by device and inode.
    pub dataset_is_the_checked_one: bool,
    /// Whether the data set was the same afterwards.
    pub dataset_unchanged: bool,
    /// The engine's word.
    pub applied: AppliedSettings,
}

impl SandboxFacts {
    /// Whether the sandbox has a kernel of its own, whose answers are its own (row 10).
    #[must_use]
    pub fn has_own_kernel(&self) -> bool {
        has_own_kernel(Some(&self.runtime))
    }
}

/// What the probe (`images/doctor/probe.py`) prints.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[expect(
    missing_docs,
    reason = "named as in images/doctor/probe.py, where each is made"
)]
pub struct Seen {
    pub network: Network,
    pub identity: Identity,
    pub kernel: Kernel,
    pub files: Files,
    pub resources: Resources,
}

/// `images/doctor/identity.py`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[expect(
    missing_docs,
    reason = "named as in images/doctor/identity.py, where each is made"
)]
pub struct Identity {
    pub descriptors: Vec<u64>,
    pub uids: Vec<u32>,
    pub gids: Vec<u32>,
    pub groups: Vec<u32>,
    pub capabilities: Answers,
    pub no_new_privileges: i64,
    pub become_root: String,
    pub devices: Vec<String>,
    pub block_device: String,
    pub processes: Vec<u64>,
    pub own_process: u64,
    pub first_command: String,
    pub first_environment: NamesOrError,
    pub cgroups: Vec<String>,
    pub uid_map: String,
    pub lsm: String,
    pub terminals: Vec<bool>,
    pub input: String,
    pub host_name: String,
    pub kernel: String,
    pub hosts: String,
    pub working_directory: String,
    pub environment: Vec<String>,
}

/// A list, or why there is none.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum NamesOrError {
    /// The name of the error.
    Error(String),
    /// The list.
    Names(Vec<String>),
}

/// `images/doctor/kernel.py`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[expect(
    missing_docs,
    reason = "named as in images/doctor/kernel.py, where each is made"
)]
pub struct Kernel {
    pub seccomp: Option<String>,
    pub calls: BTreeMap<String, Answers>,
    pub sockets: Answers,
    pub socket_pair: String,
    pub thread: String,
    pub other_abi: String,
    pub x32: String,
    pub masked: Answers,
    pub masked_directories: BTreeMap<String, u64>,
    pub writes: Answers,
    pub surface: Option<Surface>,
}

/// How many of all system calls are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Surface {
    /// Calls tried.
    pub tried: u64,
    /// Calls refused.
    pub refused: u64,
}

/// `images/doctor/files.py`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[expect(
    missing_docs,
    reason = "named as in images/doctor/files.py, where each is made"
)]
pub struct Files {
    pub root: Answers,
    pub mounts: Vec<MountSeen>,
    pub temporary: BTreeMap<String, Temporary>,
    pub workspace: WorkspaceSeen,
    pub dataset: Answers,
    pub set_id_files: Vec<String>,
    pub canary: Vec<String>,
    pub sockets: Vec<String>,
}

/// A mount as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MountSeen {
    /// Where.
    pub target: String,
    /// With which options.
    pub options: Vec<String>,
    /// Of which kind.
    pub kind: String,
}

impl MountSeen {
    /// Whether it has this option.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|own| own == option)
    }
}

/// A place to write to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Temporary {
    /// Its size.
    pub bytes: u64,
    /// Its inodes.
    pub inodes: u64,
    /// How filling it ended, and the bytes until then.
    pub fill: (String, u64),
    /// How making empty files ended, and how many until then.
    pub files: (String, u64),
    /// How running a file from it ended.
    pub execute: String,
}

/// The workspace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WorkspaceSeen {
    /// In Python's octal.
    pub mode: String,
    /// Whether the program's uid owns it.
    pub owned: bool,
    /// How writing to it ended.
    pub write: String,
}

/// `images/doctor/resources.py`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[expect(
    missing_docs,
    reason = "named as in images/doctor/resources.py, where each is made"
)]
pub struct Resources {
    pub limits: BTreeMap<String, (i64, i64)>,
    pub open_files: (String, u64),
    pub processes: (String, u64),
    pub sparse: String,
    pub core_files: Vec<String>,
    pub oom_score: String,
    pub first_oom_score: String,
    pub lower_oom_score: String,
    pub nice: String,
    pub group: BTreeMap<String, Option<String>>,
}

/// `images/doctor/network.py`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[expect(
    missing_docs,
    reason = "named as in images/doctor/network.py, where each is made"
)]
pub struct Network {
    pub neighbour: String,
    pub connections: Answers,
    pub connecting_milliseconds: u64,
    pub interfaces: Vec<String>,
    pub names: Answers,
    pub resolver: Vec<String>,
    pub unix_sockets: Vec<String>,
    pub cluster: Vec<String>,
}

/// What became of a program that ignores signals, leaves a descendant and floods its output, next
/// to which the probe ran: rows 2, 42 and 44.
#[derive(Debug, Clone, PartialEq)]
pub struct Endurance {
    /// Its uid, as it says.
    pub uid: Option<u32>,
    /// Whether it was ended at its deadline.
    pub ended_at_deadline: bool,
    /// From its start to its end, in seconds.
    pub wall_seconds: f64,
    /// Its limit, in seconds.
    pub limit_seconds: f64,
    /// Processes that were left.
    pub survivors: u32,
    /// Bytes that it wrote, as they were counted.
    pub written_bytes: u64,
    /// Bytes that reached the daemon.
    pub forwarded_bytes: u64,
    /// The cap on those.
    pub cap_bytes: u64,
    /// What it wrote at least.
    pub flood_bytes: u64,
}

/// What became of taking twice the memory limit: row 35.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemoryEnd {
    /// The child that took it ended like this, and the sandbox went on: `SIGKILL`, or `42` if it
    /// got all of it.
    Child(String),
    /// The sandbox ended as a whole.
    Sandbox {
        /// Whether the engine saw the kernel kill for memory.
        seen_by_engine: bool,
    },
}

/// What came out of a sandbox: rows 56 to 58.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Processes left when it was collected.
    pub survivors: u32,
    /// Regular files, by path.
    pub files: Vec<String>,
    /// What was left out: path, and the reason's name.
    pub skipped: Answers,
    /// Bytes of all files.
    pub bytes: u64,
    /// The cap on those.
    pub cap_bytes: u64,
}

/// Everything about the host and the engine.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineFacts {
    /// What the host's own files say.
    pub host: HostFacts,
    /// The engine's word.
    pub engine: EngineFacts,
}

/// What the host's own files say. `None`: this process cannot read it, or it is not there.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HostFacts {
    /// The host's name.
    pub name: String,
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Kibibytes of swap.
    pub swap_kib: Option<u64>,
    /// `/sys/kernel/mm/ksm/run`
    pub ksm: Option<String>,
    /// `/sys/devices/system/cpu/smt/active`
    pub smt: Option<String>,
    /// `/sys/kernel/security/lsm`
    pub lsm: Option<String>,
    /// `/proc/sys/…` by its dotted name.
    pub settings: BTreeMap<&'static str, Option<String>>,
    /// The engine's socket.
    pub socket: Option<SocketFacts>,
    /// Addresses at which the engine can be reached without its socket.
    pub engine_addresses: Vec<String>,
    /// Capabilities of this process.
    pub capabilities: Option<u64>,
    /// Uid of this process.
    pub uid: u32,
    /// The engine's configuration file, if it is there.
    pub engine_config: Option<serde_json::Value>,
    /// Whether the engine's data is on another file system than `/`.
    pub data_is_apart: Option<bool>,
}

/// The engine's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketFacts {
    /// Its permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}
