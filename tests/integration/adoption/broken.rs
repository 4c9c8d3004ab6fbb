//! The engine goes away while a program runs, or only its stream does, and the daemon stays: it attaches
//! again, as another daemon would (security.md rows F2 and F3).
//!
//! A proxy stands for the engine, whose containers run on as with live-restore.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{body, lines};
use crate::support::daemon::PATIENCE;
use crate::support::engine::{Starts, kill};
use crate::support::proxy::Proxy;
use crate::support::wait::until;
use crate::support::watch::{Flight, limited, nothing_left, only_container, printed};
use crate::support::{Daemon, Settings};

/// In one write, which is seen whole or not at all.
const SLEEPS: &str = "import time; print('armed\\n', end=''); time.sleep(600)";

async fn daemon_behind(proxy: &Proxy) -> Daemon {
    Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await
}

async fn for_a_while(for_long: Duration) {
    let begun = Instant::now();
    until(PATIENCE, async || begun.elapsed(), |now| *now >= for_long).await;
}

/// All of it, and that its stream was away for at least so long.
fn assert_whole(run: &Value, seconds: f64) {
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    let result = &run["result"];
    assert_eq!(result["stdout"], lines(), "{run:#}");
    assert_eq!(result["output_files"], json!(["count.txt"]), "{run:#}");
    let [note] = &result["warnings"].as_array().unwrap()[..] else {
        panic!("one warning: {run:#}");
    };
    let note = note.as_str().unwrap();
    assert!(note.contains("broke once while"), "{note}");
    let (_, rest) = note.split_once("away for ").unwrap();
    let (away, _) = rest.split_once(" s in all").unwrap();
    let away: f64 = away.parse().unwrap();
    assert!((seconds..60.0).contains(&away), "{note}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_stream_breaks_goes_on_and_nothing_of_it_is_lost() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let starts = Starts::watch(&daemon.instance()).await;
    let flight = Flight::start_until(&daemon, body(), "line 20").await;
    proxy.cut();
    let run = flight.end(&daemon).await;
    assert_whole(&run, 0.0);
    assert_eq!(
        starts.of(run["result"]["execution_id"].as_str().unwrap()),
        1
    );
    nothing_left(&daemon, Duration::from_secs(10)).await;
    assert_eq!(daemon.handoffs(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_away_for_a_while_costs_a_program_nothing_but_a_word() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let flight = Flight::start_until(&daemon, body(), "line 20").await;
    proxy.leave();
    for_a_while(Duration::from_secs(2)).await;
    proxy.come_back();
    assert_whole(&flight.end(&daemon).await, 2.0);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// F3.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ends_while_the_engine_is_away_keeps_its_result() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let flight = Flight::start_until(&daemon, body(), "line 60").await;
    proxy.leave();
    for_a_while(Duration::from_secs(4)).await;
    proxy.come_back();
    assert_whole(&flight.end(&daemon).await, 4.0);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// What became of the program nobody knows: an engine that goes away may take it along.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stays_away_is_waited_for_until_the_time_limit_and_to_blame() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 4.0), "armed").await;
    let begun = Instant::now();
    proxy.leave();
    let run = flight.end(&daemon).await;
    // The limit, the supervisor's grace, and a kill that nobody answers.
    assert!(begun.elapsed() < Duration::from_secs(40), "{begun:?}");
    let result = &run["result"];
    assert_eq!(result["status"], "ERROR", "{run:#}");
    assert_eq!(result["cause"]["kind"], "infrastructure");
    assert!(
        result["cause"]["evidence"]
            .to_string()
            .contains("went away"),
        "{run:#}"
    );
    assert_eq!(result["timed_out"], false);
    assert_eq!(result["stdout"], "armed\n");
    assert!(
        result["warnings"].to_string().contains("set aside"),
        "{run:#}"
    );
    proxy.come_back();
    nothing_left(&daemon, Duration::from_secs(20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_can_be_cancelled_while_the_engine_is_away() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 60.0), "armed").await;
    proxy.leave();
    let path = format!("/runs/{}/cancel", flight.id);
    assert_eq!(daemon.post(&path, &json!({})).await.0, 200);
    let run = flight.end(&daemon).await;
    assert_eq!(run["status"], "CANCELLED", "{run:#}");
    assert_eq!(run["result"]["stdout"], "armed\n");
    proxy.come_back();
    nothing_left(&daemon, Duration::from_secs(20)).await;
}

/// What an engine without live-restore does to its containers. The control of the tests before: what
/// does not run any more is not waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_the_engine_ended_while_it_was_away_is_no_failure_of_its_program() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 60.0), "armed").await;
    let container = only_container(&daemon).await;
    proxy.leave();
    kill(&container).await;
    let back = Instant::now();
    proxy.come_back();
    let run = flight.end(&daemon).await;
    assert!(back.elapsed() < Duration::from_secs(10), "{back:?}");
    let result = &run["result"];
    assert_eq!(run["status"], "FAIL", "{run:#}");
    assert_eq!(result["status"], "ERROR", "{run:#}");
    assert_eq!(result["cause"]["kind"], "infrastructure");
    assert_eq!(result["return_code"], Value::Null);
    assert_eq!(result["timed_out"], false);
    assert_eq!(result["stdout"], "armed\n");
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// What was heard before the stream broke is not sent again after it, to nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_dies_after_the_stream_was_there_again_has_put_away_what_it_heard_before() {
    let proxy = Proxy::start();
    let mut daemon = daemon_behind(&proxy).await;
    let flight = Flight::start_until(&daemon, body(), "line 20").await;
    proxy.cut();
    printed(&daemon, &flight.id, "line 60").await;
    daemon.kill();
    daemon.launch();
    super::assert_untouched(&flight.end(&daemon).await);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// A daemon that dies while it waits for the engine leaves the same to the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_dies_while_the_engine_is_away_is_followed_by_one_that_goes_on() {
    let proxy = Proxy::start();
    let mut daemon = daemon_behind(&proxy).await;
    let flight = Flight::start_until(&daemon, body(), "line 20").await;
    proxy.leave();
    for_a_while(Duration::from_secs(1)).await;
    daemon.kill();
    proxy.come_back();
    daemon.launch();
    super::assert_untouched(&flight.end(&daemon).await);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}
