//! Removes containers that could not be removed when their execution ended: the engine was slow,
//! away or hanging, or the execution's future was dropped. Tries until it succeeds, since a
//! container left behind costs memory and a promise; what is left at the daemon's end is found by
//! label at the next start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, error, warn};

use super::client;
use super::container;
use crate::sandbox::slots::Slot;

/// Containers remembered at most; more are left to the sweep at the next start.
const MAX_PENDING: usize = 4096;

/// How long a container may still appear whose making was never answered: longer than the engine
/// takes for it on its worst day.
const MAY_APPEAR_FOR: Duration = Duration::from_secs(120);

/// Pause after a round in which something could not be removed.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// A handle on the one task that removes.
#[derive(Debug, Clone)]
pub struct Reaper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    host: String,
    pending: Mutex<Pending>,
    changed: Notify,
    /// Whether the task runs: it is started with the first container.
    running: Mutex<bool>,
    tasks: TaskTracker,
    /// Calls that are seen through to their answer.
    calls: TaskTracker,
    stop: CancellationToken,
}

type Pending = BTreeMap<String, Left>;

/// What is known of a container that is to be removed.
#[derive(Debug, Default)]
struct Left {
    /// With a time if it may not be there yet and is given up only then.
    may_appear_until: Option<Instant>,
    /// Free for another sandbox only when this one is gone.
    _slot: Option<Slot>,
}

impl Reaper {
    pub(super) fn new(host: String) -> Self {
        let shared = Shared {
            host,
            pending: Mutex::default(),
            changed: Notify::new(),
            running: Mutex::new(false),
            tasks: TaskTracker::new(),
            calls: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Does `work` to its end even if nobody waits for it any more. What it leaves is dropped then,
    /// so that a sandbox comes here.
    pub(super) fn see_through<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, wanted) = oneshot::channel();
        self.shared.calls.spawn(async move {
            // An answer that nobody waits for is dropped here, while the task still counts: what
            // its end hands to the reaper is there before anyone believes that nothing is left.
            drop(answer.send(work.await));
        });
        wanted
    }

    /// Takes over the removal of a container.
    pub(super) fn take(&self, name: &str, slot: Option<Slot>) {
        let left = Left {
            _slot: slot,
            ..Left::default()
        };
        self.remember(name, left);
    }

    /// Takes over the removal of a container that the engine may still be about to make.
    pub(super) fn take_if_it_appears(&self, name: &str) {
        let left = Left {
            may_appear_until: Some(Instant::now() + MAY_APPEAR_FOR),
            ..Left::default()
        };
        self.remember(name, left);
    }

    fn remember(&self, name: &str, left: Left) {
        let mut pending = self.shared.pending();
        if pending.len() >= MAX_PENDING {
            error!(
                sandbox = name,
                "too many containers wait for removal: left to the next start"
            );
            return;
        }
        pending.insert(name.to_owned(), left);
        drop(pending);
        self.shared.changed.notify_waiters();
        self.ensure_running();
    }

    fn ensure_running(&self) {
        let mut running = self
            .shared
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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
        self.shared.calls.close();
        let emptied = async {
            self.shared.calls.wait().await;
            loop {
                let changed = self.shared.changed.notified();
                if self.shared.pending().is_empty() {
                    return;
                }
                changed.await;
            }
        };
        if timeout(bound, emptied).await.is_err() {
            let left = self.shared.pending().len();
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

impl Shared {
    fn pending(&self) -> std::sync::MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn reap(shared: Arc<Shared>) {
    let stop = shared.stop.clone();
    let rounds = async {
        loop {
            let names: Vec<String> = shared.pending().keys().cloned().collect();
            if names.is_empty() {
                shared.changed.notified().await;
            } else if !remove_all(&shared, &names).await {
                sleep(RETRY_AFTER).await;
            }
        }
    };
    stop.run_until_cancelled(rounds).await;
}

/// One round; whether everything in it was removed.
async fn remove_all(shared: &Shared, names: &[String]) -> bool {
    let docker = match client::connect(&shared.host).await {
        Ok(docker) => docker,
        Err(error) => {
            debug!(%error, "containers cannot be removed yet");
            return false;
        }
    };
    let mut all = true;
    for name in names {
        match container::remove(&docker, name).await {
            Ok(found) => {
                let mut pending = shared.pending();
                let may_appear = pending.get(name).and_then(|left| left.may_appear_until);
                if found || may_appear.is_none_or(|until| until <= Instant::now()) {
                    pending.remove(name);
                    shared.changed.notify_waiters();
                } else {
                    all = false;
                }
            }
            Err(error) => {
                debug!(sandbox = name, %error, "a container cannot be removed yet");
                all = false;
            }
        }
    }
    all
}
