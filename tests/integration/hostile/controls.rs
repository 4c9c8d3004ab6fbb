//! Negative controls: the same programs, run by the engine itself with the settings of a real
//! sandbox. Each is stopped there, too, and does its harm as soon as one protection is taken away.
//!
//! What daemon and supervisor do themselves (deadlines, caps on output) is not there at all; what
//! happens without it is the last test's.

use std::time::{Duration, Instant};

use bollard::models::{ContainerCreateBody, HostConfig, ResourcesUlimits};
use bollard::query_parameters::KillContainerOptions;
use futures_util::{StreamExt as _, stream};
use serde_json::json;

use super::expectations::{Allowed, Runtime, said};
use super::{AT_ONCE, hostile_daemon, source};
use crate::support::Daemon;
use crate::support::daemon::PATIENCE;
use crate::support::direct::{Direct, settings_of};
use crate::support::engine::{docker, inspect};
use crate::support::wait::until;
use crate::support::watch::{Flight, only_container};

/// A protection, and what one program says if it is not there.
struct Control {
    protection: &'static str,
    program: &'static str,
    key: &'static str,
    harm: Allowed,
    with: fn(&mut ContainerCreateBody),
    without: fn(&mut ContainerCreateBody),
}

fn control(
    protection: &'static str,
    (program, key): (&'static str, &'static str),
    harm: Allowed,
    without: fn(&mut ContainerCreateBody),
) -> Control {
    Control {
        protection,
        program,
        key,
        harm,
        with: |_| {},
        without,
    }
}

fn controls() -> Vec<Control> {
    let ok = || Allowed::Word("ok".to_owned());
    let at_least = |least| Allowed::Between {
        least,
        most: i64::MAX,
    };
    vec![
        control(
            "process limit",
            ("01_fork_bomb", "children"),
            at_least(400),
            |s| host(s).pids_limit = Some(-1),
        ),
        control(
            "memory limit",
            ("03_memory_hoard", "held"),
            at_least(400),
            |s| {
                let host = host(s);
                host.memory = Some(0);
                host.memory_swap = Some(0);
                host.memory_swappiness = None;
            },
        ),
        control(
            "workspace size",
            ("06_disk_fill", "mebibytes"),
            at_least(64),
            |s| widen_workspace(s, &["size"]),
        ),
        control(
            "workspace inodes",
            ("08_inodes", "files"),
            at_least(6000),
            |s| widen_workspace(s, &["nr_inodes"]),
        ),
        control("file size", ("07_file_size", "write"), ok(), |s| {
            set_ulimit(s, "fsize", -1);
        }),
        control(
            "descriptors",
            ("13_descriptors", "files"),
            at_least(3000),
            |s| set_ulimit(s, "nofile", 4096),
        ),
        control(
            "seccomp: socket families",
            ("36_system_calls", "socket INET"),
            ok(),
            without_seccomp,
        ),
        control(
            "seccomp: other processes",
            ("36_system_calls", "ptrace(TRACEME)"),
            ok(),
            without_seccomp,
        ),
        control(
            "seccomp: System V IPC",
            ("36_system_calls", "shmget"),
            ok(),
            without_seccomp,
        ),
        control(
            "no new privileges",
            ("35_privilege", "no new privileges"),
            Allowed::Word("0".to_owned()),
            // A filter that is loaded without it would have to let the engine's own calls pass.
            |s| host(s).security_opt = Some(vec!["seccomp=unconfined".to_owned()]),
        ),
        control("user", ("35_privilege", "shadow"), ok(), be_root),
        control("capabilities", ("35_privilege", "chown"), ok(), |s| {
            be_root(s);
            host(s).cap_drop = None;
        }),
        control("read-only root", ("33_left_marks", "/var/tmp"), ok(), |s| {
            host(s).readonly_rootfs = Some(false);
        }),
        control("noexec", ("37_execution", "/work"), ok(), |s| {
            widen_workspace(s, &["noexec"]);
            // Without a word an engine puts it there itself.
            let places = host(s).tmpfs.as_mut().unwrap();
            places.get_mut("/work").unwrap().push_str(",exec");
        }),
        control("read-only data set", ("24_data_set", "create"), ok(), |s| {
            let mounts = host(s).mounts.iter_mut().flatten();
            for mount in mounts.filter(|mount| mount.target.as_deref() == Some("/data")) {
                mount.read_only = Some(false);
            }
        }),
        control(
            "network",
            ("21_network", "daemon"),
            Allowed::Word("open".to_owned()),
            |s| {
                without_seccomp(s);
                s.network_disabled = Some(false);
                s.hostname = None;
                host(s).network_mode = Some("host".to_owned());
            },
        ),
        control(
            "process namespace",
            ("19_proc", "strangers"),
            at_least(1),
            |s| host(s).pid_mode = Some("host".to_owned()),
        ),
        control(
            "masked paths",
            ("19_proc", "/proc/kallsyms"),
            at_least(1),
            |s| host(s).masked_paths = Some(Vec::new()),
        ),
        Control {
            // So small a share is used up on a host that is busy with other things, too.
            with: |s| host(s).nano_cpus = Some(100_000_000),
            ..control(
                "share of the CPUs",
                ("38_starvation", "throttled"),
                Allowed::Number(0),
                |s| host(s).nano_cpus = Some(0),
            )
        },
    ]
}

fn host(settings: &mut ContainerCreateBody) -> &mut HostConfig {
    settings.host_config.as_mut().unwrap()
}

/// Takes options away from the workspace's file system; a name stands for its value, too.
fn widen_workspace(settings: &mut ContainerCreateBody, without: &[&str]) {
    let places = host(settings).tmpfs.as_mut().unwrap();
    let options = places.get_mut("/work").unwrap();
    let is_kept = |option: &&str| !without.contains(&option.split('=').next().unwrap());
    let kept: Vec<&str> = options.split(',').filter(is_kept).collect();
    assert_eq!(kept.len() + without.len(), options.split(',').count());
    *options = kept.join(",");
}

fn set_ulimit(settings: &mut ContainerCreateBody, name: &str, value: i64) {
    let limits = host(settings).ulimits.as_mut().unwrap();
    let count = limits.len();
    limits.retain(|limit| limit.name.as_deref() != Some(name));
    assert_eq!(limits.len(), count - 1, "{name} is limited");
    limits.push(ResourcesUlimits {
        name: Some(name.to_owned()),
        soft: Some(value),
        hard: Some(value),
    });
}

fn without_seccomp(settings: &mut ContainerCreateBody) {
    let options = ["no-new-privileges:true", "seccomp=unconfined"].map(str::to_owned);
    host(settings).security_opt = Some(options.into());
}

fn be_root(settings: &mut ContainerCreateBody) {
    settings.user = Some("0:0".to_owned());
    // The workspace is its user's alone, and without capabilities root is one user of many.
    widen_workspace(settings, &["uid", "gid"]);
}

/// The settings of a sandbox of this daemon, as the engine tells them.
async fn sandbox_settings(daemon: &Daemon) -> ContainerCreateBody {
    let code = "import time\nprint('there', flush=True)\ntime.sleep(600)";
    let body = json!({ "code": code, "dataset_path": "data/set" });
    let flight = Flight::start_until(daemon, body, "there").await;
    let settings = settings_of(inspect(&only_container(daemon).await).await);
    let cancel = format!("/runs/{}/cancel", flight.id);
    daemon.post(&cancel, &json!({})).await;
    daemon.ended(&flight.id).await;
    settings
}

/// Runs a program with the protection and without it; says what was not as expected.
async fn tried(
    daemon: &Daemon,
    settings: &ContainerCreateBody,
    control: Control,
) -> Option<String> {
    let code = source(control.program, daemon);
    for (change, harm_expected) in [(control.with, false), (control.without, true)] {
        let mut settings = settings.clone();
        change(&mut settings);
        let direct = Direct::start(&settings, &code).await;
        let output = direct.output(|text| said(text).is_some()).await;
        let told = said(&output).and_then(|mut told| told.remove(control.key));
        let harmed = told
            .as_ref()
            .is_some_and(|outcome| control.harm.holds(outcome));
        if harmed != harm_expected {
            let with = if harm_expected { "without" } else { "with" };
            return Some(format!(
                "{} {with} {}: {} is {told:?}",
                control.program, control.protection, control.key
            ));
        }
    }
    None
}

#[tokio::test(flavor = "multi_thread")]
async fn each_protection_is_what_stops_its_program() {
    let daemon = hostile_daemon(Runtime::Runc, AT_ONCE).await;
    let settings = sandbox_settings(&daemon).await;
    let wrong: Vec<String> = stream::iter(controls())
        .map(|control| tried(&daemon, &settings, control))
        .buffer_unordered(2)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_daemon_nothing_ends_a_program_or_cuts_its_output() {
    let daemon = hostile_daemon(Runtime::Runc, AT_ONCE).await;
    let settings = sandbox_settings(&daemon).await;

    let stubborn = Direct::start(&settings, &source("14_ignored_signals", &daemon)).await;
    stubborn.output(|text| text.contains("armed")).await;
    let polite = KillContainerOptions {
        signal: "SIGTERM".to_owned(),
    };
    let asked = docker()
        .await
        .kill_container(stubborn.name(), Some(polite))
        .await;
    asked.unwrap();
    let begun = Instant::now();
    let look = || async {
        let state = inspect(stubborn.name()).await.state.unwrap();
        (state.running, begun.elapsed() > Duration::from_secs(3))
    };
    // The limit of the program under the daemon is two seconds.
    let (running, _) = until(PATIENCE, look, |(running, late)| {
        *late || *running != Some(true)
    })
    .await;
    assert_eq!(running, Some(true));

    let endless = Direct::start(&settings, &source("10_endless_output", &daemon)).await;
    let output = endless.output(|text| text.len() > 1 << 20).await;
    assert!(output.len() > 1 << 20, "{} bytes", output.len());
}
