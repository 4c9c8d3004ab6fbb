//! The inside of the service, shared by its tasks: accepting, cancelling, shutting down.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use jiff::{Timestamp, Unit};
use tokio::sync::{Notify, RwLock, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::places::Places;
use super::{CancelAnswer, Orchestrator, STOP_GRACE, ServiceSettings, SubmitError, Submitted};
use crate::clock;
use crate::fault_point::FaultPoint;
use crate::ids::{RunId, TenantId};
use crate::runs::events::{EventHub, RunEvent};
use crate::runs::gate::Gate;
use crate::runs::queue::{FairQueue, Waiting};
use crate::runs::request::RunRequest;
use crate::runs::service::Observer as _;
use crate::runs::state::{Event, RunState};
use crate::runs::store::{Alongside, IdempotencyKey, Inserted, NewRun, Store, StoreError};
use crate::runs::tenants::{Submitter, reserved_cpu_microseconds};

/// Delays that nobody needs to configure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timing {
    /// See [`STOP_GRACE`].
    pub(super) grace: Duration,
    /// Pauses between attempts to record an end; the last one again and again.
    pub(super) finish_pauses: [Duration; 4],
    /// The pause before a run whose start could not be recorded is tried again.
    pub(super) start_pause: Duration,
    /// How long tasks other than runs may take to end at shutdown.
    pub(super) task_limit: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            grace: STOP_GRACE,
            finish_pauses: [100, 500, 2000, 5000].map(Duration::from_millis),
            start_pause: Duration::from_secs(2),
            task_limit: Duration::from_secs(10),
        }
    }
}

/// Why a run was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    Client,
    Timeout,
}

/// A run that is being carried out.
#[derive(Debug, Clone, Default)]
pub(super) struct Active {
    pub(super) cancel: CancellationToken,
    why: Arc<OnceLock<Stop>>,
}

impl Active {
    /// Tells the run to end. The first reason is the one that counts.
    pub(super) fn stop(&self, why: Stop) {
        self.why.get_or_init(|| why);
        self.cancel.cancel();
    }

    pub(super) fn why(&self) -> Option<Stop> {
        self.why.get().copied()
    }
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) store: Arc<dyn Store>,
    pub(super) orchestrator: Arc<dyn Orchestrator>,
    /// Closed while the host is not known to be fit for runs.
    pub(super) gate: Gate,
    pub(super) settings: ServiceSettings,
    pub(super) timing: Timing,
    pub(super) hub: EventHub,
    /// Cancelled when nothing more is accepted or started.
    pub(super) closing: CancellationToken,
    /// Cancelled when what still goes on is left to the next start.
    pub(super) leaving: CancellationToken,
    pub(super) places: Places,
    /// Told when a run was put into the queue; the dispatcher listens.
    pub(super) arrived: Notify,
    /// The dispatcher and the tasks that accept and cancel.
    pub(super) tasks: TaskTracker,
    /// The tasks that carry runs out.
    pub(super) runs: TaskTracker,
    queue: Mutex<FairQueue>,
    active: Mutex<HashMap<RunId, Active>>,
    /// Held while the store and the queue are changed together. Acceptances share it, so that one
    /// flush serves many. A cancellation has it for itself, so that it meets no run that is in the
    /// store but not yet in the queue, and no acceptance takes a place that is free in the store
    /// but not yet in the queue.
    accepting: RwLock<()>,
}

impl Inner {
    pub(super) async fn new(
        (store, orchestrator, gate): (Arc<dyn Store>, Arc<dyn Orchestrator>, Gate),
        settings: ServiceSettings,
        timing: Timing,
    ) -> Result<Arc<Self>, StoreError> {
        let waiting = store.queued().await?;
        let hub = EventHub::default();
        let places = settings.max_unfinished();
        let capacity = usize::try_from(places).unwrap_or(usize::MAX);
        let permits = settings.permits();
        let capacity = capacity.max(waiting.len());
        let mut queue = FairQueue::new(capacity, settings.shares.clone());
        for run in &waiting {
            let place = Waiting {
                tenant: run.tenant.clone(),
                client: run.client.clone(),
                sequence: run.sequence,
                id: run.id,
            };
            if queue.push(place).is_ok() {
                hub.open(run.id).observe(RunEvent::Status("QUEUED"));
            }
        }
        if !queue.is_empty() {
            tracing::info!(runs = queue.len(), "Runs that were waiting wait on");
        }
        Ok(Arc::new(Self {
            store,
            orchestrator,
            gate,
            settings,
            timing,
            hub,
            closing: CancellationToken::new(),
            leaving: CancellationToken::new(),
            places: Places::new(permits),
            arrived: Notify::new(),
            tasks: TaskTracker::new(),
            runs: TaskTracker::new(),
            queue: Mutex::new(queue),
            active: Mutex::default(),
            accepting: RwLock::default(),
        }))
    }

    pub(super) async fn accept(
        self: Arc<Self>,
        request: RunRequest,
        submitter: Submitter,
        idempotency: Option<IdempotencyKey>,
    ) -> Result<Submitted, SubmitError> {
        let _accepting = self.accepting.read().await;
        self.check_gate()?;
        let Submitter {
            tenant,
            client,
            quotas,
        } = submitter;
        let id = RunId::random();
        let reserved = reserved_cpu_microseconds(&request, self.settings.run_timeout);
        let run = NewRun {
            id,
            tenant: tenant.clone(),
            quotas,
            client: client.clone(),
            request,
            accepted_at: now(),
            reserved_cpu_microseconds: reserved,
            idempotency,
        };
        FaultPoint::BeforeAccept.reached();
        let places = self.settings.max_unfinished();
        let sequence = match self.store.insert(&run, places).await? {
            Inserted::New { sequence } => sequence,
            Inserted::Repeated(id) => return Ok(Submitted { id, repeated: true }),
            Inserted::KeyReused => return Err(SubmitError::KeyReused),
            Inserted::OverQuota(quota) => {
                // Not louder: whoever is over a quota can ask as often as it likes.
                tracing::debug!(%tenant, %quota, "A run was refused: a quota is used up");
                return Err(SubmitError::OverQuota(quota));
            }
            Inserted::QueueFull => {
                let waiting = u32::try_from(self.queue().len()).unwrap_or(u32::MAX);
                tracing::warn!(waiting, "A run was refused: the queue is full");
                return Err(SubmitError::QueueFull { waiting });
            }
        };
        FaultPoint::AfterAccept.reached();
        self.hub.open(id).observe(RunEvent::Status("QUEUED"));
        let place = Waiting {
            tenant,
            client,
            sequence,
            id,
        };
        if self.queue().push(place).is_err() {
            // The store has room for no more than the queue has, so this is a mistake of ours.
            tracing::error!(run.id = %id, "An accepted run has no place and waits for a restart");
        }
        self.arrived.notify_one();
        tracing::info!(run.id = %id, "A run was accepted");
        Ok(Submitted {
            id,
            repeated: false,
        })
    }

    /// Refuses while the gate is closed, and once the daemon goes down.
    pub(super) fn check_gate(&self) -> Result<(), SubmitError> {
        if self.closing.is_cancelled() {
            return Err(SubmitError::ShuttingDown);
        }
        let reasons = self.gate.reasons();
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(SubmitError::Closed { reasons })
        }
    }

    pub(super) async fn cancel(self: Arc<Self>, id: RunId) -> Result<CancelAnswer, StoreError> {
        let _accepting = self.accepting.write().await;
        let event = Event::CancelRequested { at: now() };
        let record = match self.store.apply(id, event, &Alongside::Nothing).await? {
            None => return Ok(CancelAnswer::Unknown),
            Some(Err(_already_ended)) => return Ok(CancelAnswer::AlreadyEnded),
            Some(Ok(record)) => record,
        };
        tracing::info!(run.id = %id, status = record.state.status(), "A run is to be cancelled");
        match record.state {
            RunState::Ended { .. } => {
                self.queue().remove(id);
                self.announce_end(id, record.state.status());
            }
            RunState::Queued | RunState::Running { .. } => {
                if let Some(active) = self.active().get(&id) {
                    active.stop(Stop::Client);
                }
            }
        }
        Ok(CancelAnswer::Accepted)
    }

    pub(super) async fn drain(&self, limit: Duration) -> bool {
        self.closing.cancel();
        self.tasks.close();
        if !within(self.timing.task_limit, &self.tasks).await {
            tracing::error!("Tasks of the service did not end in time");
        }
        self.runs.close();
        let running = self.runs.len();
        tracing::info!(running, waiting = self.queue().len(), "The service stops");
        within(limit, &self.runs).await
    }

    pub(super) async fn leave(&self) {
        if !self.runs.is_empty() {
            let running = self.runs.len();
            tracing::warn!(running, "Runs that still go on are left to the next start");
        }
        // In this order: what is dropped now stays as it is.
        self.orchestrator.leave_behind().await;
        self.leaving.cancel();
        // Nobody talks to a sandbox any more when the next daemon may begin to.
        let recording: Duration = self.timing.finish_pauses.iter().sum();
        if !within(self.timing.task_limit + 2 * recording, &self.runs).await {
            let running = self.runs.len();
            tracing::error!(running, "Runs could not be left in time");
        }
        self.store.close().await;
    }

    /// Tells everybody that a run has ended, after that is on disk.
    pub(super) fn announce_end(&self, id: RunId, status: &'static str) {
        self.hub.open(id).observe(RunEvent::Status(status));
        self.hub.end(id);
    }

    /// A run of a tenant that was taken from the queue is not being carried out any more: another one
    /// of that tenant may be the next.
    pub(super) fn finished(&self, tenant: &TenantId) {
        self.queue().finished(tenant);
        self.arrived.notify_one();
    }

    /// Both are whole even if a thread panicked while it had them: nothing in between panics.
    pub(super) fn queue(&self) -> MutexGuard<'_, FairQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn active(&self) -> MutexGuard<'_, HashMap<RunId, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServiceSettings {
    pub(super) fn permits(&self) -> usize {
        self.max_concurrent_runs.clamp(1, Semaphore::MAX_PERMITS)
    }

    /// Runs waiting or going on at most. Counted together, because a run that was just accepted
    /// waits for a moment even if nothing stands in its way.
    fn max_unfinished(&self) -> u32 {
        let running = u32::try_from(self.permits()).unwrap_or(u32::MAX);
        self.max_queued_runs.saturating_add(running)
    }
}

/// The time, as exact as the store keeps it.
pub(super) fn now() -> Timestamp {
    let now = clock::now();
    now.round(Unit::Microsecond).unwrap_or(now)
}

async fn within(limit: Duration, tasks: &TaskTracker) -> bool {
    tokio::time::timeout(limit, tasks.wait()).await.is_ok()
}
