//! The walls of a sandbox, seen from inside and read from outside (the security bar's rows A to E,
//! by their numbers). Programs that try to get through them are in the area `hostile`.

use bollard::models::HostConfig;
use serde_json::{Value, json};

use crate::support::daemon::PATIENCE;
use crate::support::data::make_open_set;
use crate::support::engine::{inspect, running_containers_of};
use crate::support::program::printed;
use crate::support::wait::until;
use crate::support::{Daemon, Settings};

const PROBE: &str = include_str!("isolation/probe.py");

/// A daemon with a data set whose files everybody could write to, were it not for the sandbox.
async fn daemon_with_data() -> Daemon {
    let daemon = Daemon::start().await;
    make_open_set(&daemon.data().join("set"));
    daemon
}

/// Names of the sandboxes of a daemon whose programs can run.
pub(crate) async fn running_sandboxes(daemon: &Daemon) -> Vec<String> {
    running_containers_of(&daemon.instance()).await
}

#[track_caller]
fn assert_all(told: &Value, expected: &[&str]) {
    for (what, outcome) in told.as_object().unwrap() {
        let outcome = outcome
            .as_str()
            .map_or_else(|| outcome.to_string(), str::to_owned);
        assert!(expected.contains(&outcome.as_str()), "{what}: {outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_looks_from_inside_as_it_was_asked_for() {
    let daemon = daemon_with_data().await;
    let body = json!({
        "code": PROBE, "dataset_path": "data/set",
        "options": {"memory_mb": 512, "workspace_mb": 32, "shm_mb": 32, "timeout_seconds": 60},
    });
    let told = printed(&daemon.result(body).await);

    // Rows 1 to 5: nobody, with nothing, for ever.
    let status = &told["status"];
    let uid = status["Uid"][0].as_str().unwrap().to_owned();
    assert!(uid.parse::<u32>().unwrap() >= 50_000);
    assert_eq!(
        (&status["Uid"], &status["Gid"]),
        (&json!([uid, uid, uid, uid]), &json!([uid, uid, uid, uid]))
    );
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status[set], json!(["0000000000000000"]), "{set}");
    }
    assert_eq!(
        (&status["NoNewPrivs"], &status["Seccomp"]),
        (&json!(["1"]), &json!(["2"]))
    );
    // Python itself ignores SIGPIPE and SIGXFSZ; nothing else is inherited.
    let signals = json!([["0000000000000000"], ["0000000001001000"]]);
    assert_eq!(json!([status["SigBlk"], status["SigIgn"]]), signals);
    let number: u32 = uid.parse().unwrap();
    let groups = told["ids"][2].as_array().unwrap();
    assert!(groups.iter().all(|group| *group == number), "{groups:?}");

    // Rows 6, 7, 8, 23: what is there to be seen.
    let devices = [
        "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
        "stdout", "tty", "urandom", "zero",
    ];
    let seen = told["devices"].as_array().unwrap().iter();
    // A link to /proc/kcore, which is masked, where the kernel has that at all.
    let seen: Vec<_> = seen.filter(|&name| name != "core").collect();
    assert_eq!(seen, devices);
    assert_eq!(told["init descriptors"], "EACCES");
    assert_eq!(told["init directory"], "EACCES");
    assert_eq!(told["init command"], "/fumehood/supervisor\0");
    assert_eq!(told["cgroup"], json!(["/"]));
    assert_eq!(told["cgroup files"], json!([]));

    // Rows 25 to 27, 30, 33: what is there to be written to.
    assert_all(&told["writes"], &["EROFS", "EACCES", "EPERM", "ENOENT"]);
    for path in [
        "/x",
        "/etc/x",
        "/usr/x",
        "/run/x",
        "/var/tmp/x",
        "/fumehood/x",
    ] {
        assert_eq!(told["writes"][path], "EROFS", "{path}");
    }
    assert_eq!(told["workspace"], json!(["0o700", true]));
    assert_eq!(told["setuid files"], json!([]));
    for options in told["work mount"].as_array().unwrap() {
        let options = options.as_array().unwrap();
        for flag in ["nosuid", "nodev", "noexec"] {
            assert!(options.contains(&json!(flag)), "{options:?}");
        }
    }
    assert_mounts(&told["mounts"]);

    // Rows 24, 40, 48 to 54.
    assert_eq!(told["terminals"], json!([false, false, false]));
    assert_eq!(told["input"], "EOF");
    let limits = json!({
        "CORE": [0, 0], "FSIZE": [32 << 20, 32 << 20], "MEMLOCK": [65_536, 65_536], "NOFILE": [1024, 1024],
    });
    assert_eq!(told["limits"], limits);
    assert_eq!(told["host"][0], "sandbox");
    assert_eq!(told["descriptors"], json!([]));
    let hosts = told["hosts"].as_str().unwrap();
    assert!(
        !hosts.contains(
            std::fs::read_to_string("/proc/sys/kernel/hostname")
                .unwrap()
                .trim()
        )
    );
}

/// Mounts are the listed ones and the engine's own, nothing else.
#[track_caller]
fn assert_mounts(mounts: &Value) {
    let ours = [
        "/",
        "/data",
        "/dev",
        "/dev/mqueue",
        "/dev/pts",
        "/dev/shm",
        "/fumehood",
        "/proc",
        "/sys",
        "/tmp",
        "/work",
    ];
    let engine = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
    let list: Vec<&str> = mounts
        .as_array()
        .unwrap()
        .iter()
        .map(|m| m.as_str().unwrap())
        .collect();
    for target in &list {
        let known = ours.contains(target) || engine.contains(target);
        let kernel = ["/proc/", "/sys/"]
            .iter()
            .any(|below| target.starts_with(below));
        assert!(known || kernel, "an unknown mount: {target}");
    }
    for target in ours {
        assert!(list.contains(&target), "{target} is not mounted: {list:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_supervisor_outlives_every_signal_of_its_program() {
    let daemon = Daemon::start().await;
    let code = "
import os
for number in range(1, 65):
    try: os.kill(1, number)
    except OSError as e: print(number, e.errno)
try: os.sched_setaffinity(1, {0})
except OSError: pass
open('out/after', 'w').close()
print('after')
";
    let result = daemon.execute(code).await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    assert_eq!(result["stdout"], "after\n");
    assert_eq!(result["output_files"], json!(["after"]));
    // Everything but itself and the supervisor: the whole sandbox ends with the program.
    let result = daemon.execute("import os; os.kill(-1, 9)").await;
    assert!(
        ["SUCCESS", "FAILURE"].contains(&result["status"].as_str().unwrap()),
        "{result:#}"
    );
    assert_eq!(result["limit"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_confirms_every_setting_of_a_live_sandbox() {
    let daemon = daemon_with_data().await;
    let code = "import time\ntime.sleep(600)";
    let id = daemon
        .submit(json!({"code": code, "dataset_path": "data/set"}))
        .await;
    let list = || running_sandboxes(&daemon);
    let names = until(PATIENCE, list, |names| names.len() == 1).await;
    let name = &names[0];
    let seen = inspect(name).await;
    daemon.post(&format!("/runs/{id}/cancel"), &json!({})).await;
    daemon.ended(&id).await;

    let config = seen.config.unwrap();
    let user = config.user.unwrap();
    let (uid, gid) = user.split_once(':').unwrap();
    assert!(
        uid == gid && uid.parse::<u32>().unwrap() >= 50_000,
        "{user}"
    );
    assert_eq!(config.entrypoint.unwrap(), ["/fumehood/supervisor"]);
    assert_eq!(config.hostname.as_deref(), Some("sandbox"));
    assert_eq!(config.working_dir.as_deref(), Some("/"));
    assert_eq!(config.tty, Some(false));
    assert_eq!(config.healthcheck.unwrap().test.unwrap(), ["NONE"]);
    assert!(
        seen.image.unwrap().starts_with("sha256:"),
        "pinned by digest"
    );
    assert_host_config(&seen.host_config.unwrap());
    let mut mounts: Vec<_> = seen
        .mounts
        .unwrap()
        .into_iter()
        .map(|mount| (mount.destination.unwrap(), mount.rw.unwrap()))
        .collect();
    mounts.sort();
    assert_eq!(
        mounts,
        [("/data".to_owned(), false), ("/fumehood".to_owned(), false)]
    );
}

fn assert_host_config(host: &HostConfig) {
    assert_eq!(host.privileged, Some(false));
    assert_eq!(host.readonly_rootfs, Some(true));
    assert_eq!(host.cap_drop.as_deref(), Some(&["ALL".to_owned()][..]));
    assert!(host.cap_add.as_deref().unwrap_or_default().is_empty());
    assert!(host.group_add.as_deref().unwrap_or_default().is_empty());
    assert!(host.devices.as_deref().unwrap_or_default().is_empty());
    assert!(
        host.device_requests
            .as_deref()
            .unwrap_or_default()
            .is_empty()
    );
    assert!(host.binds.as_deref().unwrap_or_default().is_empty());
    assert!(host.volumes_from.as_deref().unwrap_or_default().is_empty());
    assert!(host.dns.as_deref().unwrap_or_default().is_empty());
    assert!(host.port_bindings.clone().unwrap_or_default().is_empty());
    let options = host.security_opt.as_deref().unwrap();
    assert_eq!(options.len(), 2);
    assert_eq!(options[0], "no-new-privileges:true");
    let profile: Value =
        serde_json::from_str(options[1].strip_prefix("seccomp=").unwrap()).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    assert_eq!(host.ipc_mode.as_deref(), Some("private"));
    assert_eq!(host.pid_mode.as_deref().unwrap_or_default(), "");
    assert_eq!(host.uts_mode.as_deref().unwrap_or_default(), "");
    assert_eq!(host.memory, Some(2048 << 20));
    assert_eq!(host.memory_swap, host.memory);
    assert_eq!(host.pids_limit, Some(257));
    assert_eq!(host.nano_cpus, Some(1_000_000_000));
    assert_eq!(host.shm_size, Some(256 << 20));
    assert!(host.oom_score_adj.unwrap() > 0);
    assert!(!host.oom_kill_disable.unwrap_or(false));
    assert_eq!(host.auto_remove, Some(false));
    let log = host.log_config.clone().unwrap();
    assert_eq!(log.typ.as_deref(), Some("none"));
    let restart = host
        .restart_policy
        .clone()
        .unwrap()
        .name
        .unwrap()
        .to_string();
    assert_eq!(restart, "no");
    let masked = host.masked_paths.as_deref().unwrap();
    for path in [
        "/proc/kcore",
        "/proc/keys",
        "/proc/kallsyms",
        "/proc/cmdline",
        "/sys/firmware",
    ] {
        assert!(masked.iter().any(|entry| entry == path), "{path}");
    }
    let tmpfs = host.tmpfs.clone().unwrap();
    for place in ["/work", "/tmp"] {
        let options = &tmpfs[place];
        for part in ["noexec", "nosuid", "nodev", "size=", "nr_inodes="] {
            assert!(options.contains(part), "{place}: {options}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_have_users_names_and_processes_of_their_own() {
    let settings = Settings {
        toml: "[app]\nmax_concurrent_runs = 2".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let code = "
import json, os, socket, time
s = socket.socket(socket.AF_UNIX); s.bind('\\0meeting point'); s.listen()
open('/dev/shm/mark', 'x').close(); open('/tmp/mark', 'x').close()
end = time.monotonic() + 6
most = 0
while time.monotonic() < end:
    most = max(most, sum(n.isdigit() for n in os.listdir('/proc')))
    for pid in range(3, 300):
        if pid != os.getpid():
            try: os.kill(pid, 9)
            except ProcessLookupError: pass
print(json.dumps({'uid': os.getuid(), 'most': most}))
";
    let body = json!({ "code": code });
    let (a, b) = tokio::join!(daemon.result(body.clone()), daemon.result(body));
    let start = |result: &Value| result["started_at"].as_str().unwrap().to_owned();
    let end = |result: &Value| result["finished_at"].as_str().unwrap().to_owned();
    assert!(
        start(&a) < end(&b) && start(&b) < end(&a),
        "they ran together"
    );
    let (a, b) = (printed(&a), printed(&b));
    assert_ne!(a["uid"], b["uid"]);
    assert_eq!((&a["most"], &b["most"]), (&json!(2), &json!(2)));
}
