//! An end that the engine does not confirm.

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::support::engine::{containers_of, inspect};
use crate::support::watch::only_container;

const OWN_UID: &str = "import os; print(os.getuid())";

/// Stops the supervisor of a container, so that the daemon itself has to end it.
async fn stop_supervisor(container: &str) {
    let pid = inspect(container).await.state.unwrap().pid.unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).expect("the tests run as root");
}

/// Its lines are written behind the back of what they tell of.
async fn until_logged(daemon: &Daemon, words: &str) {
    until(SOON, async || daemon.log(), |log| log.contains(words)).await;
}

async fn assert_nothing_set_aside(daemon: &Daemon, run: &Value) {
    let warnings = run["result"]["warnings"].to_string();
    assert!(!warnings.contains("set aside"), "{run:#}");
    assert_eq!(daemon.get("/ready").await.1["set_aside"], Value::Null);
}

/// F9.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_that_is_not_confirmed_sets_the_sandbox_and_its_uid_aside_and_blocks_nobody() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "kill_seconds = 2").await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 3.0), "armed").await;
    stop_supervisor(&only_container(&daemon).await).await;
    let kills = proxy.fault("POST", "/kill", Fault::Hang);
    proxy.fault("DELETE", "/containers/", Fault::Hang);
    let started = Instant::now();
    let run = flight.end(&daemon).await;
    // Its limit, the supervisor's grace and one kill; nobody waits for the removal or asks more.
    assert!(started.elapsed() < Duration::from_secs(12), "{started:?}");
    assert!(kills.count() > 0);
    let result = &run["result"];
    // Not a time limit, after which nothing runs: the engine is there and does not say so.
    assert_eq!(result["status"], "ERROR", "{run:#}");
    assert_eq!(result["cause"]["kind"], "infrastructure");
    assert_eq!(result["timed_out"], false);
    assert_eq!(result["return_code"], Value::Null);
    assert_eq!(result["stdout"], "armed\n");
    let why = run["final_error"].as_str().unwrap();
    assert!(why.contains("could not be confirmed"), "{why}");
    assert!(
        result["warnings"].to_string().contains("set aside until"),
        "{run:#}"
    );
    until_logged(&daemon, "it is set aside, with its uid").await;
    // It is still there, so its uid is nobody else's; and nobody waits for it.
    assert_eq!(containers_of(&daemon.instance()).await.len(), 1);
    assert_eq!(daemon.execute(OWN_UID).await["stdout"], "50001\n");
    until_ready(&daemon).await;
    assert_eq!(daemon.get("/ready").await.1["set_aside"], 1);
    let metrics = metrics(&daemon).await;
    assert!(
        metrics.contains("fumehood_sandboxes_set_aside 1\n"),
        "{metrics}"
    );
    proxy.behave();
    nothing_left(&daemon, SOON).await;
    until_logged(&daemon, "set aside is gone").await;
    assert_eq!(daemon.get("/ready").await.1["set_aside"], Value::Null);
    assert_eq!(daemon.execute(OWN_UID).await["stdout"], "50000\n");
    nothing_left(&daemon, SOON).await;
}

/// Negative control of the test before: a kill that the engine confirms sets nothing aside.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_that_is_confirmed_sets_nothing_aside() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "kill_seconds = 2").await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 3.0), "armed").await;
    stop_supervisor(&only_container(&daemon).await).await;
    let run = flight.end(&daemon).await;
    assert_eq!(run["result"]["status"], "TIMEOUT", "{run:#}");
    assert_nothing_set_aside(&daemon, &run).await;
    assert_eq!(daemon.execute(OWN_UID).await["stdout"], "50000\n");
    nothing_left(&daemon, SOON).await;
}

/// The engine says that it could not: an answer, and no confirmation.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_that_the_engine_says_has_failed_is_not_confirmed_either() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "").await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 3.0), "armed").await;
    stop_supervisor(&only_container(&daemon).await).await;
    let words = "tried to kill container, but did not receive an exit event";
    proxy.fault("POST", "/kill", Fault::Refuse(500, words));
    let run = flight.end(&daemon).await;
    assert_eq!(run["result"]["status"], "ERROR", "{run:#}");
    assert!(run["result"]["warnings"].to_string().contains("set aside"));
    proxy.behave();
    nothing_left(&daemon, SOON).await;
}

/// Nobody was told, but everybody can see it.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_whose_answer_is_lost_is_seen_to_have_been_done_and_sets_nothing_aside() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "").await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 3.0), "armed").await;
    stop_supervisor(&only_container(&daemon).await).await;
    let kills = proxy.fault("POST", "/kill", Fault::LoseAnswer);
    let run = flight.end(&daemon).await;
    assert!(kills.count() > 0);
    assert_eq!(run["result"]["status"], "TIMEOUT", "{run:#}");
    assert_nothing_set_aside(&daemon, &run).await;
    proxy.behave();
    nothing_left(&daemon, SOON).await;
}

/// Who asked for the end hears that it was ended for them, and that something is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_whose_end_is_not_confirmed_is_cancelled_and_its_sandbox_set_aside() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "kill_seconds = 2").await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 60.0), "armed").await;
    stop_supervisor(&only_container(&daemon).await).await;
    proxy.fault("POST", "/kill", Fault::Hang);
    let path = format!("/runs/{}/cancel", flight.id);
    assert_eq!(daemon.post(&path, &json!({})).await.0, 200);
    let run = flight.end(&daemon).await;
    assert_eq!(run["status"], "CANCELLED", "{run:#}");
    assert!(run["result"]["warnings"].to_string().contains("set aside"));
    until_logged(&daemon, "it is set aside, with its uid").await;
    proxy.behave();
    nothing_left(&daemon, SOON).await;
}

/// Sandboxes that stay use memory and uids: no more than a given number of them.
#[tokio::test(flavor = "multi_thread")]
async fn with_too_many_sandboxes_set_aside_runs_wait_until_they_are_gone() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "remove_seconds = 1\nmax_quarantined = 2").await;
    proxy.fault("DELETE", "/containers/", Fault::Hang);
    for _ in 0..2 {
        assert_works(&daemon).await;
    }
    until_held(&daemon, "2 are set aside").await;
    let flights = submit_all(&daemon, 2).await;
    for flight in &flights {
        assert_eq!(status(&daemon, &flight.id).await, "QUEUED");
    }
    proxy.behave();
    assert_all_succeed(&daemon, &flights).await;
    until_ready(&daemon).await;
    nothing_left(&daemon, SOON).await;
}
