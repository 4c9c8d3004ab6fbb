//! The hardening as data, each part with its reason; engines translate it, tests attack it.
//! The rows are those of the security bar, security.md.

use crate::execution::runtime::has_own_kernel;
use crate::execution::spec::SandboxLimits;

/// The seccomp profile, in Docker's format: rows 11 to 20. Its reasons are in `images/seccomp.md`.
pub const SECCOMP_PROFILE: &str = include_str!("../../images/seccomp.json");

/// The neutral host name: row 54.
pub const HOST_NAME: &str = "sandbox";

/// Where the supervisor is found inside a sandbox.
pub const SUPERVISOR_DIRECTORY: &str = "/fumehood";

/// Files and directories of the kernel that read as empty: row 22. The list replaces the engine's
/// own, so it repeats that. `/etc/resolv.conf` would name the host's resolver: row 50.
pub const MASKED_PATHS: &[&str] = &[
    "/etc/resolv.conf",
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/version",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// Paths of the kernel that cannot be written to: row 23.
pub const READ_ONLY_PATHS: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Open files per process: row 40. Enough for process pools and many small files.
pub const OPEN_FILES: u64 = 1024;

/// Locked memory per process, in bytes: row 40.
pub const LOCKED_MEMORY_BYTES: i64 = 64 << 10;

/// How much likelier than others the kernel picks a sandbox when the host runs out of memory:
/// row 37.
pub const OOM_SCORE_ADJUSTMENT: i64 = 500;

/// Weight against other containers under contention: row 39.
pub const CPU_SHARES: i64 = 512;

/// Processes of the sandbox besides the program's: the supervisor.
const OWN_PROCESSES: u64 = 1;

/// Tasks of the host for each task of a sandbox with a kernel of its own, and for that kernel: row
/// 38. The control group counts those; fewer would end the sandbox as a whole, without a word.
const HOST_TASKS_PER_PROCESS: u64 = 8;
/// See [`HOST_TASKS_PER_PROCESS`].
const HOST_TASKS: u64 = 1024;

/// Largest size of `/tmp`, in MiB.
const TEMPORARY_MB: u64 = 256;

/// One inode per so many bytes of a tmpfs: row 26.
const BYTES_PER_INODE: u64 = 16 << 10;

/// Sizes that follow from the limits of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Memory, tmpfs included, in bytes: rows 35 and 36.
    pub memory_bytes: u64,
    /// The workspace.
    pub workspace: Tmpfs,
    /// `/tmp`.
    pub temporary: Tmpfs,
    /// `/dev/shm`, in bytes: row 33.
    pub shared_memory_bytes: u64,
    /// Processes and threads, the supervisor included: row 38.
    pub processes: u64,
}

/// A sized tmpfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tmpfs {
    /// In bytes.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

impl Tmpfs {
    fn of_mebibytes(mebibytes: u64) -> Self {
        let bytes = mebibytes << 20;
        Self {
            bytes,
            inodes: (bytes / BYTES_PER_INODE).clamp(1024, 1 << 20),
        }
    }
}

/// The sizes for `limits`.
#[must_use]
pub fn sizes(limits: &SandboxLimits) -> Sizes {
    Sizes {
        memory_bytes: limits.memory_mb << 20,
        workspace: Tmpfs::of_mebibytes(limits.workspace_mb),
        // Small beside the memory limit, so that filling it is ENOSPC and not a kill: row 36.
        temporary: Tmpfs::of_mebibytes((limits.memory_mb / 8).clamp(1, TEMPORARY_MB)),
        shared_memory_bytes: limits.shm_mb << 20,
        processes: limits.max_processes + OWN_PROCESSES,
    }
}

/// How many tasks the engine lets a sandbox have: row 38. Under a kernel of its own they are not
/// the program's, which is bounded by [`user_processes`] there.
#[must_use]
pub fn engine_tasks(runtime: Option<&str>, sizes: &Sizes) -> u64 {
    if has_own_kernel(runtime) {
        HOST_TASKS + HOST_TASKS_PER_PROCESS * sizes.processes
    } else {
        sizes.processes
    }
}

/// The limit on processes per user, where it is the sandbox's own kernel that counts: row 38. The
/// host's would count every sandbox with the same uid.
#[must_use]
pub fn user_processes(runtime: Option<&str>, sizes: &Sizes) -> Option<u64> {
    has_own_kernel(runtime).then_some(sizes.processes)
}
