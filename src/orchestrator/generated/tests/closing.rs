//! A daemon that goes down: what is under way may come to its end, and nothing else is begun.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ended;
use super::fakes::{Coding, Fakes, Judging};
use super::left::{after_one_turn, left};
use crate::execution::Status;
use crate::orchestrator::judge::Decision;
use crate::runs::gate::Gate;
use crate::runs::record::Ending;
use crate::runs::service::Origin;

/// Nothing was asked, planned or run.
fn assert_untouched(fakes: &Fakes) {
    assert!(fakes.coder.knew.lock().unwrap().is_empty());
    assert!(fakes.journal.planned.lock().unwrap().is_empty());
    assert_eq!(fakes.runner.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn no_turn_is_begun() {
    let fakes = after_one_turn(&[]).await;
    fakes.closing.cancel();
    fakes.is_left().await;
    assert_untouched(&fakes);
}

#[tokio::test]
async fn a_turn_that_is_under_way_is_recorded_and_no_other_one_is_begun() {
    let mut fakes = Fakes::new(&[Status::Failure]);
    fakes.runner.meanwhile = Some(fakes.closing.clone());
    fakes.judge = Some(Judging::Always(Decision::Fix));
    fakes.is_left().await;
    let recorded = fakes.journal.recorded();
    assert_eq!(recorded.len(), 2);
    let turn = &recorded[1].episode;
    assert_eq!(turn.judge_decision.as_deref(), Some("FIX"));
    assert!(turn.suggested_fix.is_some());
    assert_eq!(fakes.coder.knew.lock().unwrap().len(), 1);
    // Its sandbox is given back, and no execution is open: the next daemon begins with a new turn.
    assert_eq!(fakes.runner.settled.lock().unwrap().len(), 2);
    assert_eq!(fakes.journal.planned.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_run_whose_last_turn_is_under_way_ends() {
    for (status, ending) in [
        (Status::Success, Ending::Success),
        (Status::Failure, Ending::Fail),
    ] {
        let mut fakes = Fakes::new(&[status]);
        fakes.run.request.max_iterations = 1;
        fakes.runner.meanwhile = Some(fakes.closing.clone());
        let done = fakes.carry_out().await;
        assert_eq!((done.outcome.ending, done.outcome.iterations), (ending, 1));
        assert!(!fakes.leave.is_cancelled());
    }
}

#[tokio::test]
async fn a_program_that_was_just_written_is_not_started() {
    let mut fakes = after_one_turn(&[]).await;
    fakes.coder.manner = Coding::WritesAfter(fakes.closing.clone());
    fakes.is_left().await;
    assert!(fakes.journal.planned.lock().unwrap().is_empty());
    assert_eq!(fakes.runner.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_being_asked_for_a_program_is_not_waited_for() {
    let mut fakes = after_one_turn(&[]).await;
    fakes.coder.manner = Coding::HangsAt(2);
    let closing = fakes.closing.clone();
    let closes = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        closing.cancel();
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    tokio::select! {
        biased;
        () = fakes.is_left() => {}
        () = closes => panic!("it is waited for"),
    }
    assert_eq!(fakes.coder.knew.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn what_waits_for_a_fit_host_is_left() {
    let mut fakes = after_one_turn(&[]).await;
    fakes.gate = Gate::pending("nobody knows");
    let (is_left, closes) = (fakes.is_left(), async { fakes.closing.cancel() });
    tokio::join!(is_left, closes);
    assert_eq!(fakes.runner.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_infrastructure_ended_is_not_tried_again_and_stays_open() {
    let mut fakes = Fakes::new(&[Status::Error]);
    fakes.run.request.retries = 3;
    fakes.runner.meanwhile = Some(fakes.closing.clone());
    fakes.is_left().await;
    assert_eq!(fakes.journal.planned.lock().unwrap().len(), 1);
    assert!(fakes.journal.abandoned.lock().unwrap().is_empty());
    assert_eq!(fakes.runner.calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_program_that_was_taken_over_comes_to_its_end() {
    let mut next = after_one_turn(&[Status::Success]).await;
    next.origin = Origin::Left(Box::new(left(&next, 2)));
    next.closing.cancel();
    let done = next.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Success, 2, None));
}

#[tokio::test]
async fn a_wish_to_end_is_heard_first() {
    let fakes = after_one_turn(&[]).await;
    fakes.closing.cancel();
    fakes.cancel.cancel();
    let done = fakes.carry_out().await;
    assert_eq!(done.outcome.ending, Ending::Cancelled);
    assert!(!fakes.leave.is_cancelled());
}
