//! What the loop needs of the side that runs programs.

use std::path::Path;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use super::executor::{Executed, Executor};
use super::given;
use crate::execution::redaction::Redaction;
use crate::execution::{ExecutionResult, ExecutionSpec};
use crate::ids::ExecutionId;
use crate::runs::RunOutcome;
use crate::runs::gate::Gate;
use crate::runs::service::Observer;

/// Runs programs, one per call, each in a sandbox of its own.
#[async_trait]
pub trait Runner: Send + Sync + std::fmt::Debug {
    /// The id that an execution like this one has to have: see [`Executor::reserve`].
    fn reserve(&self, spec: ExecutionSpec) -> ExecutionId;

    /// Gives up what was kept for this execution.
    fn release(&self, id: &ExecutionId);

    /// What is to be taken out of texts about a run with this data set.
    fn redaction(&self, dataset: Option<&Path>) -> Redaction;

    /// Runs one program to its end. Never fails.
    async fn execute(
        &self,
        spec: &ExecutionSpec,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Executed;

    /// Goes on with an execution that an earlier daemon left: see [`Executor::take_over`].
    async fn take_over(
        &self,
        spec: &ExecutionSpec,
        gate: &Gate,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Executed;

    /// The result of this execution is on disk: nobody has to hold it any more.
    async fn settle(&self, id: &ExecutionId);

    /// Takes back what was published of an execution that is not recorded.
    async fn withdraw(&self, id: &ExecutionId);

    /// What a run shows whose last execution had this result.
    async fn outcome(&self, result: &mut ExecutionResult) -> RunOutcome;
}

#[async_trait]
impl Runner for Executor {
    fn reserve(&self, spec: ExecutionSpec) -> ExecutionId {
        self.reserve(spec)
    }

    fn release(&self, id: &ExecutionId) {
        self.release(id);
    }

    fn redaction(&self, dataset: Option<&Path>) -> Redaction {
        self.redaction(dataset)
    }

    async fn execute(
        &self,
        spec: &ExecutionSpec,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Executed {
        self.execute(spec, cancel, observer).await
    }

    async fn take_over(
        &self,
        spec: &ExecutionSpec,
        gate: &Gate,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Executed {
        self.take_over(spec, gate, cancel, observer).await
    }

    async fn settle(&self, id: &ExecutionId) {
        self.settle(id).await;
    }

    async fn withdraw(&self, id: &ExecutionId) {
        self.withdraw(id).await;
    }

    async fn outcome(&self, result: &mut ExecutionResult) -> RunOutcome {
        given::outcome(self.outputs(), result).await
    }
}
