//! The task that makes sandboxes ahead of use, and the keepers that hold them while they wait.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::ledger::Step;
use super::shelf::{Order, RENEWED_AFTER, Waiting};
use super::{Shared, Wish};
use crate::ids::ExecutionId;
use crate::sandbox::preparation::{PreparationError, ReadySandbox, prepare};
use crate::sandbox::template::{DatasetMount, SandboxRequest, Template};
use crate::telemetry::log_chain;

/// How often what is old is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Keeps the pool as full as it should be, until it is stopped.
pub(super) async fn fill(shared: Arc<Shared>, usual: Wish) {
    let stop = shared.stop.clone();
    let filling = async {
        let mut look_at = Instant::now();
        while !shared.stop.is_cancelled() {
            // Before looking, or what changes meanwhile would be missed.
            let changed = shared.changed.notified();
            let now = Instant::now();
            if now >= look_at {
                look_at = now + LOOK_EVERY;
                shared.shelf().give_up_old(now);
                look_around(&shared, &usual).await;
            }
            let wake_at = match next_step(&shared) {
                Ok(()) => continue,
                Err(wake_at) => wake_at.map_or(look_at, |at| at.min(look_at)),
            };
            tokio::select! {
                () = changed => {}
                () = sleep_until(wake_at) => {}
            }
        }
    };
    stop.run_until_cancelled(filling).await;
}

/// Does the next step, if there is one and it is its turn; otherwise tells when to look again.
fn next_step(shared: &Arc<Shared>) -> Result<(), Option<Instant>> {
    let now = Instant::now();
    let mut shelf = shared.shelf();
    match shelf.ledger.next_step(now) {
        Step::Nothing(until) => Err(until),
        Step::GiveUp(template) => shelf.pop(&template).map(drop).ok_or(None),
        Step::Make(template) => {
            let making = shared.load.may_make(shared.settings.cpus, now)?;
            shelf.ledger.making(&template);
            drop(shelf);
            let place = Place {
                shared: Arc::clone(shared),
                template,
                is_taken: false,
            };
            let stop = shared.stop.clone();
            shared.tasks.spawn(async move {
                stop.run_until_cancelled(make(place)).await;
                drop(making);
            });
            Ok(())
        }
    }
}

/// Finds out what images are called by now, whether data sets can be mounted into waiting
/// sandboxes, and so what the usual template is. What nobody can ask for any more gives way.
async fn look_around(shared: &Shared, usual: &Wish) {
    let found = shared.images.refresh(&usual.image).await;
    let runtime = usual.runtime.as_deref();
    let places = shared.engine.places_datasets(runtime).await;
    let placed = shared.places_datasets.swap(places, Ordering::Relaxed);
    let mut shelf = shared.shelf();
    shelf.ledger.outdate(|template| {
        let image = found
            .iter()
            .find(|image| image.reference == template.image.reference);
        let is_renamed = image.is_some_and(|image| image.id != template.image.id);
        is_renamed || (placed && !places && template.dataset == DatasetMount::Place)
    });
    if let Some(image) = found.iter().find(|image| image.reference == usual.image) {
        let template = shared.template(usual, image.clone());
        shelf.ledger.set_usual(template, Instant::now());
    }
}

/// A place of the pool for which a sandbox is being made. Whatever ends that without one frees it.
struct Place {
    shared: Arc<Shared>,
    template: Template,
    /// The sandbox waits in it.
    is_taken: bool,
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_taken {
            let mut shelf = self.shared.shelf();
            shelf.ledger.failed(&self.template, Instant::now());
        }
        self.shared.changed.notify_one();
    }
}

/// Makes one sandbox and has it kept.
async fn make(mut place: Place) {
    let shared = Arc::clone(&place.shared);
    let template = place.template.clone();
    let slot = shared.slots.take();
    let request = SandboxRequest {
        execution: ExecutionId::random(),
        template: template.clone(),
        uid: slot.uid(),
        lifetime: RENEWED_AFTER + shared.settings.longest_program,
    };
    let made = async {
        let mut ready = prepare(shared.engine.as_ref(), &request, slot).await?;
        if template.interpreter {
            ready.preload(&shared.settings.preload).await?;
        }
        Ok::<_, PreparationError>(ready)
    };
    match made.await {
        Ok(ready) => {
            keep(&shared, ready);
            place.is_taken = true;
        }
        Err(error) => {
            if !shared.shelf().ledger.is_failing(&template) {
                log_chain("a sandbox could not be made ahead of use", &error);
            }
        }
    }
}

/// Lets a sandbox wait for its run.
fn keep(shared: &Arc<Shared>, ready: ReadySandbox) {
    let (order, ordered) = oneshot::channel();
    let template = ready.request.template.clone();
    let id = ready.request.execution.clone();
    let mut shelf = shared.shelf();
    if shared.stop.is_cancelled() {
        return;
    }
    let waiting = Waiting {
        id: id.clone(),
        since: Instant::now(),
        order,
    };
    if ready.memory_bytes > Some(shared.settings.memory_bytes) {
        warn!(
            sandbox.memory_bytes = ready.memory_bytes,
            "one waiting sandbox takes more than pool.memory_mb allows for all: raise it or shorten \
             pool.preload"
        );
    }
    shelf.put(&template, waiting, ready.memory_bytes);
    drop(shelf);
    info!(execution.id = %id, interpreter = ?ready.interpreter, "a sandbox waits for its run");
    let keeper = Arc::clone(shared);
    shared.tasks.spawn(async move {
        if hand_over_or_die(ready, ordered).await {
            return;
        }
        debug!(execution.id = %id, "a waiting sandbox died");
        keeper.shelf().lose(&template, &id);
        keeper.changed.notify_one();
    });
}

/// Whether the sandbox was taken or given up, and did not die.
async fn hand_over_or_die(mut ready: ReadySandbox, mut order: oneshot::Receiver<Order>) -> bool {
    let ordered = tokio::select! {
        biased;
        // Its supervisor has nothing to say by itself: whatever this is, it is the end.
        _ = ready.session.receive() => {
            // Before `order`: who is told that it is lost finds its removal under way.
            drop(ready);
            return false;
        }
        ordered = &mut order => ordered,
    };
    // Given up if nobody wants it: it is dropped, which removes it.
    if let Ok(give) = ordered {
        drop(give.send(ready));
    }
    true
}

#[cfg(test)]
mod tests;
