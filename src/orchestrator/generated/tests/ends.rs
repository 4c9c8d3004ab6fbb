//! A run that is to end, or has no time left, at each step of the loop: it ends at once, and keeps what it
//! has.

use std::time::Duration;

use super::ended;
use super::fakes::{Coding, Fakes, Judging};
use super::left::after_one_turn;
use crate::execution::Status;
use crate::orchestrator::judge::Decision;
use crate::runs::gate::Gate;
use crate::runs::record::Ending;
use crate::runs::service::CarriedOut;

/// Ends within a moment of a clock that only goes on while everybody waits.
async fn at_once(fakes: &Fakes) -> CarriedOut {
    let done = tokio::time::timeout(Duration::from_secs(1), fakes.carry_out()).await;
    done.expect("it goes on")
}

/// The last turn as it is recorded: its program, how it was judged, and its category.
fn last_turn(done: &CarriedOut) -> (&str, Option<&str>, Option<&str>) {
    let last = done.last_episode.as_ref().unwrap();
    (
        &last.code,
        last.episode.judge_decision.as_deref(),
        last.episode.error_category.as_deref(),
    )
}

const CANCELLED: Option<&str> = Some("cancelled");

#[tokio::test(start_paused = true)]
async fn a_wish_to_end_is_heard_while_the_data_set_is_looked_at() {
    let mut fakes = Fakes::new(&[]);
    fakes.runner.look = Status::Cancelled;
    fakes.cancel.cancel();
    let done = at_once(&fakes).await;
    assert_eq!(ended(&done.outcome), (Ending::Cancelled, 0, CANCELLED));
}

#[tokio::test(start_paused = true)]
async fn a_wish_to_end_is_heard_before_a_program_is_started() {
    let mut fakes = after_one_turn(&[]).await;
    fakes.gate = Gate::pending("nobody knows");
    let wishes = async {
        tokio::task::yield_now().await;
        fakes.cancel.cancel();
    };
    let (done, ()) = tokio::join!(at_once(&fakes), wishes);
    assert_eq!(ended(&done.outcome), (Ending::Cancelled, 1, CANCELLED));
    assert!(fakes.journal.planned.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wish_to_end_is_heard_while_a_program_runs() {
    let mut fakes = Fakes::new(&[Status::Cancelled]);
    fakes.runner.meanwhile = Some(fakes.cancel.clone());
    let done = at_once(&fakes).await;
    assert_eq!(ended(&done.outcome), (Ending::Cancelled, 1, CANCELLED));
    assert_eq!(last_turn(&done), ("program 1", None, CANCELLED));
}

#[tokio::test(start_paused = true)]
async fn a_wish_to_end_is_heard_while_a_program_is_judged() {
    let mut fakes = Fakes::new(&[Status::Success]);
    fakes.runner.meanwhile = Some(fakes.cancel.clone());
    fakes.judge = Some(Judging::Hangs);
    let done = at_once(&fakes).await;
    assert_eq!(ended(&done.outcome), (Ending::Cancelled, 1, CANCELLED));
    assert_eq!(last_turn(&done), ("program 1", None, None));
}

#[tokio::test(start_paused = true)]
async fn a_wish_to_end_is_heard_while_a_failure_is_explained() {
    let mut fakes = Fakes::new(&[Status::Failure]);
    fakes.judge = Some(Judging::Always(Decision::Fix));
    fakes.silent_analyser = Some(Some(fakes.cancel.clone()));
    let done = at_once(&fakes).await;
    assert_eq!(ended(&done.outcome), (Ending::Cancelled, 1, CANCELLED));
    let kept = ("program 1", Some("FIX"), Some("runtime_error"));
    assert_eq!(last_turn(&done), kept);
}

const OUT_OF_TIME: Option<&str> = Some("Run timed out after 600 seconds.");

#[tokio::test(start_paused = true)]
async fn an_explanation_that_does_not_come_does_not_lose_the_turn() {
    let mut fakes = Fakes::new(&[Status::Failure]);
    fakes.silent_analyser = Some(None);
    let done = fakes.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Fail, 1, OUT_OF_TIME));
    let kept = ("program 1", Some("FIX"), Some("runtime_error"));
    assert_eq!(last_turn(&done), kept);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_become_fit_again_ends_it_in_time() {
    let mut fakes = after_one_turn(&[]).await;
    fakes.gate = Gate::pending("nobody knows");
    let done = fakes.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Fail, 1, OUT_OF_TIME));
}

#[tokio::test(start_paused = true)]
async fn no_program_gets_more_time_than_its_run_has_left() {
    let mut fakes = Fakes::new(&[Status::Failure, Status::Success]);
    fakes.bounds.wall = Duration::from_secs(70);
    fakes.coder.manner = Coding::TakesSeconds(30);
    fakes.carry_out().await;
    let specs = fakes.runner.specs.lock().unwrap();
    let limits = specs.iter().map(|spec| spec.limits.timeout_seconds);
    let limits: Vec<_> = limits.map(f64::round).collect();
    assert_eq!(limits[1..], [40.0, 10.0]);
}
