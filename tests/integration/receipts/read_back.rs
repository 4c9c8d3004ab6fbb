//! What a receipt says of a sandbox is what the engine and the supervisor said of the very one that the
//! program ran in, wherever it came from.

use std::collections::BTreeMap;
use std::sync::Arc;

use bollard::query_parameters::KillContainerOptions;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{receipt, statement};
use crate::pool::full_pool;
use crate::support::daemon::PATIENCE;
use crate::support::engine::{docker, inspect, running_containers_of};
use crate::support::proxy::{Fault, Proxy};
use crate::support::wait::until;
use crate::support::watch::Flight;
use crate::support::{Daemon, Settings};

/// The statement about a run.
async fn stated(daemon: &Daemon, run: &Value) -> Value {
    statement(&receipt(daemon, run["run_id"].as_str().unwrap()).await)
}

/// Settings that nobody asks for, so that only the engine's answer can have them.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_engine_answers_is_told_and_not_what_it_was_asked_for() {
    let proxy = Proxy::start();
    let daemon = Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    let answering = |from: &'static str, to: &'static str| Fault::Alter {
        request: Arc::new(std::convert::identity),
        answer: Arc::new(move |text: String| text.replace(from, to)),
    };
    let profile = r#""AppArmorProfile":"told-by-the-engine""#;
    let inspected = answering(r#""AppArmorProfile":"""#, profile);
    // Archives hold bytes and no text.
    proxy.fault("GET", "/archive", Fault::Pass);
    proxy.fault("GET", "/containers/fumehood-", inspected);
    let version = answering(r#""KernelVersion":""#, r#""KernelVersion":"told-"#);
    proxy.fault("GET", "/version", version);
    let run = daemon.run(json!({ "code": "print()" })).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    let applied = &stated(&daemon, &run).await["isolation"]["applied"];
    assert_eq!(applied["apparmor_profile"], "told-by-the-engine");
    let kernel = applied["engine"]["kernel"].as_str().unwrap();
    assert!(kernel.starts_with("told-"), "{kernel}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_sandbox_is_told_as_it_was_when_it_was_used() {
    let daemon = full_pool(1, &["json"], "").await;
    std::fs::create_dir(daemon.data().join("set")).unwrap();
    let body = json!({ "code": "print()", "dataset_path": "data/set" });
    let run = daemon.run(body).await;
    let stated = stated(&daemon, &run).await;
    let used = &run["result"]["sandbox"];
    assert_ne!(used["start"], "cold", "{run:#}");
    for key in ["start", "dataset_mount"] {
        assert_eq!(stated["sandbox"][key], used[key], "{key}");
    }
    let found = &stated["isolation"]["found"];
    assert_eq!(
        found["dataset"],
        json!({ "read_only": true, "readable": true })
    );
    assert_eq!(stated["dataset"]["listing"]["entries"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_waiting_sandboxes_each_receipt_tells_of_the_one_that_was_used() {
    let daemon = full_pool(3, &["json"], "[app]\nmax_concurrent_runs = 3").await;
    let waiting = daemon.instance();
    let mut applied = BTreeMap::new();
    for name in running_containers_of(&waiting).await {
        let host = inspect(&name).await;
        let user = host.config.unwrap().user.unwrap();
        applied.insert(user, host.host_config.unwrap().memory.unwrap());
    }
    assert_eq!(applied.len(), 3);
    let code = "import os, time; print(os.getuid()); time.sleep(0.5)";
    let runs = (0..3).map(|_| daemon.run(json!({ "code": code })));
    for run in join_all(runs).await {
        let stated = stated(&daemon, &run).await;
        assert_eq!(stated["sandbox"]["start"], "preloaded", "{run:#}");
        let printed = run["result"]["stdout"].as_str().unwrap().trim_end();
        assert_eq!(stated["isolation"]["found"]["uid"].to_string(), printed);
        let user = format!("{printed}:{printed}");
        let told = &stated["isolation"]["applied"];
        assert_eq!(told["user"], user.as_str());
        // Of this very container, as the engine showed it before the run was there.
        assert_eq!(
            told["limits"]["memory_bytes"],
            applied.remove(&user).unwrap()
        );
    }
}

/// The one that was taken first is not the one that is told of.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_waiting_sandbox_died_the_receipt_tells_of_the_one_that_was_made_for_it() {
    let daemon = full_pool(1, &["json"], "[app]\nmax_concurrent_runs = 1").await;
    let waiting = running_containers_of(&daemon.instance()).await;
    let name = waiting[0].trim_start_matches('/');
    docker().await.pause_container(name).await.unwrap();
    let first = inspect(name).await.host_config.unwrap().tmpfs.unwrap();
    assert!(first.contains_key("/data"), "{first:?}");
    std::fs::create_dir(daemon.data().join("set")).unwrap();
    let body = json!({ "code": "print()", "dataset_path": "data/set" });
    let flight = Flight::start(&daemon, body).await;
    let runs = || async { daemon.get("/runs").await.1 };
    until(PATIENCE, runs, |runs| runs.to_string().contains("RUNNING")).await;
    let kill = None::<KillContainerOptions>;
    docker().await.kill_container(name, kill).await.unwrap();
    let run = flight.end(&daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    let stated = stated(&daemon, &run).await;
    assert_eq!(stated["sandbox"]["start"], "cold", "{run:#}");
    let mounts = &stated["isolation"]["applied"]["mounts"];
    assert_eq!(mounts[0]["target"], "/data", "{mounts:#}");
    assert_eq!(mounts[0]["kind"], "bind", "{mounts:#}");
}
