//! What the service asks of whoever carries runs out, and what that one is given for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::ids::{ExecutionId, RunId};
use crate::runs::events::RunEvent;
use crate::runs::gate::Gate;
use crate::runs::record::{Episode, PlannedProgram, RecordedEpisode, RunOutcome, RunRecord};
use crate::runs::store::{OpenExecution, StoreError};

/// Carries out a run: one given program, or the loop. Implemented by `orchestrator`.
#[async_trait]
pub trait Orchestrator: Send + Sync + std::fmt::Debug {
    /// The id of the first execution of a run that is about to start: written down together with
    /// the start. Whatever waits already for an execution is known by its id, so this is the moment
    /// to choose it. Must not block; `run` is an outline.
    fn first_execution(&self, run: &RunRecord) -> ExecutionId {
        let _ = run;
        ExecutionId::random()
    }

    /// Of how many of the runs that wait it wants to know before their turn.
    fn looks_ahead(&self) -> usize {
        0
    }

    /// These runs are next in turn, in this order, instead of those it was told of before. Must not
    /// block; they are outlines, and each may still be cancelled.
    fn expect(&self, runs: &[RunRecord]) {
        let _ = runs;
    }

    /// The execution that was chosen by [`Orchestrator::first_execution`] will not take place.
    fn give_up(&self, execution: &ExecutionId) {
        let _ = execution;
    }

    /// How long a run that an earlier daemon left can be gone on with from now on: that is what it has at
    /// least before it is ended. Must not block; `run` is an outline.
    fn longest_left(&self, run: &RunRecord) -> Duration {
        let _ = run;
        Duration::ZERO
    }

    /// The end of this execution is on disk: what was held for the case that it is not may go.
    async fn recorded(&self, execution: &ExecutionId) {
        let _ = execution;
    }

    /// Whatever is going on is dropped once this returns, and left as it is for the next daemon. Within a
    /// moment.
    async fn leave_behind(&self) {}

    /// Carries the run out and tells how it ended. Never panics on what a program does; ends soon
    /// after `context.cancel` is cancelled.
    async fn carry_out(&self, run: &RunRecord, context: &RunContext) -> CarriedOut;
}

/// What an orchestrator gives back.
#[derive(Debug, Clone, PartialEq)]
pub struct CarriedOut {
    /// How the run ended.
    pub outcome: RunOutcome,
    /// The last episode, unless the journal has it already: recorded together with the end.
    pub last_episode: Option<Box<RecordedEpisode>>,
}

impl From<RunOutcome> for CarriedOut {
    /// An end with nothing left to record.
    fn from(outcome: RunOutcome) -> Self {
        Self {
            outcome,
            last_episode: None,
        }
    }
}

/// What an orchestrator gets besides the run.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// Where it begins.
    pub origin: Origin,
    /// How many daemons have gone on with the run, this one included; counted only if its programs are
    /// written.
    pub takeovers: u32,
    /// Whether new programs may be started. It was open when the run was; it may not be yet when one
    /// is gone on with.
    pub gate: Gate,
    /// Cancelled when the run is to end.
    pub cancel: CancellationToken,
    /// Cancelled once the daemon goes down: no further program is started from then on.
    pub closing: CancellationToken,
    /// Cancelled by the orchestrator of a run that would need one: nothing is asked of it any more, and
    /// the run is left to the next start as it is.
    pub leave: CancellationToken,
    /// Where intents and episodes are written down.
    pub journal: Arc<dyn Journal>,
    /// Who is told what happens meanwhile.
    pub observer: Arc<dyn Observer>,
}

/// Where carrying a run out begins.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    /// With this execution, the run's first, which was written down together with its start. Nothing
    /// was done for it yet.
    New(ExecutionId),
    /// With one that an earlier daemon planned, and may have started.
    Left(Box<OpenExecution>),
    /// Between two executions: an earlier daemon recorded one and planned no other yet.
    Between,
}

impl Origin {
    /// The execution, if it begins with one.
    #[must_use]
    pub fn execution(&self) -> Option<&ExecutionId> {
        match self {
            Self::New(id) => Some(id),
            Self::Left(open) => Some(&open.id),
            Self::Between => None,
        }
    }
}

/// What is recorded of a run that is not over.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SoFar {
    /// Its episodes, in order, with what was looked at before the first turn.
    pub episodes: Vec<Episode>,
    /// The program of the last turn.
    pub last_program: Option<String>,
}

/// The durable side of carrying a run out; all writes return after the record is on disk.
#[async_trait]
pub trait Journal: Send + Sync + std::fmt::Debug {
    /// Another execution than the first is about to be created: the how manieth attempt it is, and its
    /// program if that is in no request.
    async fn plan_execution(
        &self,
        run: RunId,
        execution: &ExecutionId,
        attempt: u32,
        program: Option<&PlannedProgram>,
    ) -> Result<(), StoreError>;

    /// An execution was lost, and another one is planned in its place.
    async fn abandon_execution(&self, execution: &ExecutionId) -> Result<(), StoreError>;

    /// An episode is over.
    async fn add_episode(&self, recorded: &RecordedEpisode) -> Result<(), StoreError>;

    /// What is recorded of a run so far: empty for one that begins, more for one that is gone on with.
    async fn so_far(&self, run: RunId) -> Result<SoFar, StoreError>;
}

/// Is told what happens in a run while it happens. Must not block.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// Something happened.
    fn observe(&self, event: RunEvent);
}
