//! How an execution gets its sandbox: a waiting one from the pool, or one of its own.
//!
//! A waiting sandbox has the id of the one execution that it is for, so an execution that is to use
//! it has to have this id. That is why a sandbox is kept for an execution before that is written
//! down, and used only after.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{debug, info};

use super::trouble::Trouble;
use crate::execution::result::{DatasetMounted, SandboxStart, SandboxUse};
use crate::execution::spec::{DatasetPin, ExecutionSpec};
use crate::ids::ExecutionId;
use crate::receipt::evidence::DatasetListing;
use crate::runs::dataset_contents::{self, Scan};
use crate::runs::{dataset_listing, dataset_path};
use crate::sandbox::Engine;
use crate::sandbox::pool::{Claim, Pool, Running, Wish};
use crate::sandbox::preparation::{Interpreter, PreparationError, ReadySandbox, prepare};
use crate::sandbox::slots::Slots;
use crate::sandbox::template::{DatasetMount, Image, SandboxRequest, Template};
use crate::telemetry::log_chain;

/// Where sandboxes come from. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sandboxes {
    engine: Arc<dyn Engine>,
    slots: Slots,
    pool: Option<Pool>,
    /// How long an execution waits for an engine that is away; not at all without.
    patience: Option<Duration>,
}

/// The first pause before a sandbox is tried again; each further one is twice as long.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The longest one. An engine that is away is waited for besides; this is for one that seems well
/// and fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A sandbox for one program, with its data set.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) ready: ReadySandbox,
    pub(super) sandbox_use: SandboxUse,
    /// What was in the data set when it was checked.
    pub(super) dataset: Option<DatasetListing>,
    /// What deserves a warning already.
    pub(super) notes: Vec<String>,
}

impl Sandboxes {
    /// Sandboxes on `engine`, from the pool if there is one.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, slots: Slots, pool: Option<Pool>) -> Self {
        Self {
            engine,
            slots,
            pool,
            patience: None,
        }
    }

    /// The same, but an execution whose program has not been started waits so long for an engine
    /// that is away.
    #[must_use]
    pub fn patient(self, patience: Duration) -> Self {
        Self {
            patience: Some(patience),
            ..self
        }
    }

    /// Keeps a waiting sandbox for an execution like this one, if there is one, and gives the id
    /// that the execution has to have: the sandbox's, or its own. Never waits.
    pub(super) fn reserve(&self, spec: ExecutionSpec) -> ExecutionId {
        let reserved = self
            .pool
            .as_ref()
            .and_then(|pool| pool.reserve(&wish(&spec)));
        reserved.unwrap_or(spec.id)
    }

    /// How many executions can be expected usefully.
    pub(super) fn looks_ahead(&self) -> usize {
        self.pool.as_ref().map_or(0, Pool::size)
    }

    /// Executions like these are next, instead of those that were expected before.
    pub(super) fn expect(&self, specs: &[ExecutionSpec]) {
        if let Some(pool) = &self.pool {
            let wishes: Vec<_> = specs.iter().map(wish).collect();
            pool.expect(&wishes);
        }
    }

    /// Gives up what was kept for this execution.
    pub(super) fn release(&self, id: &ExecutionId) {
        if let Some(pool) = &self.pool {
            pool.release(id);
        }
    }

    /// The sandbox that was kept for the execution, or a new one.
    pub(super) async fn prepare(&self, spec: &ExecutionSpec) -> Result<Prepared, Trouble> {
        let Some(pool) = &self.pool else {
            return self.make(spec).await;
        };
        match pool.claim(&spec.id).await {
            Claim::Ready(ready) => match self.give_dataset(*ready, spec).await {
                Ok(prepared) => return Ok(prepared),
                // The data set itself is what is wrong: another sandbox would not help.
                Err(trouble @ (Trouble::Dataset(_) | Trouble::DatasetContents(_))) => {
                    return Err(trouble);
                }
                Err(Trouble::Preparation(PreparationError::Refused(refusal))) => {
                    return Err(PreparationError::Refused(refusal).into());
                }
                Err(trouble) => log_chain(
                    "a waiting sandbox could not be used; another is made",
                    &trouble,
                ),
            },
            Claim::Lost => debug!(execution.id = %spec.id, "the sandbox that was kept has died"),
            Claim::None => return self.make(spec).await,
        }
        // Its container has this execution's name; the engine gives it to another one only when the
        // first is gone.
        self.make(spec).await
    }

    async fn give_dataset(
        &self,
        mut ready: ReadySandbox,
        spec: &ExecutionSpec,
    ) -> Result<Prepared, Trouble> {
        let mut notes = Vec::new();
        let mut dataset_mount = None;
        let mut dataset = None;
        if let Some(pin) = &spec.dataset {
            let checked = check_dataset(pin).await?;
            notes.extend(checked.notes);
            dataset = Some(checked.listing);
            dataset_mount = Some(if ready.request.template.dataset == DatasetMount::Place {
                ready.place_dataset(checked.directory, pin).await?;
                DatasetMounted::Placed
            } else {
                DatasetMounted::Created
            });
        }
        debug!(execution.id = %spec.id, "a waiting sandbox is taken");
        let start = match ready.interpreter {
            Interpreter::None | Interpreter::Waiting => SandboxStart::Warm,
            Interpreter::Preloaded => SandboxStart::Preloaded,
        };
        Ok(Prepared {
            ready,
            sandbox_use: SandboxUse {
                start,
                dataset_mount,
            },
            dataset,
            notes,
        })
    }

    /// A sandbox of the execution's own. Nothing of the program has run before there is one, so an
    /// engine that is away is waited for: the run is not to blame, and was accepted.
    pub(super) async fn make(&self, spec: &ExecutionSpec) -> Result<Prepared, Trouble> {
        let end = self.patience.map(|patience| Instant::now() + patience);
        let mut was_silent = false;
        let mut pause = TRY_AGAIN_AFTER;
        loop {
            let trouble = match self.try_to_make(spec).await {
                Err(trouble) => trouble,
                made => return made,
            };
            // A stream that broke may be the first that is heard of an engine that goes away.
            let is_first_silence = trouble.is_silence() && !was_silent;
            was_silent |= is_first_silence;
            let Some(end) = end.filter(|_| is_first_silence || trouble.is_absence_of_the_engine())
            else {
                return Err(trouble);
            };
            info!(
                execution.id = %spec.id, reason = %trouble,
                "an execution waits for the container engine"
            );
            let usable = async {
                sleep(pause).await;
                self.engine.usable().await;
            };
            if timeout_at(end, usable).await.is_err() {
                return Err(trouble);
            }
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    async fn try_to_make(&self, spec: &ExecutionSpec) -> Result<Prepared, Trouble> {
        let (image, checked) = tokio::try_join!(self.image(&spec.image), check(&spec.dataset))?;
        let mount = match &spec.dataset {
            Some(pin) => DatasetMount::Created(pin.clone()),
            None => DatasetMount::None,
        };
        // Not before: the data set may be on a disk that does not answer.
        let _turn = self.pool.as_ref().map(Pool::preparing);
        let slot = self.slots.take();
        let request = SandboxRequest {
            execution: spec.id.clone(),
            template: Template {
                image,
                runtime: spec.runtime.clone(),
                dataset: mount,
                limits: spec.limits.of_sandbox(),
                interpreter: false,
            },
            uid: slot.uid(),
            lifetime: Duration::try_from_secs_f64(spec.limits.timeout_seconds).unwrap_or_default(),
        };
        let ready = prepare(self.engine.as_ref(), &request, slot).await?;
        let (dataset, notes) = checked.unzip();
        Ok(Prepared {
            ready,
            sandbox_use: SandboxUse {
                start: SandboxStart::Cold,
                dataset_mount: spec.dataset.as_ref().map(|_| DatasetMounted::Created),
            },
            dataset,
            notes: notes.unwrap_or_default(),
        })
    }

    /// The engine.
    pub(super) fn engine(&self) -> &dyn Engine {
        self.engine.as_ref()
    }

    /// From now on sandboxes that are dropped stay as they are.
    pub(super) fn leave_behind(&self) {
        self.engine.leave_behind();
    }

    async fn image(&self, reference: &str) -> Result<Image, Trouble> {
        Ok(self.engine.image(reference).await?)
    }

    /// To be held while an execution goes on: the pool yields to it.
    pub(super) fn running(&self) -> Option<Running> {
        self.pool.as_ref().map(Pool::running)
    }
}

fn wish(spec: &ExecutionSpec) -> Wish {
    Wish {
        image: spec.image.clone(),
        runtime: spec.runtime.clone(),
        dataset: spec.dataset.clone(),
        limits: spec.limits.of_sandbox(),
        interpreter: wants_interpreter(spec),
    }
}

/// Whether an interpreter that has started already is as good as a new one. One that finds files of
/// the request in its home directory would have looked at them when it started.
fn wants_interpreter(spec: &ExecutionSpec) -> bool {
    spec.preload
        && !spec
            .input_files
            .keys()
            .any(|path| path.starts_with(".home/"))
}

struct CheckedDataset {
    directory: OwnedFd,
    listing: DatasetListing,
    notes: Vec<String>,
}

/// The same where the directory itself is not needed, if there is a data set at all.
async fn check(pin: &Option<DatasetPin>) -> Result<Option<(DatasetListing, Vec<String>)>, Trouble> {
    let Some(pin) = pin else {
        return Ok(None);
    };
    let checked = check_dataset(pin).await?;
    Ok(Some((checked.listing, checked.notes)))
}

/// Whether the data set is still the one that was admitted, and safe to share; notes on what could
/// not be found out.
async fn check_dataset(pin: &DatasetPin) -> Result<CheckedDataset, Trouble> {
    let pin = pin.clone();
    spawn_blocking(move || {
        let directory = dataset_path::reopen(&pin).map_err(Trouble::Dataset)?;
        let scan = dataset_contents::scan(&directory)?;
        let unseen = (scan == Scan::Incomplete).then(|| {
            format!(
                "The data set has more than {} entries: sockets and devices beyond were not looked for.",
                dataset_contents::MAX_ENTRIES
            )
        });
        Ok(CheckedDataset {
            listing: dataset_listing::list(&directory),
            directory,
            notes: unseen.into_iter().collect(),
        })
    })
    .await?
}
