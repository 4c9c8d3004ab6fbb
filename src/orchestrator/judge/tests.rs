//! The rules, in their order, and what is left to a model.

use super::*;
use crate::execution::Status;
use crate::orchestrator::testing::result;

/// A judge that says what it is told.
#[derive(Debug)]
struct Told(Result<Decision, &'static str>);

#[async_trait]
impl Judge for Told {
    async fn judge(&self, _review: &Review<'_>) -> Judged {
        let verdict = self.0.map(|decision| Verdict {
            decision,
            confidence: 0.6,
            issues: vec!["an issue".to_owned()],
            reason: Some("A reason.".to_owned()),
        });
        Judged {
            verdict: verdict.map_err(str::to_owned),
            usage: ModelUsage {
                calls: 1,
                ..ModelUsage::default()
            },
        }
    }
}

/// Decision, confidence, why, and whether anybody was asked.
async fn judged(bench: Bench<'_>, result: &ExecutionResult) -> (Decision, f64, String, bool) {
    let review = Review {
        seen: &Seen::default(),
        code: "",
        result,
        redaction: &Redaction::default(),
    };
    let (verdict, usage) = decide(bench, &review).await;
    let why = verdict.why().unwrap_or_default();
    (verdict.decision, verdict.confidence, why, !usage.is_none())
}

fn with(status: Status, change: impl FnOnce(&mut ExecutionResult)) -> ExecutionResult {
    let mut result = result(status);
    change(&mut result);
    result
}

#[tokio::test]
async fn rules_come_first_and_in_order() {
    let finishing = Told(Ok(Decision::Finish));
    let judge = Bench::Judge(&finishing);
    let missing = |r: &mut ExecutionResult| {
        r.missing_expected_files = vec!["a.csv".to_owned(), "b".to_owned()];
    };
    // Timed out comes before missing files, and both before any model.
    let late = with(Status::Timeout, missing);
    let said = judged(judge, &late).await;
    assert_eq!(
        said,
        (Decision::Fix, 1.0, "Execution timed out.".to_owned(), false)
    );
    let incomplete = with(Status::InvalidOutput, missing);
    let names = "Missing expected output files: a.csv, b".to_owned();
    assert_eq!(
        judged(judge, &incomplete).await,
        (Decision::Fix, 1.0, names.clone(), false)
    );
    assert_eq!(
        judged(Bench::Rules, &incomplete).await,
        (Decision::Fix, 1.0, names, false)
    );
}

#[tokio::test]
async fn without_a_model_the_exit_code_decides() {
    let (decision, confidence, ..) = judged(Bench::Rules, &result(Status::Success)).await;
    assert_eq!((decision, confidence), (Decision::Finish, 1.0));

    let info = with(Status::Failure, |r| {
        r.error_info = Some("It said so.".to_owned());
        r.stderr = "x".to_owned();
    });
    let said = judged(Bench::Rules, &info).await;
    assert_eq!(said, (Decision::Fix, 0.8, "It said so.".to_owned(), false));
    let stderr = with(Status::Failure, |r| r.stderr = "é".repeat(500));
    let (_, _, why, _) = judged(Bench::Rules, &stderr).await;
    assert_eq!(why, "é".repeat(200));
}

#[tokio::test]
async fn a_model_decides_where_rules_leave_it_open() {
    for status in [Status::Success, Status::Failure] {
        for decision in [Decision::Finish, Decision::Fix] {
            let told = Told(Ok(decision));
            let said = judged(Bench::Judge(&told), &result(status)).await;
            assert_eq!(said, (decision, 0.6, "A reason. an issue".to_owned(), true));
        }
    }
}

#[tokio::test]
async fn a_model_that_fails_leaves_it_to_the_rule() {
    let told = Told(Err("the model is away"));
    let judge = Bench::Judge(&told);
    let (decision, confidence, why, asked) = judged(judge, &result(Status::Success)).await;
    assert_eq!((decision, confidence, asked), (Decision::Finish, 0.8, true));
    assert!(why.contains("the model is away"));
    let (decision, confidence, ..) = judged(judge, &result(Status::Failure)).await;
    assert_eq!((decision, confidence), (Decision::Fix, 0.8));
}

#[tokio::test]
async fn a_disabled_judge_goes_by_the_exit_code_alone() {
    let cases = [
        (result(Status::Success), Decision::Finish),
        (result(Status::InvalidOutput), Decision::Finish),
        (result(Status::Failure), Decision::Fix),
        (result(Status::Timeout), Decision::Fix),
    ];
    for (result, expected) in cases {
        let (decision, _, why, asked) = judged(Bench::ExitCode, &result).await;
        assert_eq!((decision, asked), (expected, false));
        assert!(why.contains("disabled"));
    }
}
