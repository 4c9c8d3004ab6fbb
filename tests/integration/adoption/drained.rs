//! Asked to stop: what runs may end, and what runs longer is for the next daemon.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{LINES, assert_untouched, body, only_handoff};
use crate::support::daemon::PATIENCE;
use crate::support::engine::{Starts, remove, running_containers_of};
use crate::support::proxy::{Fault, Proxy};
use crate::support::wait::until;
use crate::support::watch::{Flight, limited, nothing_left, only_container, printed};
use crate::support::{Daemon, Settings};

async fn draining_for(drain_seconds: u64, toml: &str) -> Daemon {
    Daemon::start_with(Settings {
        drain_seconds,
        toml: toml.to_owned(),
        ..Settings::default()
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_drains_it_takes_nothing_new_answers_questions_and_lets_runs_end() {
    let mut daemon = draining_for(60, "").await;
    let flight = Flight::start_until(&daemon, body(), "line 10").await;
    daemon.ask_to_stop();
    let refused = async || {
        let request = daemon.request(reqwest::Method::POST, "/runs");
        let answer = request.json(&json!({ "code": "print()" })).send().await;
        let answer = answer.unwrap();
        let retry = answer.headers().get("retry-after").cloned();
        (answer.status().as_u16(), retry)
    };
    let (_, retry) = until(PATIENCE, refused, |(status, _)| *status == 503).await;
    assert!(retry.unwrap().to_str().unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(daemon.get("/ready").await.0, 503);
    assert_eq!(daemon.get("/health").await.0, 200);
    // Whoever waits for the end gets it.
    assert_untouched(&flight.end(&daemon).await);
    assert_eq!(daemon.gone(), Some(0));
    daemon.launch();
    assert_untouched(&flight.end(&daemon).await);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_longer_than_the_drain_is_finished_by_the_next_daemon() {
    let mut daemon = draining_for(1, "").await;
    let starts = Starts::watch(&daemon.instance()).await;
    let flight = Flight::start_until(&daemon, body(), "line 10").await;
    let execution = only_handoff(&daemon).await;
    let asked = Instant::now();
    daemon.ask_to_stop();
    assert_eq!(daemon.gone(), Some(0));
    let took = asked.elapsed();
    assert!((1..8).contains(&took.as_secs()), "{took:?}");
    assert_eq!(running_containers_of(&daemon.instance()).await.len(), 1);
    daemon.launch();
    assert_untouched(&flight.end(&daemon).await);
    assert_eq!(starts.of(&execution), 1);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_twice_it_leaves_at_once_and_what_runs_is_not_touched() {
    let mut daemon = draining_for(60, "").await;
    let flight = Flight::start_until(&daemon, body(), "line 10").await;
    daemon.ask_to_stop();
    until(
        PATIENCE,
        async || daemon.get("/ready").await.0,
        |status| *status == 503,
    )
    .await;
    let asked = Instant::now();
    daemon.ask_again_to_stop();
    assert_eq!(daemon.gone(), Some(1));
    assert!(asked.elapsed() < Duration::from_secs(5), "{asked:?}");
    daemon.launch();
    assert_untouched(&flight.end(&daemon).await);
}

/// The engine does not remove the last sandboxes, and nobody has to wait for that.
#[tokio::test(flavor = "multi_thread")]
async fn asked_twice_it_leaves_at_once_in_the_end_as_well() {
    let proxy = Proxy::start();
    let mut daemon = Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    // The supervisor's volume is there after this: that is filled from a container that has to go.
    daemon.execute("print('first')").await;
    nothing_left(&daemon, Duration::from_secs(30)).await;
    let removals = proxy.fault("DELETE", "/containers/", Fault::Hang);
    daemon.execute("print('over')").await;
    until(PATIENCE, async || removals.count(), |count| *count > 0).await;
    daemon.ask_to_stop();
    let is_there = async || {
        let asked = daemon.request(reqwest::Method::GET, "/health").send().await;
        asked.is_ok()
    };
    until(PATIENCE, is_there, |there| !there).await;
    let asked = Instant::now();
    daemon.ask_again_to_stop();
    assert_eq!(daemon.gone(), Some(1));
    assert!(asked.elapsed() < Duration::from_secs(10), "{asked:?}");
    proxy.behave();
}

/// Programs that were not started yet have nothing that could be gone on with: their sandboxes go,
/// and they start in new ones.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_and_what_is_being_prepared_starts_with_the_next_daemon() {
    let mut daemon = draining_for(0, "[app]\nmax_concurrent_runs = 2").await;
    let mut ids = Vec::new();
    for number in 0..8 {
        let code = format!("print({number})");
        ids.push(daemon.submit(json!({ "code": code })).await);
    }
    daemon.stop();
    daemon.launch();
    for id in &ids {
        assert_eq!(daemon.ended(id).await["status"], "SUCCESS");
    }
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// Nothing new is started by a daemon that goes down, and it does not wait for what it will not start.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_in_the_drain_is_tried_again_by_the_next_daemon() {
    let mut daemon = draining_for(60, "").await;
    let body = json!({
        "code": LINES,
        "options": { "timeout_seconds": 60.0, "retries": 1 },
    });
    let flight = Flight::start_until(&daemon, body, "line 10").await;
    let execution = only_handoff(&daemon).await;
    let container = only_container(&daemon).await;
    daemon.ask_to_stop();
    let ready = async || daemon.get("/ready").await.0;
    until(PATIENCE, ready, |status| *status == 503).await;
    remove(&container).await;
    let lost = Instant::now();
    assert_eq!(daemon.gone(), Some(0));
    assert!(lost.elapsed() < Duration::from_secs(50), "{lost:?}");
    assert_eq!(daemon.handoffs(), std::slice::from_ref(&execution));
    daemon.launch();
    let mut run = flight.end(&daemon).await;
    let warnings = run["result"]["warnings"].take();
    let told = warnings[0].as_str().unwrap();
    assert!(told.starts_with("Attempt 1 of 2 was ended"), "{told}");
    assert_ne!(run["result"]["execution_id"], execution);
    run["result"]["warnings"] = json!([]);
    assert_untouched(&run);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// How long the longest program runs while the daemon is replaced, in seconds.
/// `FUMEHOOD_TEST_UPGRADE_SECONDS` asks for another number.
fn long_seconds() -> u64 {
    let asked = std::env::var("FUMEHOOD_TEST_UPGRADE_SECONDS").ok();
    asked.map_or(25, |number| number.parse().unwrap())
}

/// An upgrade: the file is replaced while runs go on and others arrive, and no run notices.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_is_replaced_under_load_and_no_run_notices() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = place.path().join("fumehood");
    let install = || {
        let new = place.path().join("new");
        std::fs::copy(env!("CARGO_BIN_EXE_fumehood"), &new).unwrap();
        std::fs::rename(&new, &program).unwrap();
    };
    install();
    let mut daemon = Daemon::start_with(Settings {
        toml: "[app]\nmax_concurrent_runs = 3".to_owned(),
        program: Some(program.clone()),
        ..Settings::default()
    })
    .await;
    let seconds = long_seconds();
    let code = format!(
        "import time\n\
         for number in range({seconds}):\n    print(f'second {{number}}')\n    time.sleep(1)\n"
    );
    let long = Flight::start_until(&daemon, limited(&code, 120.0), "second 1").await;
    let mut flights = Vec::new();
    for upgrade in 0..3 {
        for _ in 0..2 {
            flights.push(Flight::start(&daemon, body()).await);
        }
        printed(&daemon, &flights[2 * upgrade].id, "line 10").await;
        install();
        daemon.ask_to_stop();
        assert_eq!(daemon.gone(), Some(0));
        daemon.launch();
    }
    for flight in &flights {
        assert_untouched(&flight.end(&daemon).await);
    }
    let run: Value = long.end(&daemon).await;
    let expected: String = (0..seconds)
        .map(|number| format!("second {number}\n"))
        .collect();
    assert_eq!(run["status"], "SUCCESS", "{run}");
    assert_eq!(run["result"]["stdout"], expected);
    assert_eq!(run["result"]["warnings"], json!([]));
    nothing_left(&daemon, Duration::from_secs(10)).await;
    daemon.stop();
}
