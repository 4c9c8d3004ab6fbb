//! Whether a program did what was asked: rules first, a model where they leave it open (contract
//! section 3).

use async_trait::async_trait;

use super::perception::Seen;
use crate::execution::ExecutionResult;
use crate::execution::redaction::Redaction;
use crate::runs::task::ModelUsage;

/// Characters of standard error in a reason.
const STDERR_EXCERPT: usize = 200;

/// Characters of a reason as it is kept.
const MAX_REASON: usize = 1000;

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub struct Review<'a> {
    /// The data set and the task.
    pub seen: &'a Seen,
    /// The program.
    pub code: &'a str,
    /// What came of it.
    pub result: &'a ExecutionResult,
    /// Paths of the host, to be kept out of every prompt.
    pub redaction: &'a Redaction,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing more.
    Finish,
    /// Write a better program.
    Fix,
}

impl Decision {
    /// As the interface writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Finish => "FINISH",
            Self::Fix => "FIX",
        }
    }
}

/// A judgement.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What to do next.
    pub decision: Decision,
    /// How sure that is, from 0 to 1.
    pub confidence: f64,
    /// What is wrong.
    pub issues: Vec<String>,
    /// Why, if the issues do not say it.
    pub reason: Option<String>,
}

impl Verdict {
    fn finish(confidence: f64, reason: &str) -> Self {
        Self {
            decision: Decision::Finish,
            confidence,
            issues: Vec::new(),
            reason: Some(reason.to_owned()),
        }
    }

    fn fix(confidence: f64, issue: String) -> Self {
        Self {
            decision: Decision::Fix,
            confidence,
            issues: vec![issue],
            reason: None,
        }
    }

    /// Why, in one text.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        let words = self.reason.iter().chain(&self.issues);
        let words: Vec<&str> = words
            .map(|word| word.trim())
            .filter(|word| !word.is_empty())
            .collect();
        let why = words.join(" ");
        (!why.is_empty()).then(|| why.chars().take(MAX_REASON).collect())
    }
}

/// What a judge says, or why it says nothing, and what asking cost.
#[derive(Debug)]
pub struct Judged {
    /// The judgement.
    pub verdict: Result<Verdict, String>,
    /// What the model's calls cost.
    pub usage: ModelUsage,
}

/// Judges where rules leave it open.
#[async_trait]
pub trait Judge: Send + Sync + std::fmt::Debug {
    /// Judges a program and what came of it.
    async fn judge(&self, review: &Review<'_>) -> Judged;
}

/// Who decides.
#[derive(Debug, Clone, Copy)]
pub enum Bench<'a> {
    /// The exit code alone.
    ExitCode,
    /// The rules alone.
    Rules,
    /// The rules, then this judge.
    Judge(&'a dyn Judge),
}

/// Judges a program.
pub async fn decide(bench: Bench<'_>, review: &Review<'_>) -> (Verdict, ModelUsage) {
    let result = review.result;
    let ended_well = result.return_code == Some(0);
    let judge = match bench {
        Bench::ExitCode => return (by_exit_code(result), ModelUsage::default()),
        Bench::Rules => None,
        Bench::Judge(judge) => Some(judge),
    };
    if let Some(verdict) = at_once(result) {
        return (verdict, ModelUsage::default());
    }
    let Some(judge) = judge else {
        let verdict = if ended_well {
            Verdict::finish(1.0, "The program ended with exit code 0.")
        } else {
            Verdict::fix(0.8, failure(result))
        };
        return (verdict, ModelUsage::default());
    };
    let Judged { verdict, usage } = judge.judge(review).await;
    let verdict = verdict.unwrap_or_else(|why| {
        let note = format!("Judged by rule, since {why}.");
        if ended_well {
            Verdict::finish(0.8, &format!("{note} The program ended with exit code 0."))
        } else {
            Verdict {
                reason: Some(note),
                ..Verdict::fix(0.8, failure(result))
            }
        }
    });
    (verdict, usage)
}

/// What needs no thinking.
fn at_once(result: &ExecutionResult) -> Option<Verdict> {
    if result.timed_out {
        return Some(Verdict::fix(1.0, "Execution timed out.".to_owned()));
    }
    if !result.missing_expected_files.is_empty() {
        let names = result.missing_expected_files.join(", ");
        let issue = format!("Missing expected output files: {names}");
        return Some(Verdict::fix(1.0, issue));
    }
    None
}

fn by_exit_code(result: &ExecutionResult) -> Verdict {
    match result.return_code {
        Some(0) => Verdict::finish(1.0, "The judge is disabled; exit code 0."),
        Some(code) => Verdict::fix(1.0, format!("The judge is disabled; exit code {code}.")),
        None => Verdict::fix(1.0, "The judge is disabled; no exit code.".to_owned()),
    }
}

/// What went wrong, in the words of the result.
fn failure(result: &ExecutionResult) -> String {
    let stderr = || {
        result
            .stderr
            .chars()
            .take(STDERR_EXCERPT)
            .collect::<String>()
    };
    match &result.error_info {
        Some(info) => info.clone(),
        None if result.stderr.trim().is_empty() => result.cause.message.clone(),
        None => stderr(),
    }
}

#[cfg(test)]
mod tests;
