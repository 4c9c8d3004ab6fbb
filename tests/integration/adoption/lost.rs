//! Executions of whose end nothing can be known any more: ours to answer for, never the program's.

use std::time::Duration;

use serde_json::{Value, json};

use super::{LINES, assert_untouched, body, only_handoff};
use crate::support::Daemon;
use crate::support::engine::{Starts, kill, remove};
use crate::support::watch::{Flight, nothing_left, only_container};

/// No exit code, no limit, no word that blames the program; what it had printed is no proof of
/// anything.
fn assert_ours(run: &Value) {
    let result = &run["result"];
    assert_eq!(run["status"], "FAIL", "{run}");
    assert_eq!(result["status"], "ERROR", "{run}");
    assert_eq!(result["cause"]["kind"], "infrastructure");
    assert_eq!(result["return_code"], Value::Null);
    assert_eq!(result["timed_out"], false);
    assert_eq!(result["limit"], Value::Null);
    let why = result["error_info"].as_str().unwrap();
    assert!(why.contains("not at fault"), "{why}");
    assert_eq!(run["final_error"], why);
}

/// Killed in the midst of [`LINES`]; `meanwhile` is done to the container before the next start.
async fn killed_and(meanwhile: impl AsyncFnOnce(&Daemon, &str), body: Value) -> (Daemon, Value) {
    let mut daemon = Daemon::start().await;
    let flight = Flight::start_until(&daemon, body, "line 20").await;
    let container = only_container(&daemon).await;
    daemon.kill();
    meanwhile(&daemon, &container).await;
    daemon.launch();
    let run = flight.end(&daemon).await;
    nothing_left(&daemon, Duration::from_secs(10)).await;
    assert_eq!(daemon.handoffs(), Vec::<String>::new());
    (daemon, run)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_vanished_is_no_failure_of_its_program() {
    let gone = async |_: &Daemon, container: &str| remove(container).await;
    let (daemon, run) = killed_and(gone, body()).await;
    assert_ours(&run);
    let evidence = run["result"]["cause"]["evidence"].to_string();
    assert!(evidence.contains("is gone"), "{evidence}");
    let receipt = daemon
        .get(&format!(
            "/runs/{}/receipt",
            run["run_id"].as_str().unwrap()
        ))
        .await;
    assert_eq!(receipt.0, 200);
}

/// What a container looks like after its engine was started anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_was_stopped_is_no_failure_of_its_program() {
    let stopped = async |_: &Daemon, container: &str| kill(container).await;
    let (_daemon, run) = killed_and(stopped, body()).await;
    assert_ours(&run);
    let evidence = run["result"]["cause"]["evidence"].to_string();
    assert!(evidence.contains("restarted"), "{evidence}");
}

/// Whatever is in the file, nothing is started a second time.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_lost_and_not_started_again() {
    let mut daemon = Daemon::start().await;
    let starts = Starts::watch(&daemon.instance()).await;
    let flight = Flight::start_until(&daemon, body(), "line 20").await;
    let execution = only_handoff(&daemon).await;
    daemon.kill();
    let file = daemon.path().join("state/handoffs").join(&execution);
    std::fs::write(file, "{\"version\":1,").unwrap();
    daemon.launch();
    let run = flight.end(&daemon).await;
    assert_ours(&run);
    assert_eq!(starts.of(&execution), 1);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// A supervisor that is asked with another token than its own does not go on.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_know_the_token_gets_nothing() {
    let mut daemon = Daemon::start().await;
    let flight = Flight::start_until(&daemon, body(), "line 20").await;
    let execution = only_handoff(&daemon).await;
    daemon.kill();
    let file = daemon.path().join("state/handoffs").join(&execution);
    let mut handoff: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    handoff["token"] = json!(vec![0; 16]);
    std::fs::write(&file, handoff.to_string()).unwrap();
    daemon.launch();
    assert_ours(&flight.end(&daemon).await);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// Without being asked to, nothing is started twice: the test above is the other half of this one.
#[tokio::test(flavor = "multi_thread")]
async fn who_asked_for_another_attempt_gets_it() {
    let body = json!({
        "code": LINES,
        "options": { "timeout_seconds": 60.0, "retries": 1 },
    });
    let gone = async |_: &Daemon, container: &str| remove(container).await;
    let (daemon, mut run) = killed_and(gone, body).await;
    let warnings = run["result"]["warnings"].take();
    let told = warnings[0].as_str().unwrap();
    assert!(
        told.starts_with("Attempt 1 of 2 was ended by the infrastructure: "),
        "{told}"
    );
    run["result"]["warnings"] = json!([]);
    assert_untouched(&run);
    // Both attempts have a receipt, and the last one's is the run's.
    let id = run["run_id"].as_str().unwrap();
    let receipt = daemon
        .get(&format!("/runs/{id}/receipt"))
        .await
        .1
        .to_string();
    assert!(receipt.contains(run["result"]["execution_id"].as_str().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_fails_is_not_tried_again() {
    let daemon = Daemon::start().await;
    let body = json!({ "code": "raise SystemExit(3)", "options": { "retries": 5 } });
    let run = daemon.run(body).await;
    assert_eq!(run["result"]["return_code"], 3, "{run}");
    assert_eq!(run["result"]["warnings"], json!([]));
    nothing_left(&daemon, Duration::from_secs(10)).await;
}
