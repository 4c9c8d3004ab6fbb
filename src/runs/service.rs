//! The service: accepts runs, lets them wait their turn, has them carried out and answers
//! questions about them.
//!
//! Owns the queue, the permits and every task that works on a run. A permit held is the right to
//! run. What has to outlive the request that asked for it is done in a task of the service's own,
//! so that a client that goes away neither loses a run nor leaves half of one. Knows neither HTTP
//! nor containers.

mod terms;

mod orchestration;

mod ahead;

mod inner;

mod places;

mod dispatch;

mod carry;

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use self::orchestration::{
    CarriedOut, Journal, Observer, Orchestrator, Origin, RunContext, SoFar,
};
pub use self::terms::{CancelAnswer, InFlight, ServiceSettings, SubmitError, Submitted};

use self::inner::{Inner, Timing};
use super::events::{EventLog, Subscription};
use super::gate::Gate;
use super::record::{Episode, Judgement, RunRecord};
use super::recovery::LeftRun;
use super::request::RunRequest;
use super::store::{Fault, IdempotencyKey, RunFilter, Store, StoreError};
use super::tenants::Submitter;
use crate::execution::Artifact;
use crate::ids::{ExecutionId, RunId, TenantId};

/// How long a run may take to end after it was told to; then its end is recorded without a result.
///
/// More than all that the end of an execution waits for together: the supervisor, then the engine's
/// calls that kill, look at and remove the sandbox, each up to its bound. A test of
/// `orchestrator/conversation.rs` adds them up; what is above their sum is the disk's.
pub const STOP_GRACE: Duration = Duration::from_secs(50);

/// The service.
#[derive(Debug)]
pub struct RunService {
    inner: Arc<Inner>,
}

impl RunService {
    /// Starts the service: the runs that wait in the store wait on, in their order. What an earlier
    /// daemon left going on has to be put in order before, by
    /// [`recover`](super::recovery::recover).
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the waiting runs cannot be read.
    pub async fn start(
        store: Arc<dyn Store>,
        orchestrator: Arc<dyn Orchestrator>,
        settings: ServiceSettings,
    ) -> Result<Arc<Self>, StoreError> {
        Self::start_behind((store, orchestrator, Gate::open()), settings, Vec::new()).await
    }

    /// Like [`RunService::start`], but takes and starts runs only while the gate is open, and goes on
    /// with the runs that an earlier daemon left going on.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the waiting runs cannot be read.
    pub async fn start_behind(
        parts: (Arc<dyn Store>, Arc<dyn Orchestrator>, Gate),
        settings: ServiceSettings,
        left: Vec<LeftRun>,
    ) -> Result<Arc<Self>, StoreError> {
        Self::start_gated(parts, settings, Timing::default(), left).await
    }

    #[cfg(test)]
    async fn start_with(
        store: Arc<dyn Store>,
        orchestrator: Arc<dyn Orchestrator>,
        settings: ServiceSettings,
        timing: Timing,
    ) -> Result<Arc<Self>, StoreError> {
        Self::start_gated(
            (store, orchestrator, Gate::open()),
            settings,
            timing,
            Vec::new(),
        )
        .await
    }

    async fn start_gated(
        parts: (Arc<dyn Store>, Arc<dyn Orchestrator>, Gate),
        settings: ServiceSettings,
        timing: Timing,
        left: Vec<LeftRun>,
    ) -> Result<Arc<Self>, StoreError> {
        let inner = Inner::new(parts, settings, timing).await?;
        for run in left {
            dispatch::take_over(&inner, run);
        }
        inner.tasks.spawn(dispatch::dispatch(Arc::clone(&inner)));
        Ok(Arc::new(Self { inner }))
    }

    /// Accepts a run. When this returns it is on disk; if the future is dropped before, the run is
    /// either accepted whole or not at all.
    ///
    /// # Errors
    ///
    /// [`SubmitError`] if the run was not accepted.
    pub async fn submit(
        &self,
        request: RunRequest,
        submitter: impl Into<Submitter>,
        key: Option<IdempotencyKey>,
    ) -> Result<Submitted, SubmitError> {
        let accepting = Arc::clone(&self.inner).accept(request, submitter.into(), key);
        owned(self.inner.tasks.spawn(accepting), "accept a run")
            .await
            .map_err(SubmitError::Store)?
    }

    /// The run that was accepted with this key and the same request, if there is one: what a
    /// client gets again whatever has changed since, as the data set or the room in the queue.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails.
    pub async fn repeated(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<RunId>, StoreError> {
        self.inner.store.repeated(tenant, key).await
    }

    /// The outline of a tenant's run: the texts of its programs are empty and its input files have
    /// names but no bytes. `None` if there is none of this tenant with this id.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails.
    pub async fn get(&self, tenant: &TenantId, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        self.inner.store.find(tenant, id).await
    }

    /// Outlines of a tenant's runs, newest first.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails.
    pub async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
    ) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.store.list(tenant, filter).await
    }

    /// The turns of a run, in order, and what it perceived before the first. Whoever has its record has found it as its tenant.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails.
    pub async fn episodes(&self, run: &RunRecord) -> Result<Vec<Episode>, StoreError> {
        self.inner.store.episodes(run.id).await
    }

    /// The artifacts of a run's last episode.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails.
    pub async fn artifacts(&self, run: &RunRecord) -> Result<Vec<Artifact>, StoreError> {
        let last = self.last_episode(run).await?;
        Ok(last.map_or_else(Vec::new, |episode| episode.execution.artifacts))
    }

    /// The last episode of a run; `None` if it has none.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails.
    pub async fn last_episode(&self, run: &RunRecord) -> Result<Option<Episode>, StoreError> {
        self.inner.store.last_episode(run.id).await
    }

    /// The receipt of an execution of a run, or of its last one, as it was signed; `None` if it has
    /// none yet or is unknown. Whoever has the run's record has found it as its tenant.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails.
    pub async fn receipt(
        &self,
        run: &RunRecord,
        execution: Option<&ExecutionId>,
    ) -> Result<Option<String>, StoreError> {
        self.inner.store.receipt(run.id, execution).await
    }

    /// What was decided about the episodes of these runs, in order of the episodes of each.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails.
    pub async fn judgements(&self, runs: &[&RunRecord]) -> Result<Vec<Judgement>, StoreError> {
        let ids: Vec<RunId> = runs.iter().map(|run| run.id).collect();
        self.inner.store.judgements(&ids).await
    }

    /// Asks for the end of a tenant's run. A waiting run has ended when this returns; one that is being
    /// carried out ends soon after. If that one ends of its own accord in the meantime, its true end
    /// stands.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails; the run goes on then.
    pub async fn cancel(&self, tenant: &TenantId, id: RunId) -> Result<CancelAnswer, StoreError> {
        if self.get(tenant, id).await?.is_none() {
            return Ok(CancelAnswer::Unknown);
        }
        let cancelling = Arc::clone(&self.inner).cancel(id);
        owned(self.inner.tasks.spawn(cancelling), "cancel a run").await?
    }

    /// The outline of a tenant's run once it has ended, or as it is when `limit` has passed; `None` if
    /// there is none of this tenant with this id.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails.
    pub async fn wait(
        &self,
        tenant: &TenantId,
        id: RunId,
        limit: Duration,
    ) -> Result<Option<RunRecord>, StoreError> {
        // Looked up before the store is asked: a run that ends in between closes this very log.
        let log = self.inner.hub.get(id);
        let record = self.get(tenant, id).await?;
        let ended = record.as_ref().is_none_or(|r| r.state.outcome().is_some());
        let Some(log) = log.filter(|_| !ended) else {
            return Ok(record);
        };
        let mut reader = log.subscribe(None);
        if tokio::time::timeout(limit, reader.closed()).await.is_err() {
            tracing::trace!(run.id = %id, "A client waited as long as it wanted to");
        }
        self.get(tenant, id).await
    }

    /// Follows what happens in a tenant's run, from the event after number `after` or from the first
    /// that is kept; `None` if there is none of this tenant with this id. Of a run whose events are
    /// gone only the status is left.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails.
    pub async fn subscribe(
        &self,
        tenant: &TenantId,
        id: RunId,
        after: Option<u64>,
    ) -> Result<Option<Subscription>, StoreError> {
        // Looked up before the store is asked, as for a wait.
        let log = self.inner.hub.get(id);
        let record = self.get(tenant, id).await?;
        Ok(record.map(|record| {
            let status = record.state.status();
            let log = log.unwrap_or_else(|| Arc::new(EventLog::of_ended(status, after)));
            log.subscribe(after)
        }))
    }

    /// How many runs will be started before this one; `None` if it does not wait.
    #[must_use]
    pub fn queue_position(&self, id: RunId) -> Option<usize> {
        self.inner.queue().position(id)
    }

    /// What there is to do at this moment.
    #[must_use]
    pub fn in_flight(&self) -> InFlight {
        InFlight {
            queued: self.inner.queue().len(),
            running: self.inner.active().len(),
        }
    }

    /// Whether runs are taken and started at the moment, and on which runtimes.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.inner.gate
    }

    /// Refuses if the gate is closed, as [`RunService::submit`] would.
    ///
    /// # Errors
    ///
    /// [`SubmitError::Closed`].
    pub fn check_gate(&self) -> Result<(), SubmitError> {
        self.inner.check_gate()
    }

    /// Whether there is room for the records of new runs.
    ///
    /// # Errors
    ///
    /// [`StoreError::LowSpace`] if there is not, another one if that cannot be found out.
    pub async fn room(&self) -> Result<(), StoreError> {
        self.inner.store.room().await
    }

    /// Whether runs are accepted.
    #[must_use]
    pub fn accepting(&self) -> bool {
        !self.inner.closing.is_cancelled()
    }

    /// Accepts and starts nothing more, and lets the runs going on end for as long as `limit`. Tells
    /// whether all have. Clients can ask and cancel meanwhile; waiting runs wait for the next start.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.inner.drain(limit).await
    }

    /// Leaves what still goes on to the next start, as it is, and closes the store. Bounded; doing it
    /// twice does no harm.
    pub async fn leave(&self) {
        self.inner.leave().await;
    }

    /// Stops: [`RunService::drain`], then [`RunService::leave`].
    pub async fn shutdown(&self, drain: Duration) {
        self.drain(drain).await;
        self.leave().await;
    }
}

impl Drop for RunService {
    /// The dispatcher holds the inside of the service and would wait for ever.
    fn drop(&mut self) {
        self.inner.closing.cancel();
    }
}

/// The answer of a task of our own. Tasks are never aborted, so that the only other way it can end
/// is a panic, which is the daemon's fault and no reason to take the caller down.
async fn owned<T>(
    task: tokio::task::JoinHandle<T>,
    operation: &'static str,
) -> Result<T, StoreError> {
    task.await.map_err(|error| {
        tracing::error!(%error, operation, "A task of the service died");
        let source = Arc::new(Fault::Died);
        StoreError::Failed { operation, source }
    })
}
