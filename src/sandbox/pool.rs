//! Warm sandboxes: made ahead of use, each taken once and never given back.
//!
//! Owns the waiting sandboxes (`shelf`) and the task that makes them (`filling`). What is to be
//! made is decided by `ledger`, whose turn it is by `load`, and what a ready sandbox is by
//! [`preparation`](super::preparation). A run that finds none waiting makes its own: the pool is
//! never waited for.

mod filling;
mod images;
mod ledger;
mod load;
mod share;
mod shelf;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::images::Images;
use self::ledger::{Ledger, Size};
use self::load::Load;
pub use self::load::{Preparing, Running};
use self::shelf::Shelf;
use super::engine::Engine;
use super::preparation::ReadySandbox;
use super::slots::Slots;
use super::template::{DatasetMount, Image, Template};
use crate::execution::DatasetPin;
use crate::execution::spec::SandboxLimits;
use crate::ids::ExecutionId;

/// What a pool is like.
#[derive(Debug, Clone)]
pub struct PoolSettings {
    /// Sandboxes kept waiting.
    pub size: usize,
    /// Memory that they may take together, in bytes.
    pub memory_bytes: u64,
    /// Modules that each waiting interpreter imports.
    pub preload: Vec<String>,
    /// Time limit of the longest program, added to the waiting time for the deadline that a
    /// container is labelled with.
    pub longest_program: Duration,
    /// CPUs of the engine's host.
    pub cpus: usize,
}

/// What a sandbox has to be like, before the engine was asked about the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// As configured.
    pub image: String,
    /// The engine's runtime; `None` is the engine's default.
    pub runtime: Option<String>,
    /// The data set that the program is to see.
    pub dataset: Option<DatasetPin>,
    /// What the program may use.
    pub limits: SandboxLimits,
    /// Whether an interpreter is to wait in it.
    pub interpreter: bool,
}

/// What became of a sandbox that was kept for an execution.
#[derive(Debug)]
pub enum Claim {
    /// Here it is.
    Ready(Box<ReadySandbox>),
    /// It has died meanwhile.
    Lost,
    /// None was kept.
    None,
}

/// A pool. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    engine: Arc<dyn Engine>,
    slots: Slots,
    settings: PoolSettings,
    images: Images,
    /// Whether data sets can be mounted into sandboxes that wait; known with the usual template.
    places_datasets: AtomicBool,
    load: Arc<Load>,
    shelf: Mutex<Shelf>,
    changed: Arc<Notify>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Pool {
    /// Starts a pool that keeps sandboxes of the usual template until it learns what is used.
    #[must_use]
    pub fn start(
        engine: Arc<dyn Engine>,
        slots: Slots,
        settings: PoolSettings,
        usual: Wish,
    ) -> Self {
        let size = Size {
            sandboxes: settings.size,
            memory_bytes: settings.memory_bytes,
        };
        let changed = Arc::new(Notify::new());
        let shared = Arc::new(Shared {
            images: Images::new(Arc::clone(&engine)),
            places_datasets: AtomicBool::new(false),
            load: Arc::new(Load::new(Arc::clone(&changed))),
            engine,
            slots,
            settings,
            shelf: Mutex::new(Shelf::new(Ledger::new(size))),
            changed,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        shared
            .tasks
            .spawn(filling::fill(Arc::clone(&shared), usual));
        Self { shared }
    }

    /// Keeps a waiting sandbox for an execution, which has to have the id that this gives. Counts
    /// as a use in any case. Never waits: an image that was not looked up lately is one that
    /// nothing waits for.
    #[must_use]
    pub fn reserve(&self, wish: &Wish) -> Option<ExecutionId> {
        let shared = &self.shared;
        let Some(image) = shared.images.known(&wish.image) else {
            shared.images.want(&wish.image);
            shared.changed.notify_one();
            return None;
        };
        let template = shared.template(wish, image);
        let now = Instant::now();
        let mut shelf = shared.shelf();
        shelf.ledger.used(&template, now);
        let id = shelf.reserve(&template, now);
        if id.is_some() {
            shared.load.run_begins(now);
        }
        drop(shelf);
        shared.changed.notify_one();
        id
    }

    /// How many sandboxes it keeps at most.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shared.settings.size
    }

    /// Sandboxes like these will be reserved next, as things are; replaces what was expected before.
    /// They are made before anything else, when it is the pool's turn.
    pub fn expect(&self, wishes: &[Wish]) {
        let shared = &self.shared;
        let known = wishes.iter().filter_map(|wish| {
            let image = shared.images.known(&wish.image);
            if image.is_none() {
                shared.images.want(&wish.image);
            }
            Some(shared.template(wish, image?))
        });
        let templates: Vec<Template> = known.collect();
        shared.shelf().ledger.expect(&templates, Instant::now());
        shared.changed.notify_one();
    }

    /// Takes the sandbox that was kept for this execution.
    pub async fn claim(&self, id: &ExecutionId) -> Claim {
        let Some(kept) = self.shared.shelf().claim(id) else {
            return Claim::None;
        };
        let (give, given) = oneshot::channel();
        // A keeper whose sandbox has just died does not answer.
        match kept.order.send(give) {
            Ok(()) => given
                .await
                .map_or(Claim::Lost, |ready| Claim::Ready(Box::new(ready))),
            Err(_) => Claim::Lost,
        }
    }

    /// Gives up the sandbox that was kept for this execution, if one was.
    pub fn release(&self, id: &ExecutionId) {
        drop(self.shared.shelf().claim(id));
    }

    /// To be held while a run makes a sandbox of its own.
    #[must_use]
    pub fn preparing(&self) -> Preparing {
        self.shared.load.preparing()
    }

    /// To be held while an execution goes on.
    #[must_use]
    pub fn running(&self) -> Running {
        self.shared.load.running()
    }

    /// How many sandboxes wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.shelf().len()
    }

    /// Gives up every waiting sandbox and makes no more.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.shared.shelf().give_up_all();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl Shared {
    /// What a sandbox as wished for is made from.
    fn template(&self, wish: &Wish, image: Image) -> Template {
        let places = self.places_datasets.load(Ordering::Relaxed);
        Template {
            image,
            runtime: wish.runtime.clone(),
            dataset: match &wish.dataset {
                _ if places => DatasetMount::Place,
                Some(pin) => DatasetMount::Created(pin.clone()),
                None => DatasetMount::None,
            },
            limits: wish.limits,
            interpreter: wish.interpreter,
        }
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
