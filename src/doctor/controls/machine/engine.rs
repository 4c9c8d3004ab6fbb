//! The engine: its versions, its options, the way to it (rows 64, 65, 66 and 68).

use super::{floor, offered, option, report, strong};
use crate::doctor::controls::findings::{absent, decide, some};
use crate::doctor::controls::{Control, Finding};
use crate::doctor::facts::MachineFacts;
use crate::doctor::versions::Version;

const CONFIG: &str = "Set it in /etc/docker/daemon.json and restart the engine";

const RUNC: &str = "Upgrade runc, or ask the distribution whether it has the fix under this number";

const ENGINE: &str = "Upgrade Docker Engine";

/// Rows 64, 65, 66, 68, and what 9 and 10 need.
pub const TABLE: &[Control<MachineFacts>] = &[
    report(
        "66",
        "runc: masked paths, console, labels",
        "1.2.8, 1.3.3, 1.4.0-rc.3 or later",
        RUNC,
        |facts| {
            let floors = [
                Version::new(1, 2, 8),
                Version::new(1, 3, 3),
                Version::candidate(1, 4, 0, 3),
            ];
            floor(facts.engine.runc_version.as_deref(), &floors)
        },
    ),
    report(
        "66",
        "runc: /dev of an image (CVE-2026-41579)",
        "1.3.6, 1.4.3, 1.5.0 or later",
        RUNC,
        |facts| {
            let floors = [
                Version::new(1, 3, 6),
                Version::new(1, 4, 3),
                Version::new(1, 5, 0),
            ];
            floor(facts.engine.runc_version.as_deref(), &floors)
        },
    ),
    report(
        "66",
        "runc: open descriptor (CVE-2024-21626)",
        "1.1.12 or later",
        RUNC,
        |facts| {
            floor(
                facts.engine.runc_version.as_deref(),
                &[Version::new(1, 1, 12)],
            )
        },
    ),
    report(
        "66",
        "engine: copying and archives",
        "29.5.1 or later",
        ENGINE,
        |facts| floor(Some(&facts.engine.version), &[Version::new(29, 5, 1)]),
    ),
    report(
        "66",
        "engine: AF_ALG in its own profile",
        "29.4.3 or later",
        ENGINE,
        |facts| floor(Some(&facts.engine.version), &[Version::new(29, 4, 3)]),
    ),
    report("68", "live-restore", "true", CONFIG, |facts| {
        match facts.engine.live_restore {
            Some(on) => decide(on, on.to_string()),
            None => absent("the engine does not tell"),
        }
    }),
    report("68", "icc", "false", CONFIG, |facts| {
        option(facts, "icc", false)
    }),
    report("68", "userland-proxy", "false", CONFIG, |facts| {
        option(facts, "userland-proxy", false)
    }),
    report("68", "no-new-privileges", "true", CONFIG, |facts| {
        option(facts, "no-new-privileges", true)
    }),
    report(
        "68",
        "log size of other containers",
        "log-opts has max-size",
        CONFIG,
        |facts| match &facts.host.engine_config {
            Some(config) => log_size(config),
            None => absent("no daemon.json is to be read here"),
        },
    ),
    report(
        "68",
        "engine's data apart",
        "on a file system of its own",
        "Move data-root to a partition of its own",
        |facts| match facts.host.data_is_apart {
            Some(apart) => decide(apart, if apart { "apart" } else { "on that of /" }),
            None => absent("it is not to be seen from here"),
        },
    ),
    report(
        "64",
        "engine's socket",
        "root's, closed to others",
        "chmod o-rwx on it; its group amounts to root",
        |facts| match facts.host.socket {
            Some(socket) => decide(
                socket.uid == 0 && socket.mode & 0o7 == 0,
                format!(
                    "{:o}, uid {}, gid {}",
                    socket.mode & 0o7777,
                    socket.uid,
                    socket.gid
                ),
            ),
            None => absent("it is not to be seen from here"),
        },
    ),
    report(
        "64",
        "engine on TCP",
        "nobody listens",
        "Take -H tcp:// from the engine's options",
        |facts| {
            let open = &facts.host.engine_addresses;
            decide(
                open.is_empty(),
                if open.is_empty() {
                    "nobody".to_owned()
                } else {
                    some(open)
                },
            )
        },
    ),
    strong(
        "64",
        "daemon without privileges",
        "no capability, not root",
        "Run the daemon as a user of its own in the engine's group",
        |facts| {
            let (uid, held) = (facts.host.uid, facts.host.capabilities);
            match held {
                Some(held) => decide(
                    held == 0 && uid != 0,
                    format!("uid {uid}, capabilities {held:x}"),
                ),
                None => absent("not told"),
            }
        },
    ),
    report(
        "65",
        "limits that the engine can keep",
        "all",
        "Enable the missing control groups of the kernel",
        |facts| {
            let missing = &facts.engine.missing_limits;
            decide(
                missing.is_empty(),
                if missing.is_empty() {
                    "all".to_owned()
                } else {
                    some(missing)
                },
            )
        },
    ),
    strong(
        "65",
        "rootless engine",
        "rootless",
        "See docs.docker.com/engine/security/rootless; it needs cgroup v2",
        |facts| {
            offered(
                facts.engine.has_security_option("rootless"),
                "the engine is root's",
            )
        },
    ),
    strong(
        "9",
        "user namespaces of the engine",
        "userns",
        "Set userns-remap in /etc/docker/daemon.json",
        |facts| {
            offered(
                facts.engine.has_security_option("userns"),
                "userns-remap is off",
            )
        },
    ),
    strong(
        "10",
        "gVisor",
        "runsc is installed",
        "Install gVisor and add runsc to the engine's runtimes",
        |facts| {
            offered(
                facts.engine.runtimes.iter().any(|name| name == "runsc"),
                "the engine has no runsc",
            )
        },
    ),
];

fn log_size(config: &serde_json::Value) -> Finding {
    match config["log-opts"]["max-size"].as_str() {
        Some(size) => decide(true, size),
        None => decide(false, "no bound"),
    }
}
