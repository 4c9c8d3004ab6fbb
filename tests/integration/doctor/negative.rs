//! Negative controls: one wall is taken away on the way to the engine, inspection shows it as if it
//! were there, and the doctor names exactly the rows that it belongs to.

use std::collections::BTreeSet;
use std::path::Path;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::attacks::told_otherwise;
use super::{Examined, attempted, examined, metadata, supervisor};
use crate::command_line::{Bench, Called};
use crate::support::proxy::Proxy;

struct Case {
    /// What is taken away.
    name: &'static str,
    /// The rows that have to fail.
    breaks: &'static [&'static str],
    /// Rows that may fail with them, as the host's kernel has it.
    may_break: &'static [&'static str],
    change: fn(&mut Value),
}

const fn case(name: &'static str, breaks: &'static [&'static str], change: fn(&mut Value)) -> Case {
    Case {
        name,
        breaks,
        may_break: &[],
        change,
    }
}

fn set(body: &mut Value, key: &str, value: Value) {
    body["HostConfig"][key] = value;
}

fn option(body: &mut Value, index: usize, text: &str) {
    body["HostConfig"]["SecurityOpt"][index] = text.into();
}

fn replace(body: &mut Value, place: &str, words: &str, by: &str) {
    let options = &mut body["HostConfig"]["Tmpfs"][place];
    let changed = options.as_str().unwrap().replace(words, by);
    *options = changed.into();
}

pub(super) fn ulimit(body: &mut Value, name: &str, value: i64) {
    let limits = body["HostConfig"]["Ulimits"].as_array_mut().unwrap();
    let limit = limits
        .iter_mut()
        .find(|limit| limit["Name"] == name)
        .unwrap();
    (limit["Soft"], limit["Hard"]) = (value.into(), value.into());
}

fn dataset(body: &mut Value) -> &mut Value {
    let mounts = body["HostConfig"]["Mounts"].as_array_mut().unwrap();
    let mut mounts = mounts.iter_mut();
    mounts.find(|mount| mount["Target"] == "/data").unwrap()
}

fn mount(body: &mut Value, source: &Path, target: &Path) {
    let mounts = body["HostConfig"]["Mounts"].as_array_mut().unwrap();
    mounts.push(json!({
        "Type": "bind", "Source": source, "Target": target, "ReadOnly": true,
    }));
}

fn without(body: &mut Value, key: &str, path: &str) {
    let list = body["HostConfig"][key].as_array_mut().unwrap();
    list.retain(|entry| entry != path);
}

const CASES: &[Case] = &[
    // Without it the filter is loaded while the runtime has still to become the program: it then
    // needs the calls for that, which are row 20's.
    case("no new privileges", &["look", "5", "20"], |body| {
        option(body, 0, "no-new-privileges:false");
        let options = &mut body["HostConfig"]["SecurityOpt"];
        let profile = options[1].as_str().unwrap().strip_prefix("seccomp=");
        let mut profile: Value = serde_json::from_str(profile.unwrap()).unwrap();
        profile["syscalls"].as_array_mut().unwrap().push(json!({
            "names": ["capset", "setgid", "setgroups", "setresgid", "setresuid", "setuid"],
            "action": "SCMP_ACT_ALLOW",
        }));
        options[1] = format!("seccomp={profile}").into();
    }),
    case("capabilities", &["look", "4"], |body| {
        set(body, "CapAdd", json!(["NET_RAW"]));
    }),
    case("groups", &["look", "3"], |body| {
        set(body, "GroupAdd", json!(["4242"]));
    }),
    case("devices", &["6"], |body| {
        let device = json!({
            "PathOnHost": "/dev/null", "PathInContainer": "/dev/extra", "CgroupPermissions": "rwm",
        });
        set(body, "Devices", json!([device]));
    }),
    case("private control groups", &["8"], |body| {
        set(body, "CgroupnsMode", "host".into());
    }),
    Case {
        name: "the host's network",
        breaks: &["look", "7", "48", "54"],
        may_break: &["50"],
        change: |body| {
            set(body, "NetworkMode", "host".into());
            body["NetworkDisabled"] = false.into();
        },
    },
    Case {
        name: "the seccomp profile",
        breaks: &["look", "11", "12", "13", "14", "15", "16", "17", "18", "20"],
        // The filter that the supervisor has for such a sandbox knows no other ABI.
        may_break: &["19"],
        change: |body| option(body, 1, "seccomp=unconfined"),
    },
    case("one ABI", &["19"], |body| {
        let options = &mut body["HostConfig"]["SecurityOpt"];
        let profile = options[1].as_str().unwrap().strip_prefix("seccomp=");
        let mut profile: Value = serde_json::from_str(profile.unwrap()).unwrap();
        profile["architectures"] = json!(["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"]);
        options[1] = format!("seccomp={profile}").into();
    }),
    Case {
        name: "masked paths",
        breaks: &["22"],
        may_break: &["50"],
        change: |body| set(body, "MaskedPaths", json!([])),
    },
    case("one masked path", &["22"], |body| {
        without(body, "MaskedPaths", "/proc/version");
    }),
    case("read-only paths", &["23"], |body| {
        without(body, "ReadonlyPaths", "/proc/sys");
    }),
    case("read-only root", &["look", "25", "34"], |body| {
        set(body, "ReadonlyRootfs", false.into());
    }),
    case("noexec of /tmp", &["26"], |body| {
        replace(body, "/tmp", "noexec", "exec");
    }),
    case("inodes of /tmp", &["26"], |body| {
        replace(body, "/tmp", "nr_inodes=1024", "nr_inodes=100000");
    }),
    case("size of the workspace", &["look", "27"], |body| {
        replace(body, "/work", "size=16777216", "size=33554432");
    }),
    case("read-only data set", &["look", "28"], |body| {
        dataset(body)["ReadOnly"] = false.into();
    }),
    case("closed list of mounts", &["30"], |body| {
        mount(body, Path::new("/etc"), Path::new("/mnt"));
    }),
    case("closed list of mounts: a token", &["30", "52"], |body| {
        mount(body, Path::new("/etc"), Path::new("/var/run/secrets"));
    }),
    case("closed list of mounts: the engine", &["30", "64"], |body| {
        let socket = Path::new("/var/run/docker.sock");
        mount(body, socket, socket);
    }),
    case("closed list of mounts: state", &["30", "77"], |body| {
        let data = dataset(body)["Source"].as_str().unwrap().to_owned();
        let parent = Path::new(&data).parent().unwrap();
        mount(body, parent, parent);
    }),
    case(
        "the data set that was checked",
        &["look", "28", "29"],
        |body| {
            dataset(body)["Source"] = "/etc".into();
        },
    ),
    case("IPC of its own", &["33", "36"], |body| {
        set(body, "IpcMode", "host".into());
    }),
    case("no resolver", &["50"], |body| {
        // Two walls: an engine that knows of no network does not tell of a resolver, either.
        without(body, "MaskedPaths", "/etc/resolv.conf");
        body["NetworkDisabled"] = false.into();
    }),
    case("places within the memory", &["look", "27", "36"], |body| {
        replace(body, "/work", "size=16777216", "size=268435456");
    }),
    Case {
        name: "not root",
        breaks: &["look", "1", "3", "25"],
        may_break: &["40"],
        change: |body| {
            let user = body["User"].as_str().unwrap();
            let id = user.split(':').next().unwrap().to_owned();
            replace(body, "/work", &format!("uid={id},gid={id}"), "uid=0,gid=0");
            body["User"] = "0:0".into();
        },
    },
    case("size of /dev/shm", &["33"], |body| {
        set(body, "ShmSize", (16 << 20).into());
    }),
    case("memory", &["35"], |body| {
        let much = Value::from(1_u64 << 30);
        set(body, "Memory", much.clone());
        set(body, "MemorySwap", much);
    }),
    case("the score for being killed", &["37"], |body| {
        set(body, "OomScoreAdj", 0.into());
    }),
    case("processes", &["38"], |body| {
        set(body, "PidsLimit", 10_000.into());
    }),
    case("CPU time", &["39"], |body| {
        set(body, "NanoCpus", 2_000_000_000_u64.into());
    }),
    case("locked memory", &["40"], |body| {
        ulimit(body, "memlock", 1 << 20);
    }),
    case("host name", &["54"], |body| {
        body["Hostname"] = "elsewhere".into();
    }),
];

/// What is wrong with what the doctor said, if anything.
pub(super) fn mistake(
    seen: Result<Examined, Called>,
    name: &str,
    breaks: &[&str],
    may_break: &[&str],
) -> Option<String> {
    let seen = match seen {
        Ok(seen) => seen,
        Err(called) => return Some(format!("{name}: no card: {}", called.stderr)),
    };
    let failing = seen.rows("fail");
    let all = breaks.iter().all(|row| failing.contains(row));
    let known = |row: &&str| breaks.contains(row) || may_break.contains(row);
    if seen.code == 1 && all && failing.iter().all(known) {
        return None;
    }
    let told = seen.card["runtimes"][0]["controls"].as_array().unwrap();
    let told: Vec<String> = told
        .iter()
        .filter(|score| score["verdict"] == "fail")
        .map(|score| format!("{} {}", score["number"], score["seen"]))
        .collect();
    Some(format!("{name}: {breaks:?} instead of {told:?}"))
}

/// Examinations side by side: each waits most of its time for a deadline.
pub(super) const AT_ONCE: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn each_wall_that_is_taken_away_is_noticed_and_named() {
    let bench = Bench::new();
    let wrong = stream::iter(CASES).map(async |case| {
        let proxy = Proxy::start();
        proxy.weaken(case.change);
        let seen = attempted(&bench, "runc", Some(&proxy.socket())).await;
        mistake(seen, case.name, case.breaks, case.may_break)
    });
    let wrong: Vec<Option<String>> = wrong.buffer_unordered(AT_ONCE).collect().await;
    let wrong: Vec<String> = wrong.into_iter().flatten().collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    // And with every wall in its place, through a proxy as well.
    let proxy = Proxy::start();
    let seen = examined(&bench, "runc", Some(&proxy.socket())).await;
    assert_eq!(
        (seen.code, seen.rows("fail")),
        (0, Vec::new()),
        "{:#}",
        seen.card
    );
    // No mandatory row is without a negative control.
    let covered: BTreeSet<&str> = (CASES.iter().flat_map(|case| case.breaks))
        .chain(supervisor::CASES.iter().flat_map(|case| case.breaks))
        .copied()
        .chain(told_otherwise().into_iter().map(|(row, ..)| row))
        .chain(metadata::BREAKS.iter().copied())
        .chain(["all"])
        .collect();
    let controls = seen.card["runtimes"][0]["controls"].as_array().unwrap();
    let without: Vec<&str> = controls
        .iter()
        .filter(|score| score["mark"] == "M")
        .map(|score| score["number"].as_str().unwrap())
        .filter(|row| !covered.contains(row))
        .collect();
    assert_eq!(without, Vec::<&str>::new());
}
