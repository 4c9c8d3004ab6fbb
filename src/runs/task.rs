//! What a generated run is about, and what generating it cost: plain facts, decided elsewhere.

use serde::{Deserialize, Serialize};

/// What is to be done with a data set (contract section 1). Chosen from the instruction and the
/// data set's profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSummary {
    /// What is wanted, in one sentence.
    pub objective: String,
    /// `classification`, `regression`, `clustering` or `unknown`.
    pub task_type: String,
    /// The column to predict.
    pub target_column: Option<String>,
    /// Tables and texts of the data set, relative to it.
    pub input_data_files: Vec<String>,
    /// What the program has to leave.
    pub output_requirements: String,
    /// How predictions are measured.
    pub evaluation_metric: Option<String>,
    /// What the program has to respect.
    pub constraints: Vec<String>,
    /// Files that describe the data set, relative to it.
    pub relevant_description_files: Vec<String>,
    /// Why all this was chosen.
    pub explanation: String,
}

/// What was found out about a run before its first program was written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Perceived {
    /// The task.
    pub task: TaskSummary,
    /// The library that programs are to use, by the name it is imported by.
    pub library: Option<String>,
}

/// What the model's calls cost. Adds up: over the calls of an episode, over the episodes of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelUsage {
    /// Calls that were answered, well or not.
    pub calls: u32,
    /// Tokens sent, as the model's server counted them.
    pub prompt_tokens: u64,
    /// Tokens received, as it counted them.
    pub completion_tokens: u64,
    /// Calls whose answer did not say how many tokens they took.
    pub uncounted_calls: u32,
    /// An estimate of the tokens of those, by their length; counts towards the budget only.
    pub estimated_tokens: u64,
    /// Wall clock that asking took, whether or not there was an answer.
    pub seconds: f64,
    /// The price of the counted tokens, in the unit of the configured prices; `None` without prices.
    pub cost: Option<f64>,
}

impl ModelUsage {
    /// What counts towards a budget of tokens.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        let counted = self.prompt_tokens.saturating_add(self.completion_tokens);
        counted.saturating_add(self.estimated_tokens)
    }

    /// Adds what further calls cost.
    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.prompt_tokens = self.prompt_tokens.saturating_add(other.prompt_tokens);
        self.completion_tokens = self
            .completion_tokens
            .saturating_add(other.completion_tokens);
        self.uncounted_calls = self.uncounted_calls.saturating_add(other.uncounted_calls);
        self.estimated_tokens = self.estimated_tokens.saturating_add(other.estimated_tokens);
        self.seconds += other.seconds;
        self.cost = match (self.cost, other.cost) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
    }

    /// Whether a model was called at all.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.calls == 0
    }
}

/// What a run says of its generation, once it has ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Generation {
    /// What was found out before its first program; `None` if it did not get that far.
    pub perceived: Option<Perceived>,
    /// What the model's calls cost.
    pub model_usage: ModelUsage,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_adds_up_and_a_missing_price_is_no_price() {
        let call = |tokens, cost| ModelUsage {
            calls: 1,
            prompt_tokens: tokens,
            completion_tokens: 1,
            seconds: 1.5,
            cost,
            ..ModelUsage::default()
        };
        let mut all = ModelUsage::default();
        assert!(all.is_none());
        all.add(&call(10, None));
        assert_eq!(all.cost, None);
        all.add(&call(20, Some(0.5)));
        all.add(&ModelUsage {
            calls: 1,
            uncounted_calls: 1,
            estimated_tokens: 7,
            ..ModelUsage::default()
        });
        assert_eq!((all.calls, all.tokens(), all.cost), (3, 39, Some(0.5)));
        assert!((all.seconds - 3.0).abs() < 1e-9);
        all.add(&call(u64::MAX, None));
        assert_eq!(all.tokens(), u64::MAX);
    }
}
