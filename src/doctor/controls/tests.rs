//! Each control: it holds where everything does, and one fact that is otherwise breaks it and no
//! other.

use super::testing::{machine, runc, runsc};
use super::*;
use crate::doctor::facts::{MemoryEnd, NamesOrError, Surface};

type Change = fn(&mut SandboxFacts);

/// The rows with this verdict.
fn rows(scores: &[Score], verdict: Verdict) -> Vec<&'static str> {
    let those = scores.iter().filter(|score| score.verdict == verdict);
    those.map(|score| score.number).collect()
}

fn broken(change: impl FnOnce(&mut SandboxFacts)) -> (Vec<&'static str>, Vec<&'static str>) {
    let mut facts = runc();
    change(&mut facts);
    let scores = judge_sandbox(&facts);
    (
        rows(&scores, Verdict::Fail),
        rows(&scores, Verdict::Warning),
    )
}

#[test]
fn every_control_has_words_and_every_row_is_there_once() {
    let controls = of_sandboxes();
    let mut numbers: Vec<&str> = controls.iter().map(|control| control.number).collect();
    numbers.sort_unstable();
    let mut unique = numbers.clone();
    unique.dedup();
    assert_eq!(numbers, unique);
    for control in controls {
        for words in [control.title, control.expected, control.remedy] {
            assert!(!words.is_empty() && !words.ends_with('.'), "{control:?}");
        }
    }
}

#[test]
fn where_everything_holds_nothing_fails_and_what_the_host_lacks_is_not_available() {
    let scores = judge_sandbox(&runc());
    assert_eq!(rows(&scores, Verdict::Fail), Vec::<&str>::new());
    assert_eq!(rows(&scores, Verdict::Warning), Vec::<&str>::new());
    assert_eq!(rows(&scores, Verdict::Differs), Vec::<&str>::new());
    assert_eq!(
        rows(&scores, Verdict::NotAvailable),
        ["9", "10", "41", "43"]
    );
    assert!(scores.iter().all(|score| score.remedy.is_none()));
}

#[test]
fn gvisor_differs_where_it_was_measured_to_and_fails_nowhere() {
    let scores = judge_sandbox(&runsc());
    assert_eq!(
        rows(&scores, Verdict::Fail),
        Vec::<&str>::new(),
        "{scores:#?}"
    );
    let differing = [
        "6", "8", "11", "12", "13", "14", "15", "16", "17", "18", "20", "surface", "22", "29",
        "35", "37", "53",
    ];
    assert_eq!(rows(&scores, Verdict::Differs), differing);
    assert!(rows(&scores, Verdict::Pass).contains(&"10"));
}

#[test]
fn one_fact_that_is_otherwise_breaks_its_own_control() {
    let cases: [(&str, Change); 55] = [
        ("look", |f| f.supervisor = Some("seccomp".to_owned())),
        ("tier", |f| f.applied.runtime = "crun".to_owned()),
        ("1", |f| f.seen.identity.uids = vec![0; 3]),
        ("1", |f| f.seen.identity.become_root = "ok".to_owned()),
        ("3", |f| f.seen.identity.groups.push(0)),
        ("4", |f| {
            let sets = &mut f.seen.identity.capabilities;
            sets.insert("CapBnd".to_owned(), "0000000000002000".to_owned());
        }),
        ("4", |f| f.seen.identity.capabilities.clear()),
        ("5", |f| f.seen.identity.no_new_privileges = 0),
        ("6", |f| f.seen.identity.devices.push("sda".to_owned())),
        ("6", |f| {
            f.seen.identity.block_device = "made, opening it: ok".to_owned()
        }),
        ("7", |f| f.seen.identity.processes.push(99)),
        ("7", |f| {
            f.seen.identity.first_command = "/sbin/init".to_owned()
        }),
        ("8", |f| {
            f.seen.identity.cgroups = vec!["/docker/abc".to_owned()]
        }),
        ("11", |f| f.seen.kernel.seccomp = Some("0".to_owned())),
        ("11", |f| f.applied.seccomp_profile = Some("{}".to_owned())),
        ("12", |f| answer(f, "io_uring", "io_uring_setup", "EFAULT")),
        ("13", |f| answer(f, "namespaces", "clone3", "EINVAL")),
        ("13", |f| f.seen.kernel.thread = "did not run".to_owned()),
        ("14", |f| answer(f, "keys", "keyctl", "ok")),
        ("15", |f| answer(f, "observation", "bpf", "EINVAL")),
        ("16", |f| {
            answer(f, "other processes", "ptrace(TRACEME)", "ok")
        }),
        ("17", |f| answer(f, "mounts", "mount", "EFAULT")),
        ("18", |f| {
            f.seen
                .kernel
                .sockets
                .insert("ALG".to_owned(), "EAFNOSUPPORT".to_owned());
        }),
        ("19", |f| f.seen.kernel.other_abi = "ok".to_owned()),
        ("20", |f| {
            f.seen.kernel.calls.remove("machine");
        }),
        ("22", |f| {
            f.seen
                .kernel
                .masked
                .insert("/proc/kallsyms".to_owned(), "65536".to_owned());
        }),
        ("23", |f| {
            f.seen
                .files
                .mounts
                .retain(|mount| mount.target != "/proc/sys")
        }),
        ("24", |f| f.seen.identity.terminals[1] = true),
        ("25", |f| {
            f.seen
                .files
                .root
                .insert("/x".to_owned(), "EACCES".to_owned());
        }),
        ("26", |f| place(f, "/tmp").execute = "ran".to_owned()),
        ("27", |f| f.seen.files.workspace.mode = "0o755".to_owned()),
        ("28", |f| f.dataset_unchanged = false),
        ("28", |f| f.seen.files.dataset.clear()),
        ("28", |f| {
            f.seen
                .files
                .dataset
                .insert("append".to_owned(), "ok".to_owned());
        }),
        ("29", |f| f.dataset_is_the_checked_one = false),
        ("30", |f| f.seen.files.mounts[4].target = "/mnt".to_owned()),
        ("31", |f| f.applied.image = "sha256:2".to_owned()),
        ("33", |f| place(f, "/dev/shm").bytes += 1 << 20),
        ("35", |f| f.memory = MemoryEnd::Child("42".to_owned())),
        ("36", |f| {
            f.sizes.memory_bytes = 32 << 20;
            f.seen.resources.group.clear();
        }),
        ("37", |f| f.seen.resources.oom_score = "0".to_owned()),
        ("37", |f| f.seen.resources.first_oom_score = "0".to_owned()),
        ("38", |f| {
            f.seen.resources.processes = ("ok".to_owned(), 147)
        }),
        ("39", |f| {
            let quota = Some("max 100000".to_owned());
            f.seen.resources.group.insert("cpu".to_owned(), quota);
        }),
        ("40", |f| {
            f.seen.resources.limits.insert("CORE".to_owned(), (-1, -1));
        }),
        ("42", |f| f.endurance.survivors = 1),
        ("44", |f| f.endurance.forwarded_bytes = 1 << 20),
        ("50", |f| {
            f.seen
                .network
                .resolver
                .push("nameserver 10.0.0.2".to_owned())
        }),
        ("52", |f| {
            f.seen.network.cluster.push("KUBERNETES_PORT".to_owned())
        }),
        ("53", |f| {
            f.seen.identity.environment.push("SECRET".to_owned())
        }),
        ("54", |f| f.seen.identity.hosts.push_str("\n10.0.0.7 host7")),
        ("55", |f| f.seen.identity.descriptors.push(7)),
        ("58", |f| {
            let collected = f.collected.as_mut().unwrap();
            collected.skipped.remove("out/large");
        }),
        ("64", |f| {
            f.seen.files.sockets.push("/var/run/docker.sock".to_owned())
        }),
        ("77", |f| f.seen.files.canary.push("/mnt/canary".to_owned())),
    ];
    for (row, change) in cases {
        let (failing, _) = broken(change);
        assert_eq!(failing, [row]);
    }
}

#[test]
fn what_the_engine_says_counts_where_nothing_else_can_tell() {
    let cases: [(&str, Change); 7] = [
        ("45", |f| f.applied.log_driver = "json-file".to_owned()),
        ("46", |f| f.applied.restart_policy = "always".to_owned()),
        ("46", |f| f.applied.auto_remove = true),
        ("47", |f| f.applied.health_check = Vec::new()),
        ("47", |f| f.applied.entrypoint = vec!["/bin/sh".to_owned()]),
        ("48", |f| f.applied.network_mode = "bridge".to_owned()),
        ("51", |f| f.applied.published = 1),
    ];
    for (row, change) in cases {
        assert_eq!(broken(change).0, [row]);
    }
}

#[test]
fn facts_that_concern_several_rows_break_all_of_them() {
    let (failing, _) = broken(|f| f.seen.network.interfaces.push("eth0".to_owned()));
    assert_eq!(failing, ["7", "48"]);
    let (failing, _) = broken(|f| f.seen.files.mounts[0].options = vec!["rw".to_owned()]);
    assert_eq!(failing, ["25", "34"]);
    let (failing, _) = broken(|f| {
        let reached = "169.254.169.254 80".to_owned();
        f.seen.network.connections.insert(reached, "ok".to_owned());
    });
    assert_eq!(failing, ["48", "49"]);
    let (failing, _) = broken(|f| f.collected = None);
    assert_eq!(failing, ["56", "57", "58"]);
    let (failing, _) = broken(|f| {
        if let Some(collected) = &mut f.collected {
            collected.files.push("out/link".to_owned());
            collected.survivors = 1;
        }
    });
    assert_eq!(failing, ["56", "57"]);
}

#[test]
fn what_is_not_mandatory_is_a_warning() {
    let (failing, warned) = broken(|f| f.endurance.uid = Some(f.uid));
    assert_eq!((failing, warned), (Vec::new(), vec!["2"]));
    let (failing, warned) = broken(|f| f.seen.files.set_id_files.push("/bin/su".to_owned()));
    assert_eq!((failing, warned), (Vec::new(), vec!["32"]));
    let (failing, warned) = broken(|f| {
        f.seen.kernel.surface = Some(Surface {
            tried: 400,
            refused: 100,
        });
    });
    assert_eq!((failing, warned), (Vec::new(), vec!["surface"]));
    let (failing, warned) = broken(|f| f.seen.identity.lsm = "unconfined".to_owned());
    assert_eq!((failing, warned), (Vec::new(), vec!["21"]));
}

#[test]
fn a_runtime_that_only_has_the_name_of_a_stronger_one_is_found_out() {
    let mut facts = runsc();
    facts.seen.identity.kernel = facts.host_kernel.clone();
    assert_eq!(rows(&judge_sandbox(&facts), Verdict::Fail), ["tier"]);
}

#[test]
fn numbers_that_no_kernel_would_tell_are_no_trouble() {
    let (failing, _) = broken(|f| {
        let quota = Some(format!("{} 1", u64::MAX));
        f.seen.resources.group.insert("cpu".to_owned(), quota);
        for place in f.seen.files.temporary.values_mut() {
            place.bytes = u64::MAX;
        }
        f.seen.kernel.surface = Some(Surface {
            tried: u64::MAX,
            refused: u64::MAX,
        });
        f.endurance.wall_seconds = f64::NAN;
    });
    assert_eq!(failing, ["26", "27", "33", "36", "39", "42"]);
}

#[test]
fn what_the_host_offers_beyond_is_seen() {
    let mut facts = runc();
    facts.seen.identity.uid_map = "0 100000 65536".to_owned();
    facts.applied.block_limits = 1;
    facts
        .seen
        .resources
        .limits
        .insert("CPU".to_owned(), (60, 60));
    let scores = judge_sandbox(&facts);
    assert_eq!(rows(&scores, Verdict::NotAvailable), ["10"]);
    facts.seen.kernel.surface = None;
    facts.host_has_lsm = false;
    let scores = judge_sandbox(&facts);
    assert_eq!(
        rows(&scores, Verdict::NotAvailable),
        ["10", "surface", "21"]
    );
}

#[test]
fn news_of_a_kernel_of_its_own_is_no_difference() {
    for (row, group, call) in [
        ("14", "keys", "keyctl"),
        ("17", "mounts", "mount"),
        ("20", "machine", "reboot"),
    ] {
        let mut facts = runsc();
        answer(&mut facts, group, call, "ok");
        assert_eq!(rows(&judge_sandbox(&facts), Verdict::Fail), [row]);
    }
    let mut facts = runsc();
    facts.seen.identity.first_environment = NamesOrError::Names(vec!["KEY".to_owned()]);
    assert_eq!(rows(&judge_sandbox(&facts), Verdict::Fail), ["53"]);
}

#[test]
fn a_machine_as_the_bar_wants_it_passes_everywhere() {
    let scores = judge_machine(&machine());
    for score in &scores {
        assert_eq!(score.verdict, Verdict::Pass, "{score:?}");
    }
}

#[test]
fn machines_are_warned_about_and_never_fail() {
    let mut facts = machine();
    facts.engine.version = "20.10.24+dfsg1".to_owned();
    facts.engine.runc_version = Some("1.1.5+ds1".to_owned());
    facts.engine.live_restore = Some(false);
    facts.engine.security_options = Vec::new();
    facts.engine.cgroup_version = Some(1);
    facts.host.engine_config = Some(serde_json::json!({}));
    facts.host.swap_kib = Some(1 << 20);
    facts.host.lsm = None;
    facts.host.capabilities = Some(1);
    let settings = &mut facts.host.settings;
    settings.insert("kernel.core_pattern", Some("|/usr/bin/report".to_owned()));
    settings.insert("kernel.io_uring_disabled", None);
    let scores = judge_machine(&facts);
    assert_eq!(rows(&scores, Verdict::Fail), Vec::<&str>::new());
    let warned = [
        "66", "66", "66", "66", "66", "68", "68", "68", "68", "68", "64", "67", "67", "67",
    ];
    assert_eq!(rows(&scores, Verdict::Warning), warned);
    assert_eq!(
        rows(&scores, Verdict::NotAvailable),
        ["65", "9", "21", "67"]
    );
    for score in scores {
        assert_eq!(score.remedy.is_some(), score.verdict == Verdict::Warning);
    }
}

fn answer(facts: &mut SandboxFacts, row: &str, call: &str, answer: &str) {
    let group = facts.seen.kernel.calls.get_mut(row).unwrap();
    group.insert(call.to_owned(), answer.to_owned());
}

fn place<'a>(facts: &'a mut SandboxFacts, path: &str) -> &'a mut crate::doctor::facts::Temporary {
    facts.seen.files.temporary.get_mut(path).unwrap()
}
