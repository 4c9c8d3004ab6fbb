//! A run with a given program: one execution is its only episode.

use std::future::pending;
use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::course::wall;
use super::executor::{Executed, Executor};
use super::retry;
use super::takeover::rules::longest_left;
use crate::artifacts::summary::read_metrics;
use crate::clock;
use crate::execution::cause::{CauseKind, Limit};
use crate::execution::{ExecutionResult, ExecutionSpec, Status};
use crate::ids::{ExecutionId, RunId};
use crate::runs::events::RunEvent;
use crate::runs::record::{Ending, Episode, RecordedEpisode, RunOutcome, RunRecord};
use crate::runs::service::{CarriedOut, Orchestrator, Origin, RunContext};
use crate::telemetry::log_chain;

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
}

#[async_trait]
impl Orchestrator for GivenProgram {
    fn first_execution(&self, run: &RunRecord) -> ExecutionId {
        let request = &run.request;
        let spec = specification(run, ExecutionId::random());
        match &request.code {
            Some(_) => self.executor.reserve(spec),
            None => spec.id,
        }
    }

    fn looks_ahead(&self) -> usize {
        self.executor.looks_ahead()
    }

    fn expect(&self, runs: &[RunRecord]) {
        let given = runs.iter().filter(|run| run.request.code.is_some());
        let specs: Vec<_> = given
            .map(|run| specification(run, ExecutionId::random()))
            .collect();
        self.executor.expect(&specs);
    }

    fn give_up(&self, execution: &ExecutionId) {
        self.executor.release(execution);
    }

    fn longest_left(&self, run: &RunRecord) -> Duration {
        longest_left(wall(&run.request.limits))
    }

    async fn recorded(&self, execution: &ExecutionId) {
        self.executor.settle(execution).await;
    }

    async fn leave_behind(&self) {
        self.executor.leave_behind().await;
    }

    async fn carry_out(&self, run: &RunRecord, context: &RunContext) -> CarriedOut {
        let (mut attempt, mut is_left) = match context.origin {
            Origin::New => (1, false),
            Origin::Left { attempt } => (attempt, true),
        };
        let mut id = context.first_execution.clone();
        let mut earlier = Vec::new();
        loop {
            let spec = specification(run, id);
            let Executed {
                mut result,
                evidence,
            } = self.execute(&spec, context, is_left).await;
            let next = match retry::pause(&result, attempt, run.request.retries) {
                Some(pause) if !context.cancel.is_cancelled() => {
                    self.try_again(run.id, (&spec.id, attempt), pause, context)
                        .await
                }
                Some(_) | None => None,
            };
            if let Some(next) = next {
                earlier.push(retry::note(&result, attempt, run.request.retries));
                (id, attempt, is_left) = (next, attempt + 1, false);
                continue;
            }
            let outcome = self.outcome(&mut result).await;
            result.warnings.extend(earlier);
            let episode = episode(run.id, &spec, result);
            let code = spec.code;
            return CarriedOut {
                outcome,
                last_episode: Some(Box::new(RecordedEpisode {
                    episode,
                    code,
                    evidence,
                })),
            };
        }
    }
}

impl GivenProgram {
    async fn execute(&self, spec: &ExecutionSpec, context: &RunContext, is_left: bool) -> Executed {
        let observer = context.observer.as_ref();
        observer.observe(RunEvent::ExecutionStarted(spec.id.clone()));
        let executed = if is_left {
            let gate = &context.gate;
            let taking_over = self
                .executor
                .take_over(spec, gate, &context.cancel, observer);
            taking_over.await
        } else {
            self.executor.execute(spec, &context.cancel, observer).await
        };
        let status = executed.result.status.as_str();
        observer.observe(RunEvent::ExecutionEnded(spec.id.clone(), status));
        executed
    }

    /// Plans another execution in place of one that the infrastructure ended, and gives its id; `None`
    /// if that could not be written down, or if the run is to end meanwhile. Once the daemon goes down
    /// the lost one stays open, for the next daemon to find and try again.
    async fn try_again(
        &self,
        run: RunId,
        (lost, attempt): (&ExecutionId, u32),
        pause: Duration,
        context: &RunContext,
    ) -> Option<ExecutionId> {
        let waiting = async {
            tokio::time::sleep(pause).await;
            context.gate.opened().await;
        };
        let waiting = context.closing.run_until_cancelled(waiting);
        let waited = context.cancel.run_until_cancelled(waiting).await?;
        if waited.is_none() || context.closing.is_cancelled() {
            context.leave.cancel();
            return pending().await;
        }
        let next = ExecutionId::random();
        // In this order: a run that is carried out always has an execution that is open.
        let planned = async {
            let journal = &context.journal;
            journal.plan_execution(run, &next, attempt + 1).await?;
            journal.abandon_execution(lost).await
        };
        match planned.await {
            Ok(()) => {
                self.executor.settle(lost).await;
                // Nothing of it is recorded.
                self.executor.withdraw(lost).await;
                Some(next)
            }
            Err(error) => {
                log_chain("another attempt could not be written down", &error);
                None
            }
        }
    }
}

impl GivenProgram {
    async fn outcome(&self, result: &mut ExecutionResult) -> RunOutcome {
        let directory = self.executor.outputs().published(&result.execution_id);
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
        }
    }
}

fn specification(run: &RunRecord, id: ExecutionId) -> ExecutionSpec {
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

fn category(result: &ExecutionResult) -> Option<&'static str> {
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
