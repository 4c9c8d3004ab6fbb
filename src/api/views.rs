//! The JSON shapes of runs, episodes and results. Each is made from what the core keeps by taking
//! it apart completely, so that a new field is a decision here and never an accident.

mod result;

mod task;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::execution::output::excerpt;
use crate::execution::{Artifact, ExecutionResult};
use crate::runs::record::{Ending, Judgement};
use crate::runs::task::{Generation, Perceived};
use crate::runs::{Episode, RunOutcome, RunRecord};
pub(super) use result::ResultView;
use task::{ModelUsageView, TaskSummaryView};

/// The longest excerpt of a stream, in characters.
const EXCERPT: usize = 1500;

/// A run, with every field in the documented order. What is a result is null until the end.
#[derive(Debug, Serialize)]
pub(super) struct RunView {
    run_id: String,
    status: &'static str,
    success: Option<bool>,
    task_summary: Option<TaskSummaryView>,
    selected_library: Option<String>,
    iterations: Option<u32>,
    final_metrics: Option<Map<String, Value>>,
    prediction_artifact_reference: Option<String>,
    model_artifact_reference: Option<String>,
    execution_duration: Option<f64>,
    final_error: Option<String>,
    dataset_name: Option<String>,
    judge_decisions: Option<Vec<JudgeDecision>>,
    execution_backend: &'static str,
    model_usage: Option<ModelUsageView>,
}

#[derive(Debug, Serialize)]
struct JudgeDecision {
    iteration: u32,
    decision: String,
    reason: Option<String>,
}

impl RunView {
    /// The run as it is; `judgements`, its own and perhaps others', matter only once it has ended.
    pub(super) fn new(run: &RunRecord, judgements: &[Judgement]) -> Self {
        let mut view = Self {
            run_id: run.id.to_string(),
            status: run.state.status(),
            success: None,
            task_summary: None,
            selected_library: None,
            iterations: None,
            final_metrics: None,
            prediction_artifact_reference: None,
            model_artifact_reference: None,
            execution_duration: None,
            final_error: None,
            dataset_name: run.request.dataset_name(),
            judge_decisions: None,
            execution_backend: run.request.llm_mode.as_str(),
            model_usage: None,
        };
        if let Some(outcome) = run.state.outcome() {
            let RunOutcome {
                ending,
                iterations,
                final_metrics,
                prediction_artifact_reference,
                model_artifact_reference,
                execution_duration,
                final_error,
                generation,
            } = outcome.clone();
            view.success = Some(ending == Ending::Success);
            view.iterations = Some(iterations);
            view.final_metrics = final_metrics;
            view.prediction_artifact_reference = prediction_artifact_reference;
            view.model_artifact_reference = model_artifact_reference;
            view.execution_duration = execution_duration;
            view.final_error = final_error;
            if let Some(Generation {
                perceived,
                model_usage,
            }) = generation
            {
                if let Some(Perceived { task, library }) = perceived {
                    view.task_summary = Some(task.into());
                    view.selected_library = library;
                }
                view.model_usage = (!model_usage.is_none()).then(|| model_usage.into());
            }
            let own = judgements.iter().filter(|one| one.run_id == run.id);
            view.judge_decisions = Some(own.map(JudgeDecision::from).collect());
        }
        view
    }
}

impl From<&Judgement> for JudgeDecision {
    fn from(judgement: &Judgement) -> Self {
        let Judgement {
            run_id: _,
            iteration,
            decision,
            reason,
        } = judgement.clone();
        Self {
            iteration,
            decision,
            reason,
        }
    }
}

/// A run that a client waited for.
#[derive(Debug, Serialize)]
pub(super) struct WaitedRunView {
    #[serde(flatten)]
    pub(super) run: RunView,
    pub(super) result: Option<ResultView>,
}

/// The episodes of a run.
#[derive(Debug, Serialize)]
pub(super) struct EpisodesView {
    run_id: String,
    start_time: Option<String>,
    end_time: Option<String>,
    selected_library: Option<String>,
    episodes: Vec<EpisodeView>,
    final_result: Option<&'static str>,
}

impl EpisodesView {
    pub(super) fn new(run: &RunRecord, episodes: Vec<Episode>) -> Self {
        use crate::runs::state::RunState;
        let (start, end) = match &run.state {
            RunState::Queued => (None, None),
            RunState::Running { started_at, .. } => (Some(*started_at), None),
            RunState::Ended {
                started_at,
                ended_at,
                ..
            } => (*started_at, Some(*ended_at)),
        };
        Self {
            run_id: run.id.to_string(),
            start_time: start.map(|time| time.to_string()),
            end_time: end.map(|time| time.to_string()),
            selected_library: episodes
                .iter()
                .find_map(|episode| episode.perceived.as_ref()?.library.clone()),
            episodes: episodes
                .into_iter()
                .filter(Episode::is_turn)
                .map(EpisodeView::from)
                .collect(),
            final_result: run.state.outcome().map(|_| run.state.status()),
        }
    }
}

/// One turn of the loop. The program itself is never shown.
#[derive(Debug, Serialize)]
struct EpisodeView {
    episode_id: String,
    run_id: String,
    iteration: u32,
    timestamp: String,
    status: &'static str,
    execution_status: &'static str,
    execution_result_summary: ResultSummary,
    error_context_summary: Option<ErrorContext>,
    judge_decision: Option<String>,
    judge_reason: Option<String>,
    missing_expected_files: Vec<String>,
    summary: String,
    suggested_fix: Option<String>,
    error_category: Option<String>,
    code_sha256: String,
    code_bytes: u64,
}

#[derive(Debug, Serialize)]
struct ResultSummary {
    success: bool,
    return_code: Option<i32>,
    duration_seconds: f64,
    stdout_excerpt: String,
    stderr_excerpt: String,
    output_files: Vec<String>,
    error_info: Option<String>,
}

#[derive(Debug, Serialize)]
struct ErrorContext {
    error_category: Option<String>,
    error_message: Option<String>,
    suggested_fix: Option<String>,
}

impl From<Episode> for EpisodeView {
    fn from(episode: Episode) -> Self {
        let Episode {
            episode_id,
            run_id,
            iteration,
            timestamp,
            execution,
            code_sha256,
            code_bytes,
            judge_decision,
            judge_reason,
            summary,
            suggested_fix,
            error_category,
            error_message,
            perceived: _,
            model_usage: _,
        } = episode;
        // A program that ended well and was sent back all the same has failed, too.
        let success = execution.success && judge_decision.as_deref() != Some("FIX");
        let error_context_summary = (!success).then(|| ErrorContext {
            error_category: error_category.clone(),
            error_message: error_message.or_else(|| execution.error_info.clone()),
            suggested_fix: suggested_fix.clone(),
        });
        Self {
            episode_id: episode_id.to_string(),
            run_id: run_id.to_string(),
            iteration,
            timestamp: timestamp.to_string(),
            status: if success { "SUCCESS" } else { "FAIL" },
            execution_status: execution.status.as_str(),
            missing_expected_files: execution.missing_expected_files.clone(),
            execution_result_summary: ResultSummary::from(execution),
            error_context_summary,
            judge_decision,
            judge_reason,
            summary,
            suggested_fix,
            error_category,
            code_sha256,
            code_bytes,
        }
    }
}

impl From<ExecutionResult> for ResultSummary {
    fn from(result: ExecutionResult) -> Self {
        Self {
            success: result.success,
            return_code: result.return_code,
            duration_seconds: result.duration_seconds,
            stdout_excerpt: excerpt(&result.stdout, result.stdout_tail.as_deref(), EXCERPT),
            stderr_excerpt: excerpt(&result.stderr, result.stderr_tail.as_deref(), EXCERPT),
            output_files: result.output_files,
            error_info: result.error_info,
        }
    }
}

/// The artifacts of a run.
#[derive(Debug, Serialize)]
pub(super) struct ArtifactsView {
    run_id: String,
    prediction_artifact_reference: Option<String>,
    model_artifact_reference: Option<String>,
    artifacts: Vec<ArtifactView>,
}

#[derive(Debug, Serialize)]
struct ArtifactView {
    path: String,
    size: u64,
    sha256: String,
}

impl ArtifactsView {
    pub(super) fn new(run: &RunRecord, artifacts: Vec<Artifact>) -> Self {
        let outcome = run.state.outcome();
        Self {
            run_id: run.id.to_string(),
            prediction_artifact_reference: outcome
                .and_then(|outcome| outcome.prediction_artifact_reference.clone()),
            model_artifact_reference: outcome
                .and_then(|outcome| outcome.model_artifact_reference.clone()),
            artifacts: artifacts.into_iter().map(ArtifactView::from).collect(),
        }
    }
}

impl From<Artifact> for ArtifactView {
    fn from(artifact: Artifact) -> Self {
        let Artifact { path, size, sha256 } = artifact;
        Self { path, size, sha256 }
    }
}

#[cfg(test)]
mod tests;
