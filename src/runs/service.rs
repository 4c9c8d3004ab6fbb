//! The service: accepts runs, lets them wait their turn, has them carried out and answers
//! questions about them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::events::RunEvent;
use super::record::{Episode, RunOutcome, RunRecord};
use super::request::RunRequest;
use super::store::{IdempotencyKey, RunFilter, StoreError};
use crate::execution::Artifact;
use crate::ids::{ClientKey, ExecutionId, RunId};

/// Carries out a run: one given program, or the loop. Implemented by `orchestrator`.
#[async_trait]
pub trait Orchestrator: Send + Sync + std::fmt::Debug {
    /// Carries the run out and tells how it ended. Never panics on what a program does; ends soon
    /// after `context.cancel` is cancelled.
    async fn carry_out(&self, run: &RunRecord, context: &RunContext) -> RunOutcome;
}

/// What an orchestrator gets besides the run.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// Cancelled when the run is to end.
    pub cancel: CancellationToken,
    /// Where intents and episodes are written down.
    pub journal: Arc<dyn Journal>,
    /// Who is told what happens meanwhile.
    pub observer: Arc<dyn Observer>,
}

/// The durable side of carrying a run out; both return after the record is on disk.
#[async_trait]
pub trait Journal: Send + Sync + std::fmt::Debug {
    /// An execution is about to be created.
    async fn plan_execution(&self, run: RunId, execution: &ExecutionId) -> Result<(), StoreError>;

    /// An episode is over.
    async fn add_episode(&self, episode: &Episode, code: &str) -> Result<(), StoreError>;
}

/// Is told what happens in a run while it happens. Must not block.
pub trait Observer: Send + Sync + std::fmt::Debug {
    /// Something happened.
    fn observe(&self, event: RunEvent);
}

/// (being written)
#[derive(Debug)]
pub struct RunService;

/// How a submission was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// The run, new or repeated.
    pub id: RunId,
    /// Whether the same key and body had been sent before.
    pub repeated: bool,
}

/// Why a submission was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// As many runs wait as are allowed.
    #[error("the queue is full: {waiting} runs are waiting")]
    QueueFull {
        /// How many.
        waiting: u32,
    },
    /// The key was used with another body.
    #[error("the idempotency key was used with another request body")]
    KeyReused,
    /// The daemon is going down.
    #[error("the daemon is shutting down")]
    ShuttingDown,
    /// The store failed.
    #[error("the run could not be recorded")]
    Store(#[from] StoreError),
}

/// How a request to cancel was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It is over now, or will be in a moment.
    Accepted,
    /// It had ended before.
    AlreadyEnded,
    /// There is no such run.
    Unknown,
}

impl RunService {
    /// x
    pub async fn submit(
        &self,
        _request: RunRequest,
        _client: ClientKey,
        _key: Option<IdempotencyKey>,
    ) -> Result<Submitted, SubmitError> {
        unimplemented!()
    }
    /// x
    pub async fn get(&self, _id: RunId) -> Result<Option<RunRecord>, StoreError> {
        unimplemented!()
    }
    /// x
    pub async fn list(&self, _filter: &RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        unimplemented!()
    }
    /// x
    pub async fn episodes(&self, _id: RunId) -> Result<Vec<Episode>, StoreError> {
        unimplemented!()
    }
    /// x
    pub async fn artifacts(&self, _id: RunId) -> Result<Vec<Artifact>, StoreError> {
        unimplemented!()
    }
    /// x
    pub async fn cancel(&self, _id: RunId) -> Result<CancelAnswer, StoreError> {
        unimplemented!()
    }
    /// x: the run once it has ended, or as it is when `limit` has passed; `None` if unknown
    pub async fn wait(
        &self,
        _id: RunId,
        _limit: Duration,
    ) -> Result<Option<RunRecord>, StoreError> {
        unimplemented!()
    }
}
