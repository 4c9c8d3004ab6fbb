//! Section B of the security bar: what the kernel answers.

use super::findings::{
    SETTINGS, absent, all, answers, broken, decide, differs, holds, others, some, summary,
};
use super::{Area, Control, Finding, Mark};
use crate::digest;
use crate::doctor::facts::{SandboxFacts, Surface};
use crate::sandbox::policy::SECCOMP_PROFILE;

const PROFILE: &str = "The engine did not load images/seccomp.json: look for its warnings about seccomp, upgrade libseccomp and runc";

/// Rows 11 to 20, 22 and 23, and row 21.
pub const TABLE: &[Control<SandboxFacts>] = &[
    Control {
        number: "11",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "own seccomp profile",
        expected: "a filter is on, and it is ours",
        remedy: PROFILE,
        judge: profile,
    },
    Control {
        number: "12",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "no io_uring",
        expected: "EPERM",
        remedy: PROFILE,
        judge: |facts| calls(facts, "io_uring", &["io_uring_setup", "io_setup"]),
    },
    Control {
        number: "13",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "no new namespaces",
        expected: "EPERM, clone3 ENOSYS, threads work",
        remedy: PROFILE,
        judge: namespaces,
    },
    Control {
        number: "14",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "no key rings",
        expected: "EPERM",
        remedy: PROFILE,
        judge: |facts| calls(facts, "keys", &[]),
    },
    Control {
        number: "15",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "no bpf, perf, userfaultfd, fanotify",
        expected: "EPERM",
        remedy: PROFILE,
        judge: |facts| calls(facts, "observation", &[]),
    },
    Control {
        number: "16",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "no reach into other processes",
        expected: "EPERM",
        remedy: PROFILE,
        judge: |facts| {
            let inside = [
                "ptrace(TRACEME)",
                "ptrace(ATTACH 1)",
                "process_vm_readv",
                "process_vm_writev",
            ];
            calls(facts, "other processes", &inside)
        },
    },
    Control {
        number: "17",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "no mounting, no file handles",
        expected: "EPERM",
        remedy: PROFILE,
        judge: |facts| calls(facts, "mounts", &[]),
    },
    Control {
        number: "18",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "no socket family but AF_UNIX",
        expected: "EPERM, socketpair works",
        remedy: PROFILE,
        judge: sockets,
    },
    Control {
        number: "19",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "no other ABI",
        expected: "i386 and x32 calls are ended or unknown",
        remedy: PROFILE,
        judge: |facts| {
            let kernel = &facts.seen.kernel;
            let seen = format!("i386 {}, x32 {}", kernel.other_abi, kernel.x32);
            // SIGSEGV: the kernel itself has no such entry.
            let is_closed =
                |answer: &str| ["SIGSYS", "ENOSYS", "SIGSEGV", "not here"].contains(&answer);
            let closed = is_closed(&kernel.other_abi) && is_closed(&kernel.x32);
            if !closed && facts.has_own_kernel() {
                differs(seen)
            } else {
                decide(closed, seen)
            }
        },
    },
    Control {
        number: "20",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "nothing that concerns the machine",
        expected: "EPERM",
        remedy: PROFILE,
        judge: |facts| {
            let inside = ["adjtimex", "mbind", "set_mempolicy", "syslog", "vmsplice"];
            calls(facts, "machine", &inside)
        },
    },
    Control {
        number: "surface",
        mark: Mark::Strong,
        area: Area::Kernel,
        title: "calls refused of all there are",
        expected: "at least a third",
        remedy: PROFILE,
        judge: |facts| match facts.seen.kernel.surface {
            None => absent("not tried"),
            Some(Surface { tried, refused }) => {
                let seen = format!("{refused} of {tried}");
                if facts.has_own_kernel() {
                    differs(format!("{seen}, by its own kernel"))
                } else {
                    decide(refused >= tried.div_ceil(3), seen)
                }
            }
        },
    },
    Control {
        number: "21",
        mark: Mark::Strong,
        area: Area::Kernel,
        title: "Linux security module",
        expected: "confined",
        remedy: "Load AppArmor's docker-default profile, or give the engine SELinux labels",
        judge: module,
    },
    Control {
        number: "22",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "masked paths of the kernel",
        expected: "empty or not there",
        remedy: SETTINGS,
        judge: masked,
    },
    Control {
        number: "23",
        mark: Mark::Mandatory,
        area: Area::Kernel,
        title: "read-only /proc/sys and /sys",
        expected: "mounted read-only, writing refused",
        remedy: SETTINGS,
        judge: read_only,
    },
];

/// The calls of a row. `inside` names those that a sandbox's own kernel does for the program, as
/// measured with gVisor (security.md, appendix); what else it does would be news, and a failure.
fn calls(facts: &SandboxFacts, row: &str, inside: &[&str]) -> Finding {
    let Some(tried) = facts.seen.kernel.calls.get(row) else {
        return broken("nothing was tried");
    };
    if !facts.has_own_kernel() {
        return answers(tried, &["EPERM"]);
    }
    let news = others(tried, |name, answer| {
        answer != "ok" || inside.contains(&name)
    });
    if !news.is_empty() {
        broken(some(&news))
    } else if tried.values().all(|answer| answer == "EPERM") {
        holds(summary(tried))
    } else {
        differs(format!("by its own kernel: {}", summary(tried)))
    }
}

/// The seccomp profile, as receipts name it.
#[must_use]
pub fn profile_hash() -> String {
    digest::of_content(SECCOMP_PROFILE.as_bytes())
}

fn profile(facts: &SandboxFacts) -> Finding {
    let mode = facts.seen.kernel.seccomp.as_deref();
    let is_ours = facts.applied.seccomp_profile.as_deref() == Some(SECCOMP_PROFILE);
    match (mode, is_ours) {
        (Some("2"), true) => holds(format!("a filter, ours (sha256 {:.12})", profile_hash())),
        (_, true) if facts.has_own_kernel() => differs("its own kernel filters, not the host's"),
        (mode, _) => broken(format!(
            "mode {}, ours: {is_ours}",
            mode.unwrap_or("not told")
        )),
    }
}

fn namespaces(facts: &SandboxFacts) -> Finding {
    let kernel = &facts.seen.kernel;
    if kernel.thread != "ok" {
        return broken(format!("a thread {}", kernel.thread));
    }
    if facts.has_own_kernel() {
        let inside = [
            "clone(NEWUSER)",
            "unshare(NEWNS)",
            "unshare(NEWPID)",
            "unshare(NEWUSER)",
        ];
        return calls(facts, "namespaces", &inside);
    }
    let Some(tried) = kernel.calls.get("namespaces") else {
        return broken("nothing was tried");
    };
    let unaccepted = others(tried, |name, answer| {
        answer == if name == "clone3" { "ENOSYS" } else { "EPERM" }
    });
    decide(
        unaccepted.is_empty() && !tried.is_empty(),
        if unaccepted.is_empty() {
            summary(tried)
        } else {
            some(&unaccepted)
        },
    )
}

fn sockets(facts: &SandboxFacts) -> Finding {
    let kernel = &facts.seen.kernel;
    if kernel.socket_pair != "ok" {
        return broken(format!("socketpair: {}", kernel.socket_pair));
    }
    if !facts.has_own_kernel() {
        return answers(&kernel.sockets, &["EPERM"]);
    }
    // Its own network stack has no wire; raw packets would be news.
    match kernel.sockets.get("PACKET").map(String::as_str) {
        Some("ok") | None => broken("AF_PACKET: ok, or not tried"),
        Some(_) => differs(format!("by its own kernel: {}", summary(&kernel.sockets))),
    }
}

fn module(facts: &SandboxFacts) -> Finding {
    let confinement = facts.seen.identity.lsm.as_str();
    let by_engine = facts.applied.apparmor_profile.as_str();
    if !facts.host_has_lsm {
        absent("no LSM on this host that confines programs")
    } else if facts.has_own_kernel() && !["", "unconfined"].contains(&by_engine) {
        holds(format!("{by_engine}, by the engine's word"))
    } else {
        let is_error = confinement.starts_with('E') && confinement.len() > 3;
        decide(
            !is_error && !["", "unconfined", "kernel"].contains(&confinement),
            if confinement.is_empty() {
                "nothing is told"
            } else {
                confinement
            },
        )
    }
}

fn masked(facts: &SandboxFacts) -> Finding {
    let kernel = &facts.seen.kernel;
    let shown = others(&kernel.masked, |_, answer| {
        ["0", "ENOENT", "EACCES"].contains(&answer)
    });
    let files: Vec<String> = kernel
        .masked_directories
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(path, count)| format!("{path}: {count} files"))
        .collect();
    // The sandbox's own kernel tells about itself.
    let own_kernel = facts.has_own_kernel();
    let is_its_own = |line: &String| {
        ["/proc/cmdline", "/proc/version"]
            .iter()
            .any(|path| line.starts_with(path))
    };
    if kernel.masked.is_empty() {
        broken("nothing was tried")
    } else if shown.is_empty() && files.is_empty() {
        holds(summary(&kernel.masked))
    } else if own_kernel && files.is_empty() && shown.iter().all(is_its_own) {
        differs("its own kernel tells about itself")
    } else {
        broken(some(&[shown, files].concat()))
    }
}

fn read_only(facts: &SandboxFacts) -> Finding {
    let tried = answers(
        &facts.seen.kernel.writes,
        &["EACCES", "EROFS", "EPERM", "ENOENT"],
    );
    if facts.has_own_kernel() {
        return tried;
    }
    // Not being root is enough to be refused, so the mounts have to be looked at as well.
    let mounts = &facts.seen.files.mounts;
    let is_read_only = |target: &str| {
        let here = || mounts.iter().filter(|mount| mount.target == target);
        here().next().is_some() && here().all(|mount| mount.has("ro"))
    };
    let groups_are_read_only = mounts
        .iter()
        .filter(|mount| mount.kind.starts_with("cgroup"))
        .all(|mount| mount.has("ro"));
    let conditions = [
        (
            groups_are_read_only,
            "a control group is not mounted read-only".to_owned(),
        ),
        (
            is_read_only("/proc/sys"),
            "/proc/sys is not mounted read-only".to_owned(),
        ),
        (
            is_read_only("/sys"),
            "/sys is not mounted read-only".to_owned(),
        ),
        (
            tried.outcome == super::Outcome::Holds,
            format!("writing: {}", tried.seen),
        ),
    ];
    all(&conditions, tried.seen.clone())
}
