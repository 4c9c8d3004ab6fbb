//! Every kind of run: with a given program, or with one that is written.

use std::time::Duration;

use async_trait::async_trait;

use super::course::wall;
use super::executor::Executor;
use super::generated::{Generated, first_specification};
use super::given::{GivenProgram, specification};
use super::takeover::rules::longest_left;
use crate::execution::ExecutionSpec;
use crate::ids::ExecutionId;
use crate::runs::RunRecord;
use crate::runs::service::{CarriedOut, Orchestrator, RunContext};

/// Carries out runs of every kind.
#[derive(Debug)]
pub struct EveryRun {
    executor: Executor,
    given: GivenProgram,
    generated: Generated,
}

impl EveryRun {
    /// Programs are run by `executor`, and written by `generated` where they are not given.
    #[must_use]
    pub fn new(executor: Executor, generated: Generated) -> Self {
        Self {
            given: GivenProgram::new(executor.clone()),
            executor,
            generated,
        }
    }
}

/// The first execution of a run.
fn first(run: &RunRecord) -> ExecutionSpec {
    let id = ExecutionId::random();
    match &run.request.code {
        Some(_) => specification(run, id),
        None => first_specification(run, id),
    }
}

#[async_trait]
impl Orchestrator for EveryRun {
    fn first_execution(&self, run: &RunRecord) -> ExecutionId {
        self.executor.reserve(first(run))
    }

    fn looks_ahead(&self) -> usize {
        self.executor.looks_ahead()
    }

    fn expect(&self, runs: &[RunRecord]) {
        let specs: Vec<_> = runs.iter().map(first).collect();
        self.executor.expect(&specs);
    }

    fn give_up(&self, execution: &ExecutionId) {
        self.executor.release(execution);
    }

    fn longest_left(&self, run: &RunRecord) -> Duration {
        let program = longest_left(wall(&run.request.limits));
        match &run.request.code {
            Some(_) => program,
            // It knows itself when its time is over, and still has the end of its program told.
            None => self.generated.longest().saturating_add(program),
        }
    }

    async fn recorded(&self, execution: &ExecutionId) {
        self.executor.settle(execution).await;
    }

    async fn leave_behind(&self) {
        self.executor.leave_behind().await;
    }

    async fn carry_out(&self, run: &RunRecord, context: &RunContext) -> CarriedOut {
        match &run.request.code {
            Some(_) => self.given.carry_out(run, context).await,
            None => self.generated.carry_out(run, context).await,
        }
    }
}
