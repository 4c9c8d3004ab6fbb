//! A run whose program is written: the loop around [`step`], with everything that takes time or can
//! fail at its edges.
//!
//! Each execution has a sandbox, an id and a receipt of its own, and is written down before it is made,
//! with its program. Nothing is known but what is recorded and planned, so that a run that was left
//! anywhere can be gone on with ([`step::begin`](super::step::begin)): a program that runs is taken over,
//! and a model that was being asked is asked again.

mod work;

mod turn;

mod spent;

mod ending;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::work::Work;
use super::analysis::Analyser;
use super::coder::{Assignment, Coder, Written};
use super::crew::ModelCrew;
use super::judge::Judge;
use super::llm::ModelClient;
use super::mock::MockCoder;
use super::perception;
use super::runner::Runner;
use super::step::{Action, step};
use crate::execution::ExecutionSpec;
use crate::ids::ExecutionId;
use crate::runs::RunRecord;
use crate::runs::request::LlmMode;
use crate::runs::service::{CarriedOut, RunContext};
use crate::runs::task::ModelUsage;
use crate::telemetry::log_chain;

/// Who writes, judges and explains.
#[derive(Debug, Clone)]
pub struct Crew {
    /// Writes programs.
    pub coder: Arc<dyn Coder>,
    /// Judges where rules leave it open; without one they decide alone.
    pub judge: Option<Arc<dyn Judge>>,
    /// Explains failures; without one rules do.
    pub analyser: Option<Arc<dyn Analyser>>,
}

impl Crew {
    /// The one that needs no model.
    #[must_use]
    pub fn mock() -> Self {
        Self {
            coder: Arc::new(MockCoder),
            judge: None,
            analyser: None,
        }
    }

    /// One that asks a model; without one it writes nothing and says so.
    #[must_use]
    pub fn real(client: Option<ModelClient>) -> Self {
        let Some(client) = client else {
            return Self {
                coder: Arc::new(NoModel),
                judge: None,
                analyser: None,
            };
        };
        let crew = Arc::new(ModelCrew::new(client));
        Self {
            coder: Arc::clone(&crew) as _,
            judge: Some(Arc::clone(&crew) as _),
            analyser: Some(crew),
        }
    }
}

/// Stands in for a model that was configured when the run was accepted.
#[derive(Debug)]
struct NoModel;

#[async_trait]
impl Coder for NoModel {
    async fn write(&self, _assignment: &Assignment<'_>) -> Written {
        Written {
            code: Err("no model is configured".to_owned()),
            usage: ModelUsage::default(),
        }
    }
}

/// What every run of the loop may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopBounds {
    /// Wall clock from the run's start, without the time between two daemons.
    pub wall: Duration,
    /// Tokens of the model; `None` without a bound.
    pub tokens: Option<u64>,
}

/// Carries out runs whose program is written.
#[derive(Debug)]
pub struct Generated {
    runner: Arc<dyn Runner>,
    mock: Crew,
    real: Crew,
    bounds: LoopBounds,
}

impl Generated {
    /// Programs are run by `runner` and written by one of the crews, as each run wants it.
    #[must_use]
    pub fn new(runner: Arc<dyn Runner>, mock: Crew, real: Crew, bounds: LoopBounds) -> Self {
        Self {
            runner,
            mock,
            real,
            bounds,
        }
    }

    /// How long a run goes on at most, besides what is told of its last program after that.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.bounds.wall
    }

    fn crew(&self, mode: LlmMode) -> &Crew {
        match mode {
            LlmMode::Mock => &self.mock,
            LlmMode::Real => &self.real,
        }
    }

    /// Carries a run out, from its beginning or from what is recorded of it.
    pub async fn carry_out(&self, run: &RunRecord, context: &RunContext) -> CarriedOut {
        let so_far = match context.journal.so_far(run.id).await {
            Ok(so_far) => so_far,
            Err(error) => {
                log_chain("what is recorded of a run could not be read", &error);
                if let Some(execution) = context.origin.execution() {
                    self.runner.release(execution);
                }
                return Work::unreadable();
            }
        };
        let mut work = Work::new(self, run, context, so_far);
        let mut action = work.first_action();
        loop {
            let event = match &action {
                Action::Perceive => work.perceive().await,
                Action::Write { iteration } => work.write(*iteration).await,
                Action::Execute => work.execute().await,
                Action::Judge(_) => work.judge().await,
                Action::Analyse => work.analyse().await,
                Action::Record(then) => work.record(then).await,
                Action::End(end) => {
                    let end = end.clone();
                    return work.end(end).await;
                }
            };
            action = step(&action, event, work.budget(), &work.spent());
        }
    }
}

/// The first execution of a run: the look at its data set.
pub(super) fn first_specification(run: &RunRecord, id: ExecutionId) -> ExecutionSpec {
    perception::specification(run, id)
}

#[cfg(test)]
mod tests;
