//! What is said about failures, with and without a model.

use super::*;
use crate::execution::Status;
use crate::orchestrator::judge::Decision;
use crate::orchestrator::testing::result;

#[derive(Debug)]
struct Away;

#[async_trait]
impl Analyser for Away {
    async fn explain(&self, _failure: &Failure<'_>) -> Explained {
        Explained {
            explanation: Err("the model is away".to_owned()),
            usage: ModelUsage {
                calls: 1,
                ..ModelUsage::default()
            },
        }
    }
}

async fn analysed(result: &ExecutionResult, analyser: Option<&dyn Analyser>) -> Analysis {
    let verdict = Verdict {
        decision: Decision::Fix,
        confidence: 1.0,
        issues: vec!["The judge minds.".to_owned()],
        reason: None,
    };
    let failure = Failure {
        iteration: 2,
        seen: &Seen::default(),
        code: "",
        result,
        verdict: &verdict,
        redaction: &Redaction::default(),
    };
    analyse(analyser, &failure).await.0
}

fn raising(stderr: &str) -> ExecutionResult {
    ExecutionResult {
        stderr: stderr.to_owned(),
        error_info: Some("The program exited with code 1.".to_owned()),
        ..result(Status::Failure)
    }
}

const TRACEBACK: &str =
    "Traceback (most recent call last):\n  File \"/work/script.py\", line 1\n    x\n";

#[tokio::test]
async fn an_exception_gives_category_message_and_fix() {
    let cases = [
        ("KeyError: 'targt'", "missing_column"),
        (
            "ModuleNotFoundError: No module named 'x'",
            "missing_library",
        ),
        ("FileNotFoundError: [Errno 2]", "missing_file"),
        ("pandas.errors.ParserError: x", "runtime_error"),
        ("ValueError", "value_error"),
    ];
    for (raised, category) in cases {
        let stderr = format!("noise\n{TRACEBACK}{raised}\n");
        let analysis = analysed(&raising(&stderr), None).await;
        assert_eq!(analysis.error_category, category);
        assert_eq!(analysis.error_message, raised);
        assert_eq!(analysis.iteration, 2);
        assert_eq!(analysis.stderr_excerpt, stderr);
        assert!(!analysis.suggested_fix.is_empty());
    }
}

#[tokio::test]
async fn other_failures_are_told_by_their_result() {
    let silent = analysed(&raising("no traceback"), None).await;
    assert_eq!(silent.error_category, "runtime_error");
    assert_eq!(silent.error_message, "The program exited with code 1.");
    let late = analysed(&result(Status::Timeout), None).await;
    assert_eq!(late.error_category, "timeout");
    let incomplete = analysed(&result(Status::InvalidOutput), None).await;
    assert_eq!(incomplete.error_category, "missing_output");
    let rejected = analysed(&result(Status::Success), None).await;
    assert_eq!(rejected.error_category, "rejected");
    assert_eq!(rejected.error_message, "The judge minds.");
}

#[tokio::test]
async fn a_model_that_fails_leaves_the_logs_to_people() {
    let analysis = analysed(
        &raising(&format!("{TRACEBACK}KeyError: 'x'\n")),
        Some(&Away),
    )
    .await;
    assert_eq!(analysis.error_category, "unknown");
    assert_eq!(analysis.suggested_fix, "Review the logs manually.");
    assert_eq!(analysis.error_message, "KeyError: 'x'");
}

#[tokio::test]
async fn excerpts_are_bounded() {
    let long = ExecutionResult {
        stdout: format!("HEAD{}TAIL", "x".repeat(10_000)),
        ..raising(&"y".repeat(10_000))
    };
    let analysis = analysed(&long, None).await;
    for text in [&analysis.stdout_excerpt, &analysis.stderr_excerpt] {
        assert!(text.chars().count() <= EXCERPT);
    }
    assert!(
        analysis.stdout_excerpt.starts_with("HEAD") && analysis.stdout_excerpt.ends_with("TAIL")
    );
}
