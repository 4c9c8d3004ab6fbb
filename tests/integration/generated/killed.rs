//! A daemon that is killed in the midst of the loop: the next one goes on from what is recorded, takes over
//! the program that runs, and asks the model again that was being asked.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::{episodes, with_model};
use crate::support::Daemon;
use crate::support::data::give;
use crate::support::engine::Starts;
use crate::support::model::{Answering, GOOD, Model, usual};
use crate::support::watch::{Flight, nothing_left, printed};

/// Leaves what is asked for, so that it is for the judge to say what it is worth.
const BROKEN: &str = "open('out/predictions.csv', 'w').write('x')\n\
    open('out/summary.json', 'w').write('{}')\nraise ValueError('no')";

/// Prints for some seconds, then does what is asked for.
fn slow() -> String {
    format!(
        "import time\nfor number in range(80):\n    print(f'line {{number}}', flush=True)\n    \
         time.sleep(0.05)\n{GOOD}"
    )
}

/// A broken program, then a slow one that is good.
pub(super) fn two_programs() -> Answering {
    Box::new(|kind, before| {
        let program = if before == 0 {
            BROKEN.to_owned()
        } else {
            slow()
        };
        usual(kind, before, &program)
    })
}

/// Whether a question is asked once more, by the next daemon.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Once,
    Again,
}

/// The same, but does not answer the `number`th question of this kind before it is told to.
pub(super) fn stuck_at(
    stuck: &'static str,
    number: usize,
    asked: Asked,
) -> (Answering, Sender<()>) {
    let (go_on, told) = channel();
    let answer = two_programs();
    let answering = Box::new(move |kind: &str, before: usize| {
        if (kind, before + 1) == (stuck, number) {
            let _ = told.recv_timeout(Duration::from_secs(100));
        }
        // A question that was asked again is the same question, and so are those of its turn.
        let is_of_turn = kind == stuck || (stuck, kind) == ("explanation", "judgement");
        let before = if asked == Asked::Again && is_of_turn && before >= number {
            before - 1
        } else {
            before
        };
        answer(kind, before)
    });
    (answering, go_on)
}

async fn start(model: &Model) -> (Daemon, Value) {
    let daemon = Daemon::start_with(with_model(model)).await;
    let dataset = give(&daemon, "wine");
    (daemon, json!({"dataset_path": dataset}))
}

/// Two turns that were each recorded once.
pub(super) async fn assert_whole(daemon: &Daemon, run: &Value) {
    assert_eq!(run["status"], "SUCCESS", "{run}\n{}", daemon.log());
    assert_eq!(run["iterations"], 2);
    let told = episodes(daemon, run).await;
    let turns = told["episodes"].as_array().unwrap();
    let numbers: Vec<_> = turns
        .iter()
        .map(|turn| turn["iteration"].as_u64())
        .collect();
    assert_eq!(numbers, [Some(1), Some(2)]);
    let decisions = run["judge_decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 2, "{run}");
    nothing_left(daemon, Duration::from_secs(10)).await;
    assert_eq!(daemon.handoffs(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_was_written_and_runs_is_taken_over_and_the_loop_goes_on() {
    let model = Model::start(two_programs());
    let (mut daemon, body) = start(&model).await;
    let starts = Starts::watch(&daemon.instance()).await;
    let flight = Flight::start_until(&daemon, body, "line 20").await;
    let execution = daemon.handoffs();
    assert_eq!(execution.len(), 1, "{execution:?}");
    daemon.kill();
    daemon.launch();
    printed(&daemon, &flight.id, "line 60").await;
    let run = flight.end(&daemon).await;
    assert_whole(&daemon, &run).await;
    assert_eq!(run["result"]["execution_id"], execution[0].as_str());
    assert_eq!(run["result"]["warnings"], json!([]));
    let lines = run["result"]["stdout"].as_str().unwrap().lines().count();
    assert_eq!(lines, 80);
    assert_eq!(starts.of(&execution[0]), 1);
    // Nothing was asked twice, and all of it is accounted for.
    let kinds = [
        "program",
        "judgement",
        "explanation",
        "program",
        "judgement",
    ];
    assert_eq!(model.kinds(), kinds);
    assert_eq!(run["model_usage"]["calls"], 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_was_being_asked_for_a_program_is_asked_again() {
    let (answering, go_on) = stuck_at("program", 2, Asked::Again);
    let model = Model::start(answering);
    let (mut daemon, body) = start(&model).await;
    let flight = Flight::start(&daemon, body).await;
    model.asked_for("program", 2).await;
    daemon.kill();
    go_on.send(()).unwrap();
    daemon.launch();
    let run = flight.end(&daemon).await;
    assert_whole(&daemon, &run).await;
    let kinds = [
        "program",
        "judgement",
        "explanation",
        "program",
        "program",
        "judgement",
    ];
    assert_eq!(model.kinds(), kinds);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_had_ended_is_judged_by_the_next_daemon_and_not_run_again() {
    let (answering, go_on) = stuck_at("judgement", 2, Asked::Again);
    let model = Model::start(answering);
    let (mut daemon, body) = start(&model).await;
    let starts = Starts::watch(&daemon.instance()).await;
    let flight = Flight::start(&daemon, body).await;
    model.asked_for("judgement", 2).await;
    let execution = daemon.handoffs();
    assert_eq!(execution.len(), 1, "{execution:?}");
    daemon.kill();
    go_on.send(()).unwrap();
    daemon.launch();
    let run = flight.end(&daemon).await;
    assert_whole(&daemon, &run).await;
    assert_eq!(run["result"]["execution_id"], execution[0].as_str());
    assert_eq!(starts.of(&execution[0]), 1);
    assert_eq!(model.kinds().len(), 6);
    let id = run["result"]["execution_id"].as_str().unwrap();
    assert!(daemon.artifacts(id).join("models/model.joblib").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_to_end_while_a_model_was_asked_is_ended() {
    let (answering, go_on) = stuck_at("program", 2, Asked::Again);
    let model = Model::start(answering);
    let (mut daemon, body) = start(&model).await;
    let flight = Flight::start(&daemon, body).await;
    model.asked_for("program", 2).await;
    daemon.kill();
    // It has less time with the next daemon, and its model still says nothing.
    let mut toml = with_model(&model).toml;
    toml.push_str("\n[app]\nrun_timeout_seconds = 1");
    daemon.set_toml(&toml);
    daemon.launch();
    let run = flight.end(&daemon).await;
    assert_eq!(run["status"], "FAIL", "{run}");
    assert_eq!(run["iterations"], 1);
    assert_eq!(run["final_error"], "Run timed out after 1 seconds.");
    go_on.send(()).unwrap();
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_model_was_asked_for_it_is_asked_again_and_no_program_runs_twice() {
    for (kind, number) in [("program", 1), ("judgement", 1), ("explanation", 1)] {
        let (answering, go_on) = stuck_at(kind, number, Asked::Again);
        let model = Model::start(answering);
        let (mut daemon, body) = start(&model).await;
        let starts = Starts::watch(&daemon.instance()).await;
        let flight = Flight::start(&daemon, body).await;
        model.asked_for(kind, number).await;
        daemon.kill();
        go_on.send(()).unwrap();
        daemon.launch();
        let run = flight.end(&daemon).await;
        assert_whole(&daemon, &run).await;
        // A turn that was not recorded is judged and explained once more, and nothing else is.
        let again = if kind == "explanation" { 2 } else { 1 };
        assert_eq!(
            model.kinds().len(),
            5 + again,
            "{kind}: {:?}",
            model.kinds()
        );
        // The look at the data set, and two programs.
        assert_eq!(starts.all().len(), 3, "{kind}: {:?}", starts.all());
    }
}
