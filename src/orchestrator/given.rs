//! A run with a given program: one execution is its only episode.

use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::attempts::{Attempt, Attempts};
use super::executor::{Executed, Executor};
use crate::artifacts::OutputRoot;
use crate::artifacts::summary::read_metrics;
use crate::clock;
use crate::execution::cause::{CauseKind, Limit};
use crate::execution::{ExecutionResult, ExecutionSpec, Status};
use crate::ids::{ExecutionId, RunId};
use crate::runs::record::{Ending, Episode, RecordedEpisode, RunOutcome, RunRecord};
use crate::runs::recovery::INTERRUPTED;
use crate::runs::service::{CarriedOut, RunContext};

const PREDICTIONS: &str = "predictions.csv";
const MODELS: &str = "models";

/// Carries out runs whose program was sent with them.
#[derive(Debug)]
pub struct GivenProgram {
    executor: Executor,
}

impl GivenProgram {
    /// Programs are run by `executor`.
    #[must_use]
    pub fn new(executor: Executor) -> Self {
        Self { executor }
    }
    /// Carries a run out.
    pub async fn carry_out(&self, run: &RunRecord, context: &RunContext) -> CarriedOut {
        let Some((id, first)) = Attempt::of(&context.origin) else {
            // Recovery ends such a run itself.
            return RunOutcome::without_execution(Ending::Fail, INTERRUPTED.to_owned()).into();
        };
        let mut spec = specification(run, id);
        let attempts = Attempts {
            runner: &self.executor,
            run,
            context,
            observer: context.observer.as_ref(),
            program: None,
        };
        let Executed {
            mut result,
            evidence,
        } = attempts.execute(&mut spec, first).await;
        let outcome = outcome(self.executor.outputs(), &mut result).await;
        let episode = episode(run.id, &spec, result);
        CarriedOut {
            outcome,
            last_episode: Some(Box::new(RecordedEpisode {
                episode,
                code: spec.code,
                evidence,
            })),
        }
    }
}

/// How a run ended whose last execution had this result, after one turn.
pub(super) async fn outcome(outputs: &OutputRoot, result: &mut ExecutionResult) -> RunOutcome {
    let directory = outputs.published(&result.execution_id);
    let metrics = spawn_blocking(move || read_metrics(&directory))
        .await
        .unwrap_or_default();
    result.warnings.extend(metrics.note);
    let id = &result.execution_id;
    let has = |test: &dyn Fn(&str) -> bool| result.artifacts.iter().any(|a| test(&a.path));
    let in_models = |path: &str| path.split('/').next() == Some(MODELS) && path.contains('/');
    RunOutcome {
        ending: match result.status {
            Status::Success => Ending::Success,
            Status::Cancelled => Ending::Cancelled,
            Status::Failure | Status::Timeout | Status::InvalidOutput | Status::Error => {
                Ending::Fail
            }
        },
        iterations: 1,
        final_metrics: metrics.metrics,
        prediction_artifact_reference: has(&|path| path == PREDICTIONS)
            .then(|| format!("{id}/{PREDICTIONS}")),
        model_artifact_reference: has(&in_models).then(|| format!("{id}/{MODELS}")),
        execution_duration: Some(result.duration_seconds),
        final_error: final_error(result),
        generation: None,
    }
}

/// The specification of a run's program, whoever writes it.
pub(super) fn specification(run: &RunRecord, id: ExecutionId) -> ExecutionSpec {
    let request = &run.request;
    ExecutionSpec {
        id,
        code: request.code.clone().unwrap_or_default(),
        input_files: request.input_files.clone(),
        expected_output_files: request.expected_output_files.clone(),
        bash_script: request.bash_script.clone(),
        dataset: request.dataset.clone(),
        image: request.image.clone(),
        runtime: request.runtime.clone(),
        preload: request.preload,
        limits: request.limits.clone(),
    }
}

/// The only turn of a run with a given program.
fn episode(run: RunId, spec: &ExecutionSpec, result: ExecutionResult) -> Episode {
    Episode {
        episode_id: Uuid::new_v4(),
        run_id: run,
        iteration: 1,
        timestamp: clock::now(),
        code_sha256: hex::encode(Sha256::digest(&spec.code)),
        code_bytes: spec.code.len() as u64,
        judge_decision: None,
        judge_reason: None,
        summary: result.cause.message.clone(),
        suggested_fix: None,
        error_category: category(&result).map(str::to_owned),
        error_message: None,
        perceived: None,
        model_usage: None,
        execution: result,
    }
}

/// The last error's category, or why the run died (contract section 1).
fn final_error(result: &ExecutionResult) -> Option<String> {
    if result.cause.kind == CauseKind::Infrastructure || result.started_at.is_none() {
        return result.error_info.clone();
    }
    category(result).map(str::to_owned)
}

/// The kind of a failure, as far as the result tells it.
pub(super) fn category(result: &ExecutionResult) -> Option<&'static str> {
    match result.status {
        Status::Success => None,
        Status::Timeout => Some("timeout"),
        Status::InvalidOutput => Some("missing_output"),
        Status::Cancelled => Some("cancelled"),
        Status::Error => Some("infrastructure"),
        Status::Failure => Some(match result.limit {
            Some(Limit::Time) => "timeout",
            Some(Limit::Cpu) => "cpu_limit",
            Some(Limit::Memory) => "memory_limit",
            Some(Limit::Processes) => "process_limit",
            Some(Limit::Disk) => "disk_limit",
            Some(Limit::FileSize) => "file_size_limit",
            None if result.cause.kind == CauseKind::Signal => "crash",
            None => "runtime_error",
        }),
    }
}
