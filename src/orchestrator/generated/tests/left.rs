//! Runs that an earlier daemon left, wherever it was in them.

use std::sync::atomic::Ordering;

use tokio::time::Instant;

use super::ended;
use super::fakes::{Coding, Fakes, Judging};
use crate::execution::Status;
use crate::ids::ExecutionId;
use crate::runs::record::{Ending, PlannedProgram};
use crate::runs::service::{Journal as _, Origin, SoFar};
use crate::runs::state::RunState;
use crate::runs::store::OpenExecution;
use crate::runs::task::ModelUsage;

#[tokio::test]
async fn a_run_is_gone_on_with_where_it_was_left() {
    // As a first daemon left it after its first turn.
    let first = Fakes::new(&[Status::Failure, Status::Success]);
    first.coder.stops_after(1);
    first.carry_out().await;
    let recorded = first.journal.recorded();
    assert_eq!(recorded.len(), 2);

    let mut second = Fakes::new(&[Status::Success]);
    second.run = first.run.clone();
    second.origin = Origin::Between;
    second.journal.set_so_far(SoFar {
        episodes: recorded.iter().map(|one| one.episode.clone()).collect(),
        last_program: Some(recorded[1].code.clone()),
    });
    second.runner.skip_look();
    let done = second.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Success, 2, None));
    assert_eq!(*second.coder.knew.lock().unwrap(), ["program 1"]);
    // What was recorded is not done again, and its execution's id is not used again.
    let specs = second.runner.specs.lock().unwrap();
    assert_eq!(specs.len(), 1);
    assert_ne!(specs[0].id, recorded[1].episode.execution.execution_id);
    let generation = done.outcome.generation.unwrap();
    assert_eq!(generation.model_usage.prompt_tokens, 200);
    let target = generation.perceived.unwrap().task.target_column;
    assert_eq!(target.as_deref(), Some("target"));
    assert!(second.coder.profile_was_known.load(Ordering::SeqCst));
}

/// A run whose first turn is recorded, as the next daemon finds it.
pub(super) async fn after_one_turn(statuses: &[Status]) -> Fakes {
    let first = Fakes::new(&[Status::Failure]);
    first.coder.stops_after(1);
    first.carry_out().await;
    let recorded = first.journal.recorded();
    let mut next = Fakes::new(statuses);
    next.run = first.run.clone();
    next.origin = Origin::Between;
    next.takeovers = 1;
    next.journal.set_so_far(SoFar {
        episodes: recorded.iter().map(|one| one.episode.clone()).collect(),
        last_program: Some(recorded[1].code.clone()),
    });
    next.runner.skip_look();
    next
}

pub(super) fn left(run: &Fakes, iteration: u32) -> OpenExecution {
    OpenExecution {
        attempt: 2,
        program: Some(Box::new(PlannedProgram {
            iteration,
            code: "a program that runs".to_owned(),
            timeout_seconds: 12.5,
            usage: ModelUsage {
                calls: 1,
                prompt_tokens: 7,
                ..ModelUsage::default()
            },
        })),
        ..OpenExecution::first(ExecutionId::random(), run.run.id)
    }
}

#[tokio::test]
async fn a_program_that_runs_is_taken_over_and_not_written_again() {
    let mut next = after_one_turn(&[Status::Success]).await;
    let open = left(&next, 2);
    next.origin = Origin::Left(Box::new(open.clone()));
    let done = next.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Success, 2, None));
    assert_eq!(next.runner.taken_over.load(Ordering::SeqCst), 1);
    assert!(next.coder.knew.lock().unwrap().is_empty());
    let specs = next.runner.specs.lock().unwrap();
    assert_eq!(specs.len(), 1);
    assert_eq!(
        (&specs[0].id, specs[0].code.as_str()),
        (&open.id, "a program that runs")
    );
    // With the limit it was started with, whatever the run has left by now.
    assert_eq!(specs[0].limits.timeout_seconds, 12.5);
    let last = done.last_episode.unwrap();
    assert_eq!(
        (last.episode.iteration, last.code.as_str()),
        (2, "a program that runs")
    );
    // What writing it cost is paid, whoever asked.
    assert_eq!(last.episode.model_usage.unwrap().prompt_tokens, 7);
    let usage = done.outcome.generation.unwrap().model_usage;
    assert_eq!(usage.prompt_tokens, 107);
}

#[tokio::test]
async fn after_a_program_that_was_taken_over_the_loop_goes_on() {
    let mut next = after_one_turn(&[Status::Failure, Status::Success]).await;
    next.origin = Origin::Left(Box::new(left(&next, 2)));
    let done = next.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Success, 3, None));
    assert_eq!(next.runner.taken_over.load(Ordering::SeqCst), 1);
    assert_eq!(*next.coder.knew.lock().unwrap(), ["a program that runs"]);
    let specs = next.runner.specs.lock().unwrap();
    assert_eq!(specs[1].code, "program 3");
    assert_ne!(specs[1].limits.timeout_seconds, 12.5);
}

#[tokio::test]
async fn a_look_at_the_data_set_is_taken_over_too() {
    let mut next = Fakes::new(&[Status::Success]);
    let open = OpenExecution::first(ExecutionId::random(), next.run.id);
    next.origin = Origin::Left(Box::new(open));
    next.takeovers = 1;
    let done = next.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Success, 1, None));
    assert_eq!(next.runner.taken_over.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_model_is_not_asked_for_ever_because_daemons_die_over_it() {
    let mut next = after_one_turn(&[]).await;
    next.takeovers = 6;
    let done = next.carry_out().await;
    let why = "The program could not be written: the daemon was restarted too often meanwhile.";
    assert_eq!(ended(&done.outcome), (Ending::Fail, 1, Some(why)));
    assert!(next.coder.knew.lock().unwrap().is_empty());

    // Nor is a judge; a program that succeeds has succeeded all the same.
    let mut next = after_one_turn(&[Status::Success]).await;
    next.takeovers = 6;
    next.judge = Some(Judging::Panics);
    next.origin = Origin::Left(Box::new(left(&next, 2)));
    let done = next.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Success, 2, None));
}

#[tokio::test]
async fn a_program_that_nobody_knows_any_more_is_not_replaced_by_another() {
    let mut next = after_one_turn(&[]).await;
    let open = OpenExecution::first(ExecutionId::random(), next.run.id);
    next.origin = Origin::Left(Box::new(open));
    let done = next.carry_out().await;
    let (ending, iterations, why) = ended(&done.outcome);
    assert_eq!((ending, iterations), (Ending::Fail, 1));
    assert!(why.unwrap().starts_with("Infrastructure: "));
    assert_eq!(next.runner.calls.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_infrastructure_ended_is_tried_again_on_request() {
    let mut fakes = Fakes::new(&[Status::Error, Status::Success]);
    fakes.run.request.retries = 1;
    let done = fakes.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Success, 1, None));
    let specs = fakes.runner.specs.lock().unwrap();
    assert_eq!(specs.len(), 3);
    assert_eq!(specs[1].code, specs[2].code);
    assert_eq!(
        *fakes.journal.abandoned.lock().unwrap(),
        [specs[1].id.clone()]
    );
    // The second attempt, too, is known with its program.
    let programs = fakes.journal.programs.lock().unwrap();
    assert_eq!(programs[0], programs[1]);
    let last = done.last_episode.unwrap().episode;
    assert!(last.execution.warnings[0].starts_with("Attempt 1 of 2"));
}

#[tokio::test(start_paused = true)]
async fn the_time_that_is_recorded_counts_and_no_clock_is_asked() {
    let ended_after = async |turn_seconds: f64, model_seconds: f64| {
        let mut next = after_one_turn(&[]).await;
        // By the wall clock it began long ago.
        next.run.state = RunState::Running {
            started_at: jiff::Timestamp::UNIX_EPOCH,
            cancel_requested: false,
        };
        let mut so_far = next.journal.so_far(next.run.id).await.unwrap();
        let turn = &mut so_far.episodes[1];
        turn.execution.duration_seconds = turn_seconds;
        turn.model_usage.as_mut().unwrap().seconds = model_seconds;
        next.journal.set_so_far(so_far);
        next.coder.manner = Coding::HangsAt(2);
        let begun = Instant::now();
        let done = next.carry_out().await;
        let why = "Run timed out after 600 seconds.";
        assert_eq!(ended(&done.outcome), (Ending::Fail, 1, Some(why)));
        begun.elapsed().as_secs()
    };
    let looked = ended_after(0.0, 0.0).await;
    assert!((590..=600).contains(&looked), "{looked}");
    assert_eq!(ended_after(100.0, 0.0).await, looked - 100);
    assert_eq!(ended_after(100.0, 50.0).await, looked - 150);
    assert_eq!(ended_after(1e9, 0.0).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_time_that_a_program_ran_before_it_was_taken_over_counts() {
    let mut next = after_one_turn(&[Status::Failure]).await;
    next.origin = Origin::Left(Box::new(left(&next, 2)));
    next.runner.ran_seconds = 500.0;
    next.coder.manner = Coding::HangsAt(3);
    let begun = Instant::now();
    let done = next.carry_out().await;
    assert_eq!(done.outcome.ending, Ending::Fail);
    assert!(begun.elapsed().as_secs() <= 100, "{:?}", begun.elapsed());
}
