//! What a generated run is about and what it cost, as the interface shows it.

use serde::Serialize;

use crate::runs::task::{ModelUsage, TaskSummary};

#[derive(Debug, Serialize)]
pub(super) struct TaskSummaryView {
    objective: String,
    task_type: String,
    target_column: Option<String>,
    input_data_files: Vec<String>,
    output_requirements: String,
    evaluation_metric: Option<String>,
    constraints: Vec<String>,
    relevant_description_files: Vec<String>,
    explanation: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ModelUsageView {
    calls: u32,
    prompt_tokens: u64,
    completion_tokens: u64,
    uncounted_calls: u32,
    cost: Option<f64>,
}

impl From<TaskSummary> for TaskSummaryView {
    fn from(task: TaskSummary) -> Self {
        let TaskSummary {
            objective,
            task_type,
            target_column,
            input_data_files,
            output_requirements,
            evaluation_metric,
            constraints,
            relevant_description_files,
            explanation,
        } = task;
        Self {
            objective,
            task_type,
            target_column,
            input_data_files,
            output_requirements,
            evaluation_metric,
            constraints,
            relevant_description_files,
            explanation,
        }
    }
}

impl From<ModelUsage> for ModelUsageView {
    fn from(usage: ModelUsage) -> Self {
        let ModelUsage {
            calls,
            prompt_tokens,
            completion_tokens,
            uncounted_calls,
            estimated_tokens: _,
            seconds: _,
            cost,
        } = usage;
        Self {
            calls,
            prompt_tokens,
            completion_tokens,
            uncounted_calls,
            cost,
        }
    }
}
