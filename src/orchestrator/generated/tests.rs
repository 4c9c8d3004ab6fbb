//! The loop with executions, coders and judges that do what a test tells them.

mod fakes;

mod journal;

mod left;

mod closing;

mod ends;

use std::sync::atomic::Ordering;

use self::fakes::{Coding, Fakes, Judging, SCRIPT_OUTPUT};
use crate::execution::Status;
use crate::orchestrator::judge::Decision;
use crate::runs::RunOutcome;
use crate::runs::record::Ending;

/// Status, iterations, and what the run says of its end.
fn ended(outcome: &RunOutcome) -> (Ending, u32, Option<&str>) {
    (
        outcome.ending,
        outcome.iterations,
        outcome.final_error.as_deref(),
    )
}

#[tokio::test]
async fn the_first_success_takes_one_iteration() {
    let fakes = Fakes::new(&[Status::Success]);
    let done = fakes.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Success, 1, None));
    // The last turn is recorded with the end, the look at the data set before.
    let last = done.last_episode.unwrap();
    assert_eq!(last.episode.judge_decision.as_deref(), Some("FINISH"));
    assert_eq!(last.code, "program 1");
    let recorded = fakes.journal.recorded();
    assert_eq!(recorded.len(), 1);
    assert!(!recorded[0].episode.is_turn());
    let perceived = done.outcome.generation.unwrap().perceived.unwrap();
    assert_eq!(perceived.task.target_column.as_deref(), Some("target"));
    assert_eq!(perceived.library.as_deref(), Some("sklearn"));
}

#[tokio::test]
async fn a_failure_and_then_a_success_take_two() {
    let fakes = Fakes::new(&[Status::Failure, Status::Success]);
    let done = fakes.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Success, 2, None));
    let recorded = fakes.journal.recorded();
    let first = &recorded[1].episode;
    assert_eq!(first.judge_decision.as_deref(), Some("FIX"));
    assert_eq!(first.error_category.as_deref(), Some("runtime_error"));
    assert_eq!(
        first.suggested_fix.as_deref(),
        Some("Review the logs manually.")
    );
    // The second program was written knowing the first.
    assert_eq!(*fakes.coder.knew.lock().unwrap(), ["", "program 1"]);
}

#[tokio::test]
async fn a_run_that_always_fails_ends_with_its_last_iteration() {
    let cases = [
        (Status::Failure, "runtime_error"),
        (Status::Timeout, "timeout"),
        (Status::InvalidOutput, "missing_output"),
    ];
    for (status, category) in cases {
        let fakes = Fakes::new(&[status; 4]);
        let done = fakes.carry_out().await;
        assert_eq!(ended(&done.outcome), (Ending::Fail, 3, Some(category)));
    }
}

#[tokio::test]
async fn a_coder_that_fails_ends_the_run_with_what_is_recorded() {
    let mut fakes = Fakes::new(&[Status::Failure]);
    fakes.coder.manner = Coding::FailsAt(1);
    let done = fakes.carry_out().await;
    let why = "The program could not be written: nothing came to mind.";
    assert_eq!(ended(&done.outcome), (Ending::Fail, 0, Some(why)));
    assert!(done.last_episode.is_none());

    let mut fakes = Fakes::new(&[Status::Failure]);
    fakes.coder.manner = Coding::FailsAt(2);
    let done = fakes.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Fail, 1, Some(why)));
    assert_eq!(fakes.runner.calls.load(Ordering::SeqCst), 2);
    // What was paid for is counted although nothing came of it.
    let usage = done.outcome.generation.unwrap().model_usage;
    assert_eq!(usage.prompt_tokens, 200);
}

#[tokio::test]
async fn an_empty_program_is_none() {
    let mut fakes = Fakes::new(&[]);
    fakes.coder.manner = Coding::Empty;
    let done = fakes.carry_out().await;
    let why = "The program could not be written: the program is empty.";
    assert_eq!(ended(&done.outcome), (Ending::Fail, 0, Some(why)));
}

#[tokio::test]
async fn a_judge_never_turns_a_failure_into_success() {
    let mut fakes = Fakes::new(&[Status::Failure, Status::Success]);
    fakes.judge = Some(Judging::Always(Decision::Finish));
    let done = fakes.carry_out().await;
    assert_eq!(
        ended(&done.outcome),
        (Ending::Fail, 1, Some("runtime_error"))
    );
    assert_eq!(
        done.last_episode.unwrap().episode.judge_decision.as_deref(),
        Some("FINISH")
    );
}

#[tokio::test]
async fn a_success_that_is_sent_back_is_none() {
    let mut fakes = Fakes::new(&[Status::Success; 3]);
    fakes.judge = Some(Judging::Always(Decision::Fix));
    let done = fakes.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Fail, 3, Some("rejected")));
}

#[tokio::test]
async fn a_disabled_judge_is_not_asked() {
    let mut fakes = Fakes::new(&[Status::Failure, Status::Success]);
    fakes.judge = Some(Judging::Panics);
    fakes.run.request.disable_judge = true;
    let done = fakes.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Success, 2, None));
}

#[tokio::test]
async fn the_infrastructure_is_never_the_programs_fault() {
    let fakes = Fakes::new(&[Status::Failure, Status::Error, Status::Success]);
    let done = fakes.carry_out().await;
    let why = "It ended with ERROR.";
    assert_eq!(ended(&done.outcome), (Ending::Fail, 2, Some(why)));
    let last = done.last_episode.unwrap().episode;
    assert_eq!(
        (last.judge_decision, last.error_category.as_deref()),
        (None, Some("infrastructure"))
    );

    let mut fakes = Fakes::new(&[]);
    fakes.runner.look = Status::Error;
    let done = fakes.carry_out().await;
    assert_eq!(ended(&done.outcome), (Ending::Fail, 0, Some(why)));
}

#[tokio::test]
async fn a_data_set_that_cannot_be_looked_at_is_worked_on_all_the_same() {
    for (status, output) in [
        (Status::Timeout, ""),
        (Status::Failure, ""),
        (Status::Success, "garbage"),
    ] {
        let mut fakes = Fakes::new(&[Status::Success]);
        fakes.runner.look = status;
        fakes.runner.look_output = output.to_owned();
        let done = fakes.carry_out().await;
        assert_eq!(ended(&done.outcome), (Ending::Success, 1, None));
        let task = done.outcome.generation.unwrap().perceived.unwrap().task;
        assert!(
            task.explanation.contains("could not be looked at"),
            "{}",
            task.explanation
        );
        assert_eq!(task.task_type, "unknown");
    }
}

#[tokio::test]
async fn every_execution_is_planned_has_its_own_id_and_its_bounds() {
    let mut fakes = Fakes::new(&[Status::Failure, Status::Success]);
    fakes.run.request.expected_output_files = Vec::new();
    fakes.carry_out().await;
    let specs = fakes.runner.specs.lock().unwrap();
    let ids: std::collections::BTreeSet<_> = specs.iter().map(|spec| &spec.id).collect();
    assert_eq!((specs.len(), ids.len()), (3, 3));
    // The first was planned together with the start.
    assert_eq!(Some(&specs[0].id), fakes.origin.execution());
    let planned = fakes.journal.planned.lock().unwrap();
    assert_eq!(*planned, [specs[1].id.clone(), specs[2].id.clone()]);
    // With what the next daemon would have to know of them.
    let programs = fakes.journal.programs.lock().unwrap();
    let kept: Vec<_> = programs.iter().flatten().collect();
    assert_eq!((kept[0].iteration, kept[0].code.as_str()), (1, "program 1"));
    assert_eq!((kept[1].iteration, kept[1].code.as_str()), (2, "program 2"));
    assert_eq!(kept[0].usage.prompt_tokens, 100);
    assert_eq!(kept[0].timeout_seconds, specs[1].limits.timeout_seconds);
    // Sandboxes are given back as soon as a result is recorded; the last with the run's end.
    let settled = fakes.runner.settled.lock().unwrap();
    assert_eq!(*settled, [specs[0].id.clone(), specs[1].id.clone()]);
    assert!(specs[0].limits.timeout_seconds <= 60.0 && specs[0].input_files.is_empty());
    assert_eq!(specs[0].limits.of_sandbox(), specs[1].limits.of_sandbox());
    assert_eq!(
        specs[1].expected_output_files,
        ["predictions.csv", "summary.json"]
    );
    assert_eq!(specs[1].input_files, fakes.run.request.input_files);
}

#[tokio::test]
async fn tokens_are_counted_over_the_run_and_end_it() {
    // 110 for each program: after the third there is nothing left for a fourth.
    let mut fakes = Fakes::new(&[Status::Failure; 9]);
    fakes.run.request.max_iterations = 50;
    fakes.bounds.tokens = Some(250);
    let done = fakes.carry_out().await;
    let why = "The run has used up its 250 tokens of the model.";
    assert_eq!(ended(&done.outcome), (Ending::Fail, 3, Some(why)));
    let usage = done.outcome.generation.unwrap().model_usage;
    assert_eq!(
        (usage.calls, usage.prompt_tokens, usage.completion_tokens),
        (3, 300, 30)
    );
}

#[tokio::test(start_paused = true)]
async fn a_coder_that_hangs_is_given_up_when_the_run_is_out_of_time() {
    let mut fakes = Fakes::new(&[Status::Failure]);
    fakes.coder.manner = Coding::HangsAt(2);
    let done = fakes.carry_out().await;
    let why = "Run timed out after 600 seconds.";
    assert_eq!(ended(&done.outcome), (Ending::Fail, 1, Some(why)));
}

#[tokio::test(start_paused = true)]
async fn a_judge_that_hangs_does_not_lose_the_turn() {
    let mut fakes = Fakes::new(&[Status::Success]);
    fakes.judge = Some(Judging::Hangs);
    let done = fakes.carry_out().await;
    let why = "Run timed out after 600 seconds.";
    assert_eq!(ended(&done.outcome), (Ending::Fail, 1, Some(why)));
    let last = done.last_episode.unwrap();
    assert_eq!(
        (last.episode.judge_decision, last.code.as_str()),
        (None, "program 1")
    );
}

#[tokio::test]
async fn a_wish_to_end_ends_it_while_a_model_is_asked() {
    let mut fakes = Fakes::new(&[Status::Failure]);
    fakes.coder.manner = Coding::CancelsAt(2, fakes.cancel.clone());
    let done = fakes.carry_out().await;
    assert_eq!(
        ended(&done.outcome),
        (Ending::Cancelled, 1, Some("cancelled"))
    );
}

#[tokio::test]
async fn a_journal_that_fails_ends_it_and_starts_nothing() {
    let fakes = Fakes::new(&[Status::Failure]);
    fakes.journal.fails.store(true, Ordering::SeqCst);
    let done = fakes.carry_out().await;
    let (ending, iterations, why) = ended(&done.outcome);
    assert_eq!((ending, iterations), (Ending::Fail, 0));
    assert!(why.unwrap().starts_with("Infrastructure: "));
    // The look at the data set, which was planned before.
    assert_eq!(fakes.runner.calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_look_at_the_data_set_tells_nobody_what_it_sees() {
    let fakes = Fakes::new(&[Status::Success]);
    fakes.carry_out().await;
    let events = fakes.observed();
    assert!(
        !events.iter().any(|event| event.contains("breast")),
        "{events:?}"
    );
    assert!(SCRIPT_OUTPUT.contains("breast"));
    assert_eq!(
        events
            .iter()
            .filter(|event| event.starts_with("ExecutionStarted"))
            .count(),
        1
    );
}
