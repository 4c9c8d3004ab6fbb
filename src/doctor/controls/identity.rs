//! Section A of the security bar: who the program is and what it is shown.

use super::findings::{SETTINGS, absent, all, broken, decide, differs, holds, some};
use super::{Area, Control, Finding, Mark};
use crate::doctor::facts::SandboxFacts;
use crate::sandbox::policy::SUPERVISOR_DIRECTORY;

/// Rows 1 to 10 and 24.
pub const TABLE: &[Control<SandboxFacts>] = &[
    Control {
        number: "look",
        mark: Mark::Mandatory,
        area: Area::Identity,
        title: "the supervisor finds the same",
        expected: "nothing else than was asked for",
        remedy: SETTINGS,
        judge: |facts| match &facts.supervisor {
            None => holds("it does"),
            Some(refusal) => broken(refusal.clone()),
        },
    },
    Control {
        number: "tier",
        mark: Mark::Mandatory,
        area: Area::Identity,
        title: "the runtime is what it is called",
        expected: "the one asked for; runsc has another kernel",
        remedy: "Look at the runtimes in the engine's configuration: a name leads to another program",
        judge: tier,
    },
    Control {
        number: "1",
        mark: Mark::Mandatory,
        area: Area::Identity,
        title: "fixed uid and gid, not root",
        expected: "the uid that was asked for, setuid(0) refused",
        remedy: SETTINGS,
        judge: fixed_uid,
    },
    Control {
        number: "2",
        mark: Mark::Strong,
        area: Area::Identity,
        title: "uid of its own, neighbours out of reach",
        expected: "two sandboxes have two uids and share no socket",
        remedy: SETTINGS,
        judge: own_uid,
    },
    Control {
        number: "3",
        mark: Mark::Mandatory,
        area: Area::Identity,
        title: "no supplementary groups",
        expected: "none but the gid",
        remedy: SETTINGS,
        judge: |facts| {
            let groups = &facts.seen.identity.groups;
            decide(
                groups.iter().all(|&group| group == facts.uid),
                format!("{groups:?}"),
            )
        },
    },
    Control {
        number: "4",
        mark: Mark::Mandatory,
        area: Area::Identity,
        title: "no capabilities",
        expected: "all five sets are empty",
        remedy: SETTINGS,
        judge: capabilities,
    },
    Control {
        number: "5",
        mark: Mark::Mandatory,
        area: Area::Identity,
        title: "no new privileges",
        expected: "set, so that set-id files give nothing",
        remedy: SETTINGS,
        judge: |facts| {
            let set = facts.seen.identity.no_new_privileges;
            decide(set == 1, format!("PR_GET_NO_NEW_PRIVS is {set}"))
        },
    },
    Control {
        number: "6",
        mark: Mark::Mandatory,
        area: Area::Identity,
        title: "no devices",
        expected: "/dev has the harmless ones, none can be made",
        remedy: SETTINGS,
        judge: devices,
    },
    Control {
        number: "7",
        mark: Mark::Mandatory,
        area: Area::Identity,
        title: "no namespace of the host",
        expected: "own processes only, no interface but lo",
        remedy: SETTINGS,
        judge: namespaces,
    },
    Control {
        number: "8",
        mark: Mark::Mandatory,
        area: Area::Identity,
        title: "private view of control groups",
        expected: "/proc/self/cgroup shows /",
        remedy: SETTINGS,
        judge: |facts| {
            let groups = &facts.seen.identity.cgroups;
            if groups.is_empty() && facts.has_own_kernel() {
                return differs("its own kernel has none");
            }
            let is_private = !groups.is_empty() && groups.iter().all(|path| path == "/");
            decide(is_private, some(groups))
        },
    },
    Control {
        number: "9",
        mark: Mark::Strong,
        area: Area::Identity,
        title: "user namespace",
        expected: "uids inside are others outside",
        remedy: "Set userns-remap in the engine's configuration, or use a rootless engine",
        judge: |facts| {
            let map = &facts.seen.identity.uid_map;
            if map.starts_with('E') || map == "0 0 4294967295" || facts.has_own_kernel() {
                absent("user namespaces are off")
            } else {
                holds(map.clone())
            }
        },
    },
    Control {
        number: "10",
        mark: Mark::Strong,
        area: Area::Identity,
        title: "kernel of its own",
        expected: "the engine says runsc",
        remedy: "Install gVisor and set execution.runtime = \"runsc\"",
        judge: |facts| {
            // The engine's word alone: a sign inside could be forged.
            let runtime = &facts.applied.runtime;
            if facts.has_own_kernel() {
                holds(runtime.clone())
            } else {
                absent(format!("{runtime} shares the host's kernel"))
            }
        },
    },
    Control {
        number: "24",
        mark: Mark::Mandatory,
        area: Area::Identity,
        title: "no terminal",
        expected: "no stream is one, input ends at once",
        remedy: SETTINGS,
        judge: |facts| {
            let identity = &facts.seen.identity;
            let none = identity.terminals == [false; 3];
            let conditions = [
                (none, "a stream is a terminal".to_owned()),
                (
                    identity.input == "EOF",
                    format!("input() gave {}", identity.input),
                ),
            ];
            all(&conditions, "none, EOF")
        },
    },
];

/// Device files that every program may have.
const DEVICES: [&str; 16] = [
    "console", "core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr",
    "stdin", "stdout", "tty", "urandom", "zero",
];

/// Further ones that are the sandbox's own kernel's.
pub(super) const DEVICES_OF_OWN_KERNEL: [&str; 2] = ["fuse", "net"];

/// A sign inside can be forged by a program that wants to seem safer than it is; a runtime that is
/// set up wrongly does not forge any.
fn tier(facts: &SandboxFacts) -> Finding {
    let (made_by, kernel) = (&facts.applied.runtime, &facts.seen.identity.kernel);
    let conditions = [
        (
            made_by == &facts.runtime,
            format!("asked for {}, made by {made_by}", facts.runtime),
        ),
        (
            !facts.has_own_kernel() || kernel != &facts.host_kernel,
            format!("{made_by} has the host's kernel ({kernel})"),
        ),
    ];
    all(&conditions, made_by.clone())
}

fn fixed_uid(facts: &SandboxFacts) -> Finding {
    let identity = &facts.seen.identity;
    let one = |ids: &[u32]| ids.len() == 3 && ids.iter().all(|&id| id == facts.uid);
    let conditions = [
        (
            one(&identity.uids) && one(&identity.gids),
            format!("uids {:?}, gids {:?}", identity.uids, identity.gids),
        ),
        (
            ![0, 65_534].contains(&facts.uid),
            format!("uid {}", facts.uid),
        ),
        (
            identity.become_root == "EPERM",
            format!("setuid(0): {}", identity.become_root),
        ),
    ];
    all(&conditions, format!("{}, setuid(0): EPERM", facts.uid))
}

fn own_uid(facts: &SandboxFacts) -> Finding {
    let reach = &facts.seen.network.neighbour;
    match facts.endurance.uid {
        None => broken("the neighbour did not say who it is"),
        Some(other) => decide(
            other != facts.uid && reach != "ok",
            format!("{} and {other}, connecting: {reach}", facts.uid),
        ),
    }
}

fn capabilities(facts: &SandboxFacts) -> Finding {
    let sets = &facts.seen.identity.capabilities;
    let held: Vec<String> = sets
        .iter()
        .filter(|(_, value)| u64::from_str_radix(value, 16) != Ok(0))
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    // gVisor does not list the ambient set.
    let least = if facts.has_own_kernel() { 4 } else { 5 };
    if sets.len() < least {
        broken(format!("only {} sets are told", sets.len()))
    } else if held.is_empty() {
        holds("empty")
    } else {
        broken(some(&held))
    }
}

fn devices(facts: &SandboxFacts) -> Finding {
    let own_kernel = facts.has_own_kernel();
    let identity = &facts.seen.identity;
    let is_known = |name: &str| {
        DEVICES.contains(&name) || (own_kernel && DEVICES_OF_OWN_KERNEL.contains(&name))
    };
    let foreign: Vec<&String> = identity
        .devices
        .iter()
        .filter(|name| !is_known(name))
        .collect();
    let made = &identity.block_device;
    if !foreign.is_empty() {
        broken(format!("/dev has {}", some(&foreign)))
    } else if made == "EPERM" {
        holds("making one: EPERM")
    } else if own_kernel && made.starts_with("made") && !made.ends_with("ok") {
        differs(made.clone())
    } else {
        broken(format!("a block device: {made}"))
    }
}

fn namespaces(facts: &SandboxFacts) -> Finding {
    let identity = &facts.seen.identity;
    let interfaces = &facts.seen.network.interfaces;
    let conditions = [
        (
            identity.processes == [1, identity.own_process],
            format!("processes {:?}", identity.processes),
        ),
        (
            identity.first_command == format!("{SUPERVISOR_DIRECTORY}/supervisor"),
            format!("process 1 is {}", identity.first_command),
        ),
        (
            interfaces == &["lo"],
            format!("interfaces {}", some(interfaces)),
        ),
    ];
    all(&conditions, "two processes, lo")
}
