//! A daemon that is asked to stop in the midst of the loop: what is under way may end, nothing is begun, and
//! the next one goes on.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::killed::{Asked, assert_whole, stuck_at, two_programs};
use super::with_model;
use crate::support::daemon::PATIENCE;
use crate::support::data::give;
use crate::support::engine::Starts;
use crate::support::model::Model;
use crate::support::wait::until;
use crate::support::watch::{Flight, nothing_left, printed};
use crate::support::{Daemon, Settings};

async fn start(model: &Model, drain_seconds: u64) -> (Daemon, Value) {
    let daemon = Daemon::start_with(Settings {
        drain_seconds,
        ..with_model(model)
    })
    .await;
    let dataset = give(&daemon, "wine");
    (daemon, json!({"dataset_path": dataset}))
}

const ONCE: [&str; 5] = [
    "program",
    "judgement",
    "explanation",
    "program",
    "judgement",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_is_asked_for_a_program_does_not_hold_it_up() {
    let (answering, go_on) = stuck_at("program", 2, Asked::Again);
    let model = Model::start(answering);
    let (mut daemon, body) = start(&model, 60).await;
    let flight = Flight::start(&daemon, body).await;
    model.asked_for("program", 2).await;
    let asked = Instant::now();
    daemon.ask_to_stop();
    assert_eq!(daemon.gone(), Some(0));
    assert!(asked.elapsed() < Duration::from_secs(10), "{asked:?}");
    go_on.send(()).unwrap();
    daemon.launch();
    let run = flight.end(&daemon).await;
    assert_whole(&daemon, &run).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_that_is_judged_is_recorded_and_the_next_daemon_writes_the_next_one() {
    let (answering, go_on) = stuck_at("judgement", 1, Asked::Once);
    let model = Model::start(answering);
    let (mut daemon, body) = start(&model, 60).await;
    let flight = Flight::start(&daemon, body).await;
    model.asked_for("judgement", 1).await;
    daemon.ask_to_stop();
    let ready = async || daemon.get("/ready").await.0;
    until(PATIENCE, ready, |status| *status == 503).await;
    go_on.send(()).unwrap();
    assert_eq!(daemon.gone(), Some(0));
    assert_eq!(model.kinds(), ONCE[..3]);
    assert_eq!(daemon.handoffs(), Vec::<String>::new());
    daemon.launch();
    let run = flight.end(&daemon).await;
    assert_whole(&daemon, &run).await;
    assert_eq!(model.kinds(), ONCE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_runs_is_left_by_a_daemon_that_is_asked_once_or_twice() {
    for times in [1, 2] {
        let model = Model::start(two_programs());
        let (mut daemon, body) = start(&model, if times == 1 { 0 } else { 60 }).await;
        let starts = Starts::watch(&daemon.instance()).await;
        let flight = Flight::start_until(&daemon, body, "line 20").await;
        let execution = daemon.handoffs();
        daemon.ask_to_stop();
        if times == 2 {
            let ready = async || daemon.get("/ready").await.0;
            until(PATIENCE, ready, |status| *status == 503).await;
            daemon.ask_again_to_stop();
        }
        assert_eq!(daemon.gone(), Some(times - 1));
        assert_eq!(daemon.handoffs(), execution);
        daemon.launch();
        printed(&daemon, &flight.id, "line 60").await;
        let run = flight.end(&daemon).await;
        assert_whole(&daemon, &run).await;
        assert_eq!(run["result"]["execution_id"], execution[0].as_str());
        assert_eq!(starts.of(&execution[0]), 1);
        assert_eq!(model.kinds(), ONCE);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_to_end_does_not_wait_for_its_model() {
    for (kind, number, iterations) in [("program", 1, 0), ("judgement", 1, 1), ("program", 2, 1)] {
        let (answering, go_on) = stuck_at(kind, number, Asked::Once);
        let model = Model::start(answering);
        let (daemon, body) = start(&model, 0).await;
        let flight = Flight::start(&daemon, body).await;
        model.asked_for(kind, number).await;
        let path = format!("/runs/{}/cancel", flight.id);
        assert_eq!(daemon.post(&path, &json!({})).await.0, 200);
        let asked = Instant::now();
        let run = flight.end(&daemon).await;
        assert!(asked.elapsed() < Duration::from_secs(10), "{asked:?}");
        assert_eq!(run["status"], "CANCELLED", "{run}");
        assert_eq!(run["iterations"], iterations, "{run}");
        go_on.send(()).unwrap();
        nothing_left(&daemon, Duration::from_secs(10)).await;
    }
}
