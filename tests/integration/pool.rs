//! Warm sandboxes: what a run gets that finds one waiting, and that nothing else changes for it.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::support::daemon::PATIENCE;
use crate::support::data::tree_hash;
use crate::support::engine::{containers_of, docker, running_containers_of};
use crate::support::wait::until;
use crate::support::{Daemon, Settings};

mod differences;
mod engine;
mod limits;
mod lost;
mod queue;

/// A daemon with a pool of `size`, whose interpreters have imported `preload`, once it is full.
pub(crate) async fn full_pool(size: usize, preload: &[&str], further: &str) -> Daemon {
    let settings = Settings {
        toml: format!("[pool]\nsize = {size}\npreload = {preload:?}\n{further}"),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    until_full(&daemon, size).await;
    daemon
}

pub(crate) async fn until_full(daemon: &Daemon, size: usize) {
    let ask = || async { daemon.get("/ready").await.1["pool"]["waiting"].take() };
    until(PATIENCE, ask, |waiting: &Value| *waiting == size).await;
}

fn start(result: &Value) -> &str {
    result["sandbox"]["start"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_takes_a_sandbox_that_waits_and_another_takes_its_place() {
    let daemon = full_pool(2, &["json"], "").await;
    let before = running_containers_of(&daemon.instance()).await;
    assert_eq!(before.len(), 2);
    let result = daemon.execute("print('hello')").await;
    assert_eq!(result["stdout"], "hello\n", "{result:#}");
    assert_eq!(result["status"], "SUCCESS");
    assert_eq!(
        result["sandbox"],
        json!({"start": "preloaded", "dataset_mount": null})
    );
    let id = result["execution_id"].as_str().unwrap();
    assert!(
        before.iter().any(|name| name.ends_with(id)),
        "{id} waited before the run was there: {before:?}"
    );
    until_full(&daemon, 2).await;
    let gone = || containers_of_run(&daemon, id);
    until(PATIENCE, gone, |left: &Vec<String>| left.is_empty()).await;
}

async fn containers_of_run(daemon: &Daemon, id: &str) -> Vec<String> {
    let mut names = containers_of(&daemon.instance()).await;
    names.retain(|name| name.ends_with(id));
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn no_sandbox_is_given_to_two_runs() {
    let daemon = full_pool(3, &["random"], "[app]\nmax_concurrent_runs = 6").await;
    let code = "
import os, random
left = sorted(os.listdir('/work')) + os.listdir('/tmp') + os.listdir('/dev/shm')
for place in ('/work', '/work/out', '/tmp', '/dev/shm'):
    open(f'{place}/mark', 'w').close()
print(left, os.getuid(), random.random(), hash('x'), os.urandom(4).hex())
";
    let mut waiting = 0;
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let runs = (0..6).map(|_| daemon.execute(code));
        for result in futures_util::future::join_all(runs).await {
            let text = result["stdout"].as_str().unwrap().to_owned();
            let (left, rest) = text.split_once("] ").unwrap();
            assert_eq!(left, "['.cache', '.home', 'out', 'script.py'", "{result:#}");
            let (_uid, random) = rest.split_once(' ').unwrap();
            for number in random.split_whitespace() {
                assert!(seen.insert(number.to_owned()), "{number} came twice");
            }
            assert!(seen.insert(result["execution_id"].to_string()));
            waiting += usize::from(start(&result) == "preloaded");
        }
    }
    assert!(waiting >= 3, "those that waited were used");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_died_is_not_handed_out() {
    let daemon = full_pool(2, &[], "").await;
    let killed = running_containers_of(&daemon.instance()).await;
    for name in &killed {
        let name = name.trim_start_matches('/');
        let kill = None::<bollard::query_parameters::KillContainerOptions>;
        docker().await.kill_container(name, kill).await.unwrap();
    }
    for _ in 0..4 {
        let result = daemon.execute("print('alive')").await;
        assert_eq!(result["stdout"], "alive\n", "{result:#}");
        let id = result["execution_id"].as_str().unwrap();
        assert!(!killed.iter().any(|name| name.ends_with(id)), "{id}");
    }
    until_full(&daemon, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_set_is_mounted_into_the_waiting_sandbox_and_nothing_can_change_it() {
    let daemon = full_pool(1, &[], "").await;
    for name in ["one", "two"] {
        let directory = daemon.data().join(name);
        std::fs::create_dir(&directory).unwrap();
        // Open to everybody: only the mount stands in the way.
        let file = directory.join("data.csv");
        std::fs::write(&file, name).unwrap();
        std::fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
        std::fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
    }
    let hash = tree_hash(&daemon.data());
    let code = "
import os
print(sorted(os.listdir('/data')), open('/data/data.csv').read())
for attempt in (lambda: open('/data/data.csv', 'a'), lambda: open('/data/new', 'w'),
                lambda: os.unlink('/data/data.csv'), lambda: os.chmod('/data', 0o777)):
    try:
        attempt()
        print('changed it')
    except OSError as error:
        print(error.strerror)
mounts = [line.split() for line in open('/proc/self/mountinfo') if line.split()[4] == '/data']
print(sorted(set(mounts[-1][5].split(',')) & {'ro', 'rw', 'nosuid', 'nodev'}))
";
    for name in ["one", "two"] {
        let body = json!({"code": code, "dataset_path": format!("data/{name}")});
        let result = daemon.result(body).await;
        let refused = "Read-only file system\n".repeat(4);
        assert_eq!(
            result["stdout"],
            format!("['data.csv'] {name}\n{refused}['nodev', 'nosuid', 'ro']\n"),
            "{result:#}"
        );
        assert_eq!(
            result["sandbox"],
            json!({"start": "warm", "dataset_mount": "placed"})
        );
        until_full(&daemon, 1).await;
    }
    assert_eq!(tree_hash(&daemon.data()), hash);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_data_set_that_was_replaced_is_refused_for_a_waiting_sandbox_too() {
    let daemon = full_pool(1, &[], "[app]\nmax_concurrent_runs = 1").await;
    let directory = daemon.data().join("set");
    std::fs::create_dir(&directory).unwrap();
    let hold = json!({"code": "import time\nwhile True: time.sleep(1)"});
    let holder = daemon.submit(hold).await;
    let queued = json!({"code": "print(1)", "dataset_path": "data/set"});
    let queued = daemon.submit(queued).await;
    std::fs::rename(&directory, daemon.data().join("old")).unwrap();
    std::os::unix::fs::symlink("/etc", &directory).unwrap();
    let (status, _) = daemon
        .post(&format!("/runs/{holder}/cancel"), &json!({}))
        .await;
    assert_eq!(status, 200);
    let run = daemon.ended(&queued).await;
    assert_eq!(run["status"], "FAIL", "{run}");
    let error = run["final_error"].as_str().unwrap();
    assert!(error.contains("data set changed"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_pool_every_sandbox_is_made_for_its_run() {
    let daemon = Daemon::start().await;
    std::fs::create_dir(daemon.data().join("set")).unwrap();
    let result = daemon.execute("print(1)").await;
    assert_eq!(start(&result), "cold");
    let body = json!({"code": "print(1)", "dataset_path": "data/set"});
    let result = daemon.result(body).await;
    assert_eq!(
        result["sandbox"],
        json!({"start": "cold", "dataset_mount": "created"})
    );
    assert_eq!(daemon.get("/ready").await.1["pool"]["waiting"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_for_often_waits_and_what_is_not_gives_way() {
    let daemon = full_pool(2, &[], "").await;
    let body = json!({"code": "print(1)", "options": {"memory_mb": 300}});
    let first = daemon.result(body.clone()).await;
    assert_eq!(start(&first), "cold", "nobody had asked for 300 MiB before");
    let ask = || daemon.result(body.clone());
    let result = until(PATIENCE, ask, |result: &Value| start(result) == "warm").await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    until_full(&daemon, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_may_refuse_an_interpreter_that_has_started_before() {
    let daemon = full_pool(1, &["json"], "").await;
    let code = "import sys; print('json' in sys.modules)";
    let refusing = json!({"code": code, "options": {"preload": false}});
    let result = daemon.result(refusing).await;
    assert_eq!(result["stdout"], "False\n", "{result:#}");
    assert_ne!(start(&result), "preloaded");
    let (status, answer) = daemon
        .post("/runs", &json!({"code": code, "options": {"preload": []}}))
        .await;
    assert_eq!(status, 422, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_s_waiting_sandboxes_are_removed_and_replaced() {
    let mut daemon = full_pool(2, &[], "").await;
    let before = containers_of(&daemon.instance()).await;
    daemon.kill();
    daemon.launch();
    until_full(&daemon, 2).await;
    let after = containers_of(&daemon.instance()).await;
    assert!(before.iter().all(|name| !after.contains(name)), "{after:?}");
    let result = daemon.execute("print(1)").await;
    assert_eq!(start(&result), "warm", "{result:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_that_an_image_does_not_have_are_skipped_and_named_in_the_log() {
    let daemon = full_pool(1, &["json", "no_such_module"], "").await;
    let result = daemon
        .execute("import sys; print('json' in sys.modules)")
        .await;
    assert_eq!(result["stdout"], "True\n", "{result:#}");
    assert_eq!(start(&result), "preloaded");
    assert!(daemon.log().contains("no_such_module"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_missing_makes_the_pool_wait_and_the_runs_fail_with_the_reason() {
    let settings = Settings {
        toml: "[pool]\nsize = 2\n[execution]\nimage = 'fumehood/none:1'".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let result = daemon.execute("print(1)").await;
    assert_eq!(result["status"], "ERROR", "{result:#}");
    let text = result["error_info"].as_str().unwrap();
    assert!(text.contains("fumehood/none:1 is not installed"), "{text}");
    assert!(daemon.log().lines().count() < 60, "{}", daemon.log());
}
