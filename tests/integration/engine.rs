//! The engine is away, hangs or answers late, by kind of call: runs wait and are not lost, none is
//! blamed for it, nothing is left, and everything heals without a restart.

mod calls;
mod quarantine;

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::daemon::PATIENCE;
use crate::support::proxy::{Fault, Hits, Proxy};
use crate::support::wait::until;
use crate::support::watch::{Flight, limited, nothing_left};
use crate::support::{Daemon, Settings};

const SLEEPS: &str = "import time; print('armed\\n', end=''); time.sleep(60)";

/// What the daemon needs to notice that the engine is back, and to remove what it made.
const SOON: Duration = Duration::from_secs(45);

/// A daemon whose engine has answered once, with these keys of `[engine]`.
async fn daemon_behind(proxy: &Proxy, keys: &str) -> Daemon {
    let daemon = Daemon::start_with(Settings {
        toml: format!("[app]\nmax_concurrent_runs = 2\n[engine]\n{keys}"),
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    // The supervisor's volume is there after this, so that what follows meets the run's own calls.
    assert_works(&daemon).await;
    nothing_left(&daemon, SOON).await;
    daemon
}

async fn assert_works(daemon: &Daemon) {
    let result = daemon.execute("print('works')").await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    assert_eq!(result["stdout"], "works\n");
}

/// Waits until the daemon says that runs wait, with this word and since when.
async fn until_held(daemon: &Daemon, word: &str) -> Value {
    let ask = || async { daemon.get("/ready").await };
    let is_held = |(status, answer): &(u16, Value)| {
        *status == 503 && answer["since"].is_string() && answer.to_string().contains(word)
    };
    let (_, answer) = until(SOON, ask, is_held).await;
    assert_eq!(answer["status"], "unavailable");
    let reason = answer["reasons"][0].as_str().unwrap();
    assert!(reason.contains("(since 20"), "{reason}");
    assert!(!reason.contains('/'), "a path in: {reason}");
    let metrics = metrics(daemon).await;
    for line in [
        "fumehood_engine_available 0\n",
        "fumehood_runs_capacity 0\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    answer
}

async fn until_ready(daemon: &Daemon) {
    let ask = || async { daemon.get("/ready").await };
    until(SOON, ask, |(status, _)| *status == 200).await;
}

async fn metrics(daemon: &Daemon) -> String {
    let answer = daemon.request(Method::GET, "/metrics").send().await;
    answer.unwrap().text().await.unwrap()
}

async fn status(daemon: &Daemon, id: &str) -> String {
    let run = daemon.get(&format!("/runs/{id}")).await.1;
    run["status"].as_str().unwrap().to_owned()
}

/// A program that says who it is.
fn numbered(number: usize) -> Value {
    json!({ "code": format!("print('run {number}')") })
}

async fn submit_all(daemon: &Daemon, count: usize) -> Vec<Flight> {
    let mut flights = Vec::new();
    for number in 0..count {
        flights.push(Flight::start(daemon, numbered(number)).await);
    }
    flights
}

async fn assert_all_succeed(daemon: &Daemon, flights: &[Flight]) {
    for (number, flight) in flights.iter().enumerate() {
        let run = flight.end(daemon).await;
        assert_eq!(run["status"], "SUCCESS", "{run:#}\n{}", daemon.log());
        assert_eq!(run["result"]["stdout"], format!("run {number}\n"));
        assert_eq!(run["result"]["cause"]["kind"], "exited");
    }
}

/// F6: the socket is gone, or nobody listens.
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_come_while_the_engine_is_away_stay_queued_and_are_carried_out_when_it_is_back() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "").await;
    for _ in 0..2 {
        proxy.leave();
        let answer = until_held(&daemon, "Docker Engine is not reachable: start it").await;
        let flights = submit_all(&daemon, 6).await;
        for flight in &flights {
            assert_eq!(status(&daemon, &flight.id).await, "QUEUED");
        }
        // Since the first failure, however often it is tried in vain.
        assert_eq!(until_held(&daemon, "").await["since"], answer["since"]);
        assert_eq!(daemon.get("/health").await.0, 200);
        assert_eq!(daemon.get("/live").await.0, 200);
        // One that waits can be cancelled as ever.
        let unwanted = Flight::start(&daemon, limited(SLEEPS, 60.0)).await;
        let path = format!("/runs/{}/cancel", unwanted.id);
        assert_eq!(daemon.post(&path, &json!({})).await.0, 200);
        assert_eq!(status(&daemon, &unwanted.id).await, "CANCELLED");

        proxy.come_back();
        until_ready(&daemon).await;
        assert_all_succeed(&daemon, &flights).await;
        nothing_left(&daemon, SOON).await;
    }
}

/// Those that were started in the moment before anybody knew: nothing of their programs has run.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_finds_the_engine_gone_waits_for_it_and_its_time_limit_begins_with_its_program()
{
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "").await;
    proxy.leave();
    // At once, so that it is this run that finds out, or one of the next.
    let code = "import time; time.sleep(1); print('whole')";
    let first = Flight::start(&daemon, limited(code, 3.0)).await;
    let others = submit_all(&daemon, 3).await;
    until_held(&daemon, "not reachable").await;
    // Longer than the program's limit.
    let away = std::time::Instant::now();
    until(PATIENCE, async || away.elapsed(), |t| t.as_secs() >= 4).await;
    let before = status(&daemon, &first.id).await;
    assert!(["QUEUED", "RUNNING"].contains(&&*before), "{before}");
    proxy.come_back();
    let run = first.end(&daemon).await;
    assert_eq!(run["result"]["stdout"], "whole\n", "{run:#}");
    let duration = run["result"]["duration_seconds"].as_f64().unwrap();
    assert!((1.0..3.0).contains(&duration), "{duration}");
    assert_all_succeed(&daemon, &others).await;
    nothing_left(&daemon, SOON).await;
}

/// F7: it takes connections and never answers.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stands_still_holds_the_queue_and_heals_when_it_moves_on() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "ask_seconds = 2\ncircuit_failures = 2").await;
    proxy.freeze(true);
    until_held(&daemon, "did not answer within").await;
    let flights = submit_all(&daemon, 4).await;
    for flight in &flights {
        assert_eq!(status(&daemon, &flight.id).await, "QUEUED");
    }
    let asked = std::time::Instant::now();
    assert_eq!(daemon.get("/ready").await.0, 503);
    assert!(asked.elapsed() < Duration::from_secs(3), "{asked:?}");
    proxy.freeze(false);
    assert_all_succeed(&daemon, &flights).await;
    until_ready(&daemon).await;
    nothing_left(&daemon, SOON).await;
}

/// Waiting is no state of the process: it is written down.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_stopped_while_runs_wait_for_the_engine_loses_none() {
    let proxy = Proxy::start();
    let mut daemon = daemon_behind(&proxy, "").await;
    proxy.leave();
    until_held(&daemon, "not reachable").await;
    let flights = submit_all(&daemon, 3).await;
    daemon.stop();
    daemon.launch();
    until_held(&daemon, "not reachable").await;
    for flight in &flights {
        assert_eq!(status(&daemon, &flight.id).await, "QUEUED");
    }
    proxy.come_back();
    assert_all_succeed(&daemon, &flights).await;
    nothing_left(&daemon, SOON).await;
}

/// What waited on the engine that went away is gone with its stream; new ones are made.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_is_filled_again_when_the_engine_is_back() {
    let proxy = Proxy::start();
    let daemon = Daemon::start_with(Settings {
        toml: "[pool]\nsize = 1\npreload = []".to_owned(),
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    let waiting = || async { daemon.get("/ready").await.1["pool"]["waiting"].clone() };
    until(PATIENCE, waiting, |count| *count == 1).await;
    proxy.leave();
    until_held(&daemon, "not reachable").await;
    let flights = submit_all(&daemon, 2).await;
    proxy.come_back();
    assert_all_succeed(&daemon, &flights).await;
    until(PATIENCE, waiting, |count| *count == 1).await;
    assert_works(&daemon).await;
}
