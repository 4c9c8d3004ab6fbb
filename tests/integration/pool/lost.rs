//! A sandbox that freezes or dies after it was kept for a run: the run gets another one.

use bollard::query_parameters::KillContainerOptions;
use serde_json::{Value, json};

use super::{full_pool, start};
use crate::support::Daemon;
use crate::support::daemon::PATIENCE;
use crate::support::engine::{docker, running_containers_of};
use crate::support::wait::until;
use crate::support::watch::Flight;

/// Freezes the only sandbox that waits, so that it is handed out and answers nothing.
async fn freeze(daemon: &Daemon) -> String {
    let waiting = running_containers_of(&daemon.instance()).await;
    let [name] = &waiting[..] else {
        panic!("one waits: {waiting:?}");
    };
    let name = name.trim_start_matches('/').to_owned();
    docker().await.pause_container(&name).await.unwrap();
    name
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_sandbox_dies_before_its_program_has_started_gets_another() {
    let daemon = full_pool(1, &["json"], "[app]\nmax_concurrent_runs = 1").await;
    let name = freeze(&daemon).await;
    let run = Flight::start(&daemon, json!({"code": "print('ran')"})).await;
    let runs = || async { daemon.get("/runs").await.1 };
    let is_running = |runs: &Value| runs.to_string().contains("RUNNING");
    until(PATIENCE, runs, is_running).await;
    let kill = None::<KillContainerOptions>;
    docker().await.kill_container(&name, kill).await.unwrap();
    let ended = run.end(&daemon).await;
    let result = &ended["result"];
    assert_eq!(result["stdout"], "ran\n", "{ended:#}");
    assert_eq!(start(result), "cold");
    assert!(name.ends_with(result["execution_id"].as_str().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_data_set_cannot_be_placed_gets_a_sandbox_that_is_made_with_it() {
    let daemon = full_pool(1, &["json"], "[app]\nmax_concurrent_runs = 1").await;
    let directory = daemon.data().join("set");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("x"), "").unwrap();
    freeze(&daemon).await;
    let code = "import os; print(os.listdir('/data'))";
    let body = json!({"code": code, "dataset_path": "data/set"});
    let result = daemon.result(body).await;
    assert_eq!(result["stdout"], "['x']\n", "{result:#}");
    let made = json!({"start": "cold", "dataset_mount": "created"});
    assert_eq!(result["sandbox"], made);
}
