//! What went wrong with a program, for the next attempt (contract section 3).

use async_trait::async_trait;

use super::given::category;
use super::judge::Verdict;
use super::perception::Seen;
use crate::execution::ExecutionResult;
use crate::execution::output::excerpt;
use crate::execution::redaction::Redaction;
use crate::runs::task::ModelUsage;

/// Characters of an excerpt of a stream.
pub const EXCERPT: usize = 1500;

/// Characters of one error's own words.
const MAX_MESSAGE: usize = 500;

/// What is said where a model that was asked has no answer.
const UNKNOWN: &str = "unknown";
const REVIEW: &str = "Review the logs manually.";

/// A program that failed, with what came of it.
#[derive(Debug, Clone, Copy)]
pub struct Failure<'a> {
    /// The turn, from 1.
    pub iteration: u32,
    /// The data set and the task.
    pub seen: &'a Seen,
    /// The program.
    pub code: &'a str,
    /// What came of it.
    pub result: &'a ExecutionResult,
    /// What the judge says.
    pub verdict: &'a Verdict,
    /// Paths of the host, to be kept out of every prompt.
    pub redaction: &'a Redaction,
}

/// An explanation of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Analysis {
    /// The turn, from 1.
    pub iteration: u32,
    /// The kind of the error, a word.
    pub error_category: String,
    /// What happened, in one sentence.
    pub error_summary: String,
    /// What the error says of itself.
    pub error_message: String,
    /// Standard error, head and tail.
    pub stderr_excerpt: String,
    /// Standard output, head and tail.
    pub stdout_excerpt: String,
    /// What to do about it.
    pub suggested_fix: String,
}

/// What an analyser adds to the facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The kind of the error, a word.
    pub error_category: String,
    /// What happened, in one sentence.
    pub error_summary: String,
    /// What to do about it.
    pub suggested_fix: String,
}

/// What an analyser says, or why it says nothing, and what asking cost.
#[derive(Debug)]
pub struct Explained {
    /// The explanation.
    pub explanation: Result<Explanation, String>,
    /// What the model's calls cost.
    pub usage: ModelUsage,
}

/// Explains failures.
#[async_trait]
pub trait Analyser: Send + Sync + std::fmt::Debug {
    /// Explains why a program failed.
    async fn explain(&self, failure: &Failure<'_>) -> Explained;
}

/// Explains a failure: by rules where there is nobody to ask, and with as little as the contract says
/// where there is no answer.
pub async fn analyse(
    analyser: Option<&dyn Analyser>,
    failure: &Failure<'_>,
) -> (Analysis, ModelUsage) {
    let message = message(failure);
    let (explanation, usage) = match analyser {
        None => (by_rule(failure, &message), ModelUsage::default()),
        Some(analyser) => {
            let Explained { explanation, usage } = analyser.explain(failure).await;
            let explanation = explanation.unwrap_or_else(|_why| Explanation {
                error_category: UNKNOWN.to_owned(),
                error_summary: message.clone(),
                suggested_fix: REVIEW.to_owned(),
            });
            (explanation, usage)
        }
    };
    let result = failure.result;
    let Explanation {
        error_category,
        error_summary,
        suggested_fix,
    } = explanation;
    let analysis = Analysis {
        iteration: failure.iteration,
        error_category,
        error_summary,
        error_message: message,
        stderr_excerpt: excerpt(&result.stderr, result.stderr_tail.as_deref(), EXCERPT),
        stdout_excerpt: excerpt(&result.stdout, result.stdout_tail.as_deref(), EXCERPT),
        suggested_fix,
    };
    (analysis, usage)
}

/// The error in its own words: the last line of a traceback, else what the result or the judge says.
fn message(failure: &Failure<'_>) -> String {
    let result = failure.result;
    let stderr = result.stderr_tail.as_deref().unwrap_or(&result.stderr);
    let raised = exception(stderr).map(|(line, _)| line);
    let known = raised
        .map(str::to_owned)
        .or_else(|| result.error_info.clone());
    let words = known.or_else(|| failure.verdict.why());
    let words = words.unwrap_or_else(|| result.cause.message.clone());
    words.chars().take(MAX_MESSAGE).collect()
}

/// The last line of a traceback and the name of what was raised.
fn exception(stderr: &str) -> Option<(&str, &str)> {
    let at = stderr.rfind("Traceback (most recent call last)")?;
    let lines = stderr[at..].lines().skip(1);
    let raised = lines.filter(|line| !line.starts_with(' ') && !line.trim().is_empty());
    raised.filter_map(|line| Some((line, class(line)?))).next()
}

/// `KeyError` of `KeyError: 'x'`, of `pandas.errors.KeyError`.
fn class(line: &str) -> Option<&str> {
    let name = line.split(':').next()?.trim();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    let last = name.rsplit('.').next()?;
    (!name.is_empty()
        && name.chars().all(is_name)
        && last.starts_with(|c: char| c.is_ascii_uppercase()))
    .then_some(last)
}

/// What each well-known exception is called, and what to do about it.
const EXCEPTIONS: [(&str, &str, &str); 10] = [
    (
        "KeyError",
        "missing_column",
        "Use the names that the columns of the data set have.",
    ),
    (
        "ModuleNotFoundError",
        "missing_library",
        "Use only libraries that are installed.",
    ),
    (
        "ImportError",
        "missing_library",
        "Use only libraries that are installed.",
    ),
    (
        "FileNotFoundError",
        "missing_file",
        "Read the files of the data set by their paths.",
    ),
    (
        "MemoryError",
        "memory_limit",
        "Use less memory: fewer rows at a time, smaller types.",
    ),
    (
        "SyntaxError",
        "syntax_error",
        "Write a program that Python can read.",
    ),
    (
        "IndentationError",
        "syntax_error",
        "Write a program that Python can read.",
    ),
    (
        "ValueError",
        "value_error",
        "Convert, impute or drop the values that do not fit.",
    ),
    (
        "TypeError",
        "type_error",
        "Convert the values to the type that is needed.",
    ),
    (
        "PermissionError",
        "permission_error",
        "Write below the output directory only.",
    ),
];

fn by_rule(failure: &Failure<'_>, message: &str) -> Explanation {
    let result = failure.result;
    let stderr = result.stderr_tail.as_deref().unwrap_or(&result.stderr);
    let raised = exception(stderr).map(|(_, class)| class);
    let known = raised.and_then(|class| EXCEPTIONS.iter().find(|(name, ..)| *name == class));
    let by_result = category(result);
    let (category, fix) = match (by_result, known) {
        (Some("runtime_error"), Some((_, category, fix))) => (*category, *fix),
        (Some("timeout"), _) => ("timeout", "Do less work: a simpler model, fewer rows."),
        (Some("missing_output"), _) => ("missing_output", "Write every file that is expected."),
        (Some("memory_limit"), _) => ("memory_limit", "Use less memory."),
        (Some(category), _) => (category, REVIEW),
        (None, _) => ("rejected", "Do what the judge asks for."),
    };
    Explanation {
        error_category: category.to_owned(),
        error_summary: message.to_owned(),
        suggested_fix: fix.to_owned(),
    }
}

#[cfg(test)]
mod tests;
