//! What a sandbox really was: the settings that its engine shows when it is asked after the
//! creation, and what the supervisor found inside before anything foreign ran.
//!
//! Facts, never wishes: whoever fills these types in has read the values back (invariant 6). No path
//! of the host and no value that a program could have chosen is in them. They are part of receipts,
//! so that a changed field is another version of the receipt's schema.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Domain;

/// Both views of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Isolation {
    /// What the engine says it made.
    pub applied: Applied,
    /// What the supervisor found inside.
    pub found: Found,
}

/// A container as its engine shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Applied {
    /// The engine.
    pub engine: EngineFacts,
    /// The runtime.
    pub runtime: RuntimeFacts,
    /// `sha256:…` of the image that it was made from.
    pub image: String,
    /// `uid:gid` of everything in it.
    pub user: String,
    /// Whether it is privileged.
    pub privileged: bool,
    /// Capabilities added to the engine's default set.
    pub capabilities_added: Vec<String>,
    /// Capabilities dropped from it.
    pub capabilities_dropped: Vec<String>,
    /// Whether nothing in it can gain privileges by executing a file.
    pub no_new_privileges: bool,
    /// SHA-256 of the seccomp profile in force; `None` is the engine's default one.
    pub seccomp_profile_sha256: Option<String>,
    /// The AppArmor profile, where the host has AppArmor.
    pub apparmor_profile: Option<String>,
    /// Whether its root is read-only.
    pub read_only_root: bool,
    /// The engine's network; `none` is none.
    pub network: String,
    /// With whom it shares kernel namespaces.
    pub namespaces: Namespaces,
    /// Everything that is mounted in it besides the kernel's own file systems, by target.
    pub mounts: Vec<MountFacts>,
    /// Kernel paths that read as empty.
    pub masked_paths: PathList,
    /// Kernel paths that cannot be written to.
    pub read_only_paths: PathList,
    /// Names of kernel settings that were changed for it.
    pub sysctls: Vec<String>,
    /// Devices of the host in it.
    pub devices: usize,
    /// The kind of log that the engine keeps of its output.
    pub log: String,
    /// What it may use.
    pub limits: AppliedLimits,
}

/// An engine, as it described itself at most half a minute before the container was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineFacts {
    /// Such as `Docker Engine`.
    pub name: String,
    /// `None` if it did not say.
    pub version: Option<String>,
    /// The version of its host's kernel.
    pub kernel: Option<String>,
}

/// The runtime that a container runs under.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeFacts {
    /// Its name on the engine, such as `runc`.
    pub name: String,
    /// `None` if the engine does not tell.
    pub version: Option<String>,
}

/// Namespaces: `private`, `host`, or another one's; `engine default` where the engine's own setting
/// decides, which it does not show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Control groups.
    pub cgroup: String,
    /// System V IPC and POSIX message queues.
    pub ipc: String,
    /// Processes.
    pub pid: String,
    /// Users.
    pub user: String,
    /// Host name.
    pub uts: String,
}

/// One mount. What is behind it on the host is not said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountFacts {
    /// Where it is inside.
    pub target: String,
    /// `bind`, `volume` or `tmpfs`.
    pub kind: String,
    /// Whether it is read-only.
    pub read_only: bool,
    /// Further options, as the engine writes them.
    pub options: String,
}

/// A list of paths that is too long to repeat in every document.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathList {
    /// How many.
    pub count: usize,
    /// The hash over them in order of their bytes, see [`Domain::Paths`].
    pub sha256: String,
}

impl PathList {
    /// The list of these paths, in whatever order they come.
    #[must_use]
    pub fn of(mut paths: Vec<String>) -> Self {
        paths.sort_unstable();
        Self {
            count: paths.len(),
            sha256: Domain::Paths.digest(&paths),
        }
    }
}

/// Limits as the engine shows them; `None` is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedLimits {
    /// Memory, tmpfs included.
    pub memory_bytes: Option<i64>,
    /// Memory and swap together.
    pub memory_and_swap_bytes: Option<i64>,
    /// CPU time, in billionths of a CPU.
    pub nano_cpus: Option<i64>,
    /// Weight under contention.
    pub cpu_shares: Option<i64>,
    /// Processes and threads, the supervisor included.
    pub processes: Option<i64>,
    /// `/dev/shm`.
    pub shared_memory_bytes: Option<i64>,
    /// How much likelier than others the kernel ends it when the host runs out of memory.
    pub oom_score_adjustment: Option<i64>,
    /// Hard limits per process, by name.
    pub ulimits: BTreeMap<String, i64>,
}

/// A sandbox from the inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The version of the protocol that its supervisor speaks.
    pub protocol: u16,
    /// Real, effective and saved uid.
    pub uid: u32,
    /// Real, effective and saved gid.
    pub gid: u32,
    /// Further groups.
    pub supplementary_groups: Vec<u32>,
    /// The union of all capability sets, as 16 hexadecimal digits.
    pub capabilities: String,
    /// Whether privileges can be gained, if the kernel tells.
    pub no_new_privileges: Option<bool>,
    /// 2: a filter is on; `None` if the kernel does not tell.
    pub seccomp_mode: Option<u8>,
    /// Whether the root could not be written to.
    pub root_read_only: bool,
    /// Network interfaces.
    pub network_interfaces: Vec<String>,
    /// The data set as mounted; `None` if none is.
    pub dataset: Option<FoundDataset>,
    /// Size of the workspace.
    pub workspace_bytes: u64,
    /// Files and directories that fit into it.
    pub workspace_inodes: u64,
}

/// The data set from the inside. That it is the directory that was admitted is compared before the
/// program starts; its numbers on the host are nobody's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDataset {
    /// Whether its mount is read-only.
    pub read_only: bool,
    /// Whether the program's user can list it.
    pub readable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_paths_is_the_same_in_any_order_and_another_with_other_paths() {
        let list = |paths: &[&str]| PathList::of(paths.iter().map(|&p| p.to_owned()).collect());
        assert_eq!(list(&["/proc/b", "/proc/a"]), list(&["/proc/a", "/proc/b"]));
        assert_ne!(list(&["/proc/a"]).sha256, list(&["/proc/ab"]).sha256);
        assert_ne!(list(&[]).sha256, list(&[""]).sha256);
    }
}
