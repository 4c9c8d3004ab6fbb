//! The shapes of answers, field by field.

use crate::ids::{ExecutionId, RunId};
use crate::runs::service::testing;
use crate::runs::state::RunState;
use crate::runs::task::{ModelUsage, TaskSummary};

use super::*;

#[test]
fn an_excerpt_keeps_head_and_tail() {
    assert_eq!(excerpt("short", None, EXCERPT), "short");
    let exact = "é".repeat(EXCERPT);
    assert_eq!(excerpt(&exact, None, EXCERPT), exact);
    let long = format!("HEAD{}TAIL", "é".repeat(5000));
    let kept = excerpt(&long, None, EXCERPT);
    assert!(kept.starts_with("HEAD") && kept.ends_with("TAIL"));
    assert!(kept.chars().count() <= EXCERPT && kept.chars().count() > EXCERPT - 5);
    let kept = excerpt(&long, Some("the true end"), EXCERPT);
    assert!(kept.starts_with("HEAD") && kept.ends_with("\n...\nthe true end"));
}

/// A run that ended after these episodes.
fn generated(episodes: &[Episode]) -> RunRecord {
    let mut request = testing::request();
    request.code = None;
    let outcome = RunOutcome::cut_short(Ending::Fail, "x".to_owned(), episodes);
    RunRecord {
        id: RunId::random(),
        sequence: 1,
        tenant: testing::tenant().clone(),
        client: testing::client("a"),
        request,
        state: RunState::Ended {
            started_at: None,
            ended_at: jiff::Timestamp::UNIX_EPOCH,
            outcome: Box::new(outcome),
        },
        accepted_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

fn turn(iteration: u32) -> Episode {
    testing::episode(RunId::random(), iteration, &ExecutionId::random())
}

#[test]
fn a_generated_run_tells_its_task_and_what_it_cost_but_not_its_look_at_the_data() {
    let mut look = turn(0);
    look.perceived = Some(Box::new(Perceived {
        task: TaskSummary {
            target_column: Some("y".to_owned()),
            ..TaskSummary::default()
        },
        library: Some("sklearn".to_owned()),
    }));
    let mut sent_back = turn(1);
    sent_back.execution.success = true;
    sent_back.judge_decision = Some("FIX".to_owned());
    sent_back.error_message = Some("not enough".to_owned());
    sent_back.model_usage = Some(ModelUsage {
        calls: 2,
        prompt_tokens: 7,
        ..ModelUsage::default()
    });
    let episodes = [look, sent_back];
    let run = generated(&episodes);
    let view = serde_json::to_value(RunView::new(&run, &[])).unwrap();
    assert_eq!(view["iterations"], 1);
    assert_eq!(view["task_summary"]["target_column"], "y");
    assert_eq!(view["selected_library"], "sklearn");
    assert_eq!(view["model_usage"]["prompt_tokens"], 7);

    let view = serde_json::to_value(EpisodesView::new(&run, episodes.to_vec())).unwrap();
    assert_eq!(view["selected_library"], "sklearn");
    let turns = view["episodes"].as_array().unwrap();
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0]["status"], "FAIL");
    assert_eq!(
        turns[0]["error_context_summary"]["error_message"],
        "not enough"
    );
    // No field of it is about the program's text.
    assert!(turns[0].get("code").is_none());
}

#[test]
fn a_run_with_a_given_program_has_neither_task_nor_cost() {
    let run = generated(&[turn(1)]);
    let view = serde_json::to_value(RunView::new(&run, &[])).unwrap();
    for field in ["task_summary", "selected_library", "model_usage"] {
        assert_eq!(view[field], Value::Null, "{field}");
    }
}
