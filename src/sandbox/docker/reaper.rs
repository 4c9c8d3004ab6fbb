//! Removes containers behind the backs of those who used them: nobody waits for the removal of a
//! sandbox in which nothing runs any more, and one that failed, because the engine was slow, away
//! or hanging, is tried until it succeeds. A container left behind costs memory and a promise; what
//! is left at the daemon's end is found by label at the next start.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, error, info, warn};

use super::calls::{Calls, Manner};
use super::client::Client;
use super::container;
use crate::clock;
use crate::sandbox::engine::EngineError;
use crate::sandbox::health::Quarantine;
use crate::sandbox::slots::Slot;

/// Containers remembered at most; more are left to the sweep at the next start.
const MAX_PENDING: usize = 4096;

/// How long a container may still appear whose making was never answered: longer than the engine
/// takes for it on its worst day.
const MAY_APPEAR_FOR: Duration = Duration::from_secs(120);

/// Pause before a container that could not be removed is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// How long a removal that nobody waits for gives way to the result that somebody does wait for.
const RESULT_FIRST: Duration = Duration::from_millis(100);

/// Removals asked of the engine at the same time: more do not make it faster.
const AT_ONCE: usize = 4;

/// Removals that nobody waits for; with more, each waits for its own, so that an engine that
/// removes more slowly than it makes is not asked for ever more.
const MAX_DEBT: usize = 16;

/// A handle on the one task that removes.
#[derive(Debug, Clone)]
pub struct Reaper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    host: String,
    calls: Arc<Calls>,
    /// The engine's client, once somebody has connected.
    docker: Mutex<Option<Client>>,
    pending: Mutex<Pending>,
    changed: Notify,
    /// Whether the task runs: it is started with the first container.
    running: Mutex<bool>,
    debt: Arc<Semaphore>,
    tasks: TaskTracker,
    /// Calls that are seen through to their answer.
    seen_through: TaskTracker,
    stop: CancellationToken,
    /// Cancelled when what runs is for the next daemon.
    leaving: CancellationToken,
}

type Pending = BTreeMap<String, Left>;

/// What is known of a container that is to be removed.
#[derive(Debug)]
struct Left {
    /// With a time if it may not be there yet and is given up only then.
    may_appear_until: Option<Instant>,
    /// Not before.
    next_try: Instant,
    /// Whether the engine is being asked.
    is_tried: bool,
    /// Free for another sandbox only when this one is gone.
    slot: Option<Slot>,
    /// Held by one that nobody waits for.
    debt: Option<OwnedSemaphorePermit>,
    /// Since when the engine has not confirmed what it was asked for: its end, or its removal.
    unconfirmed: Option<Timestamp>,
}

impl Left {
    fn now() -> Self {
        Self {
            may_appear_until: None,
            next_try: Instant::now(),
            is_tried: false,
            slot: None,
            debt: None,
            unconfirmed: None,
        }
    }

    fn adopt(&mut self, other: Self) {
        self.slot = self.slot.take().or(other.slot);
        self.debt = self.debt.take().or(other.debt);
        self.unconfirmed = self.unconfirmed.or(other.unconfirmed);
    }
}

impl Reaper {
    pub(super) fn new(host: String, calls: Arc<Calls>) -> Self {
        let shared = Shared {
            host,
            calls,
            docker: Mutex::new(None),
            pending: Mutex::default(),
            changed: Notify::new(),
            running: Mutex::new(false),
            debt: Arc::new(Semaphore::new(MAX_DEBT)),
            tasks: TaskTracker::new(),
            seen_through: TaskTracker::new(),
            stop: CancellationToken::new(),
            leaving: CancellationToken::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Uses this client from now on.
    pub(super) fn use_client(&self, docker: &Client) {
        *lock(&self.shared.docker) = Some(docker.clone());
    }

    /// Does `work` to its end even if nobody waits for it any more. What it leaves is dropped then,
    /// so that a sandbox comes here.
    pub(super) fn see_through<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, wanted) = oneshot::channel();
        self.shared.seen_through.spawn(async move {
            // An answer that nobody waits for is dropped here, while the task still counts: what
            // its end hands to the reaper is there before anyone believes that nothing is left.
            drop(answer.send(work.await));
        });
        wanted
    }

    /// The right to leave one more removal to the reaper; `None` if there are enough.
    pub(super) fn debt(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.debt).try_acquire_owned().ok()
    }

    /// Whether that right would be given at the moment.
    pub(super) fn has_room(&self) -> bool {
        self.shared.debt.available_permits() > 0
    }

    /// Takes over the removal of a container.
    pub(super) fn take(&self, name: &str, slot: Option<Slot>, debt: Option<OwnedSemaphorePermit>) {
        let mut left = Left {
            slot,
            debt,
            ..Left::now()
        };
        if left.debt.is_some() {
            left.next_try += RESULT_FIRST;
        }
        self.remember(name, left);
    }

    /// Takes over a container in which something may still run, because its end was not confirmed.
    pub(super) fn set_aside(&self, name: &str, slot: Option<Slot>) {
        error!(
            sandbox = name,
            "the engine did not confirm the end of a sandbox: it is set aside, with its uid, until \
             it is seen to be gone"
        );
        let left = Left {
            slot,
            unconfirmed: Some(clock::now()),
            ..Left::now()
        };
        self.remember(name, left);
        self.shared.calls.tell();
    }

    /// What the engine has not confirmed.
    pub(super) fn quarantine(&self) -> Quarantine {
        let pending = lock(&self.shared.pending);
        let since = pending.values().filter_map(|left| left.unconfirmed);
        Quarantine {
            sandboxes: since.clone().count(),
            since: since.min(),
        }
    }

    /// Takes over the removal of a container that the engine may still be about to make.
    pub(super) fn take_if_it_appears(&self, name: &str) {
        let left = Left {
            may_appear_until: Some(Instant::now() + MAY_APPEAR_FOR),
            ..Left::now()
        };
        self.remember(name, left);
    }

    /// The same, if it is not there now.
    pub(super) fn take_if_it_appears_later(&self, name: &str) {
        let now = Instant::now();
        let left = Left {
            may_appear_until: Some(now + MAY_APPEAR_FOR),
            next_try: now + RETRY_AFTER,
            ..Left::now()
        };
        self.remember(name, left);
    }

    /// Waits until nothing by this name is left to remove, at most for `bound`: another container must not be
    /// made by a name that is about to be removed. The removal of one that nobody has seen is given
    /// back to whoever makes another one, unless the engine is just being asked for it; tells whether there was
    /// one. `None` if the time is over.
    pub(super) async fn take_back(&self, name: &str, bound: Duration) -> Option<bool> {
        let taking = async {
            loop {
                let changed = self.shared.changed.notified();
                if let Some(is_second) = self.try_take_back(name) {
                    return is_second;
                }
                changed.await;
            }
        };
        timeout(bound, taking).await.ok()
    }

    fn try_take_back(&self, name: &str) -> Option<bool> {
        let mut pending = lock(&self.shared.pending);
        let Some(left) = pending.get(name) else {
            return Some(false);
        };
        if left.may_appear_until.is_none() || left.is_tried {
            return None;
        }
        pending.remove(name);
        drop(pending);
        self.shared.changed.notify_waiters();
        Some(true)
    }

    /// From now on sandboxes in which programs run are not for the reaper: the next daemon finds them.
    pub(super) fn leave_behind(&self) {
        self.shared.leaving.cancel();
    }

    /// Whether that was said.
    pub(super) fn is_left_behind(&self) -> bool {
        self.shared.leaving.is_cancelled()
    }

    fn remember(&self, name: &str, left: Left) {
        let mut pending = lock(&self.shared.pending);
        if pending.len() >= MAX_PENDING {
            error!(
                sandbox = name,
                "too many containers wait for removal: left to the next start"
            );
            // As long as this daemon lives its uid is nobody else's.
            if let Some(slot) = left.slot {
                slot.never_free();
            }
            return;
        }
        match pending.entry(name.to_owned()) {
            Entry::Vacant(place) => {
                place.insert(left);
            }
            // What the first one holds is held until the container is gone.
            Entry::Occupied(mut known) => known.get_mut().adopt(left),
        }
        drop(pending);
        self.shared.changed.notify_waiters();
        self.ensure_running();
    }

    fn ensure_running(&self) {
        let mut running = lock(&self.shared.running);
        if *running {
            self.shared.changed.notify_one();
            return;
        }
        // Outside a runtime there is nobody to remove anything: left to the next start.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        *running = true;
        let shared = Arc::clone(&self.shared);
        self.shared.tasks.spawn_on(reap(shared), &runtime);
    }

    /// Waits until nothing is left to remove, at most for `bound`, then stops.
    pub(super) async fn finish(&self, bound: Duration) {
        self.shared.seen_through.close();
        let emptied = async {
            self.shared.seen_through.wait().await;
            loop {
                let changed = self.shared.changed.notified();
                if lock(&self.shared.pending).is_empty() {
                    return;
                }
                changed.await;
            }
        };
        if timeout(bound, emptied).await.is_err() {
            let left = lock(&self.shared.pending).len();
            warn!(
                left,
                "containers are left behind; the next start removes them"
            );
        }
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// The container whose turn it has been for the longest, marked as being tried: one that cannot be
    /// removed must not keep the others from being tried.
    fn next(&self) -> Option<String> {
        let mut pending = lock(&self.pending);
        let now = Instant::now();
        let (name, left) = pending
            .iter_mut()
            .filter(|(_, left)| !left.is_tried && left.next_try <= now)
            .min_by_key(|(_, left)| left.next_try)?;
        left.is_tried = true;
        Some(name.clone())
    }

    /// When the next turn comes, if no container is added before.
    fn next_turn(&self) -> Option<Instant> {
        let pending = lock(&self.pending);
        let waiting = pending.values().filter(|left| !left.is_tried);
        waiting.map(|left| left.next_try).min()
    }

    async fn client(&self) -> Result<Client, EngineError> {
        if let Some(docker) = &*lock(&self.docker) {
            return Ok(docker.clone());
        }
        let docker = Client::connect(&self.host, &self.calls, Manner::Polite).await?;
        Ok(lock(&self.docker).get_or_insert(docker).clone())
    }

    async fn remove(&self, name: String) {
        let removing = async { container::remove(&self.client().await?, &name).await };
        let removed = removing.await;
        let mut pending = lock(&self.pending);
        let Some(left) = pending.get_mut(&name) else {
            return;
        };
        let now = Instant::now();
        match removed {
            Ok(found) if found || left.may_appear_until.is_none_or(|until| until <= now) => {
                let gone = pending.remove(&name);
                drop(pending);
                // Its slot is free before anyone hears of it.
                if gone.is_some_and(|left| left.unconfirmed.is_some()) {
                    info!(sandbox = name, "a sandbox that was set aside is gone");
                    self.calls.tell();
                }
                self.changed.notify_waiters();
                return;
            }
            Ok(_) => {}
            Err(error) => {
                debug!(sandbox = name, %error, "a container cannot be removed yet");
                // Of one that may never have been made nothing is to be confirmed.
                if left.may_appear_until.is_none() && left.unconfirmed.is_none() {
                    left.unconfirmed = Some(clock::now());
                    self.calls.tell();
                }
            }
        }
        left.is_tried = false;
        left.next_try = now + RETRY_AFTER;
        drop(pending);
        // Somebody may wait to take it back.
        self.changed.notify_waiters();
    }
}

async fn reap(shared: Arc<Shared>) {
    let stop = shared.stop.clone();
    let removing = async {
        let mut tried = FuturesUnordered::new();
        loop {
            // Before looking, or one that is added meanwhile would wait for the next.
            let changed = shared.changed.notified();
            while tried.len() < AT_ONCE
                && let Some(name) = shared.next()
            {
                tried.push(shared.remove(name));
            }
            let turn = shared.next_turn();
            tokio::select! {
                Some(()) = tried.next() => {}
                () = changed => {}
                () = until(turn), if tried.len() < AT_ONCE => {}
            }
        }
    };
    stop.run_until_cancelled(removing).await;
}

/// Until then; for ever without a time.
async fn until(turn: Option<Instant>) {
    match turn {
        Some(turn) => sleep_until(turn).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
