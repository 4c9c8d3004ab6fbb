//! A sandbox that freezes or dies after it was kept for a run: the run gets another one, as long as
//! nothing of its program can have run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bollard::query_parameters::KillContainerOptions;
use fumehood_protocol::ToSupervisor;
use serde_json::{Value, json};

use super::{full_pool, start, until_full};
use crate::support::daemon::PATIENCE;
use crate::support::engine::{docker, running_containers_of};
use crate::support::proxy::{Fault, Proxy, Retelling};
use crate::support::wait::until;
use crate::support::watch::{Flight, nothing_left};
use crate::support::{Daemon, Settings};

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

/// The supervisor hears that it shall start the program, and does; its answer never arrives.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_start_was_not_answered_is_lost_and_never_started_a_second_time() {
    let proxy = Proxy::start();
    let (armed, starts) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (is_armed, counted, cut) = (Arc::clone(&armed), Arc::clone(&starts), proxy.cutter());
    let retelling = Retelling::to(move |message| {
        if matches!(message, ToSupervisor::Start(_)) && is_armed.load(Ordering::SeqCst) {
            counted.fetch_add(1, Ordering::SeqCst);
            cut();
        }
    });
    proxy.fault("POST", "/attach", Fault::Retell(retelling));
    for pool in ["[pool]\nsize = 1\npreload = []", ""] {
        let daemon = Daemon::start_with(Settings {
            toml: pool.to_owned(),
            engine: Some(proxy.socket()),
            ..Settings::default()
        })
        .await;
        if !pool.is_empty() {
            until_full(&daemon, 1).await;
        }
        armed.store(true, Ordering::SeqCst);
        starts.store(0, Ordering::SeqCst);
        let run = daemon.run(json!({"code": "print('ran')"})).await;
        armed.store(false, Ordering::SeqCst);
        assert_eq!(starts.load(Ordering::SeqCst), 1, "{pool}: {run:#}");
        assert_eq!(run["status"], "FAIL", "{run:#}");
        assert_eq!(run["result"]["status"], "ERROR");
        assert_eq!(run["result"]["cause"]["kind"], "infrastructure");
        let why = run["final_error"].as_str().unwrap();
        assert!(
            why.contains("whether anything of it ran is not known"),
            "{why}"
        );
        let result = daemon.execute("print('works')").await;
        assert_eq!(result["stdout"], "works\n", "{result:#}");
        if pool.is_empty() {
            nothing_left(&daemon, PATIENCE).await;
        }
    }
}
