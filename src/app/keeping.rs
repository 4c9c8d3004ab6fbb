//! What is kept and for how long, as a configuration has it: the store's settings, and retention with
//! the parts that it removes from. The daemon and `fumehood gc` have it in common.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::Workshop;
use crate::artifacts::OutputRoot;
use crate::config::Config;
use crate::ids::ExecutionId;
use crate::runs::retention::{Done, Remover, Retention, Rules, Tell};
use crate::runs::store::StoreError;
use crate::runs::store::retained::{Retained, Thing};
use crate::runs::store::sqlite::{SpaceSettings, StoreSettings};
use crate::sandbox::EngineError;
use crate::sandbox::docker::DockerEngine;
use crate::sandbox::docker::earlier::{Earlier, Found, Kept};
use crate::telemetry::Chain;

/// How the configuration has the store opened.
pub(crate) fn store_settings(config: &Config) -> StoreSettings {
    StoreSettings {
        space: SpaceSettings {
            floor: config.store.min_free_mb << 20,
            reserve: config.store.reserve_mb << 20,
        },
        check_limit: Duration::from_secs(config.store.check_seconds),
    }
}

/// Everything that goes after a time.
#[derive(Debug)]
pub(crate) struct Keeping {
    retention: Retention,
    store: Arc<dyn Retained>,
    engine: Arc<DockerEngine>,
    earlier: Kept,
    every: Duration,
}

/// What became of what the engine had of other versions.
#[derive(Debug, Default)]
pub(crate) struct EarlierDone {
    /// It is gone.
    pub(crate) gone: Vec<Earlier>,
    /// The engine does not remove it, as long as a container uses it.
    pub(crate) stays: Vec<Earlier>,
    /// Why the rest was not looked for or tried: the engine did not answer.
    pub(crate) unanswered: Option<EngineError>,
}

impl Keeping {
    pub(crate) fn new(config: &Config, workshop: &Workshop, store: Arc<dyn Retained>) -> Self {
        let remover = Arc::new(Published(workshop.outputs.clone()));
        Self {
            retention: Retention::new(Arc::clone(&store), remover, Rules::of(config)),
            store,
            engine: Arc::clone(&workshop.engine),
            earlier: earlier(config),
            every: Duration::from_secs(config.retention.every_seconds),
        }
    }

    /// For a command that has the store to itself.
    pub(crate) fn without_pauses(self) -> Self {
        Self {
            retention: self.retention.without_pauses(),
            ..self
        }
    }

    /// Runs and their artifacts, once.
    pub(crate) async fn pass(
        &self,
        stop: &CancellationToken,
        tell: Tell<'_>,
    ) -> Result<Done, StoreError> {
        self.retention.pass(stop, tell).await
    }

    /// Removes what the engine has had of other versions for longer than it is kept.
    pub(crate) async fn remove_earlier(&self) -> Result<EarlierDone, StoreError> {
        let mut done = EarlierDone::default();
        if !self.earlier.is_set() {
            return Ok(done);
        }
        let found = match self.engine.earlier(&self.earlier).await {
            Ok(found) => found,
            Err(error) => {
                done.unanswered = Some(error);
                return Ok(done);
            }
        };
        let ages = self.store.sight(things(&found)).await?;
        for (Found { earlier, .. }, seen) in found.into_iter().zip(ages) {
            if !self.earlier.is_over(&earlier, seen) {
                continue;
            }
            match self.engine.remove_earlier(&earlier).await {
                Ok(()) => done.gone.push(earlier),
                // Not once for each: what removes sandboxes has the same circuit.
                Err(error) if error.is_absence() => {
                    done.unanswered = Some(error);
                    break;
                }
                // In use, most likely: the engine knows that better than anybody.
                Err(error) => {
                    debug!(kind = earlier.kind(), name = earlier.name(), error = %Chain(&error), "kept by the engine");
                    done.stays.push(earlier);
                }
            }
        }
        Ok(done)
    }

    /// A pass of each kind every while, until `stop` is cancelled.
    pub(crate) async fn follow(self, stop: CancellationToken) {
        let engine = async {
            loop {
                match self.remove_earlier().await {
                    Ok(done) => {
                        for earlier in done.gone {
                            let (kind, name) = (earlier.kind(), earlier.name());
                            info!(kind, name, "removed what was of another version");
                        }
                        if let Some(error) = done.unanswered {
                            warn!(error = %Chain(&error), "the engine does not tell or remove what is of other versions");
                        }
                    }
                    Err(error) => {
                        warn!(error = %Chain(&error), "what is of other versions cannot be kept account of");
                    }
                }
                sleep(self.every).await;
            }
        };
        tokio::select! {
            () = self.retention.follow(self.every, stop.clone()) => {}
            () = engine => {}
        }
    }
}

/// As the store has them.
pub(crate) fn things(found: &[Found]) -> Vec<Thing> {
    let things = found.iter().map(|Found { earlier, mark }| Thing {
        kind: earlier.kind().to_owned(),
        name: earlier.name().to_owned(),
        mark: mark.clone(),
    });
    things.collect()
}

/// What the engine keeps of other versions.
pub(crate) fn earlier(config: &Config) -> Kept {
    let days = |days: u64| Duration::from_secs(days.saturating_mul(86_400));
    let execution = &config.execution;
    let images = execution.image.iter().chain(&execution.images);
    Kept {
        volumes: config.retention.engine_volume_days.map(days),
        images: config.retention.engine_image_days.map(days),
        named: images.cloned().collect(),
    }
}

/// The published artifacts as retention removes them.
#[derive(Debug)]
struct Published(OutputRoot);

#[async_trait]
impl Remover for Published {
    async fn remove(&self, execution: &ExecutionId) -> io::Result<()> {
        let (root, execution) = (self.0.clone(), execution.clone());
        let removing = spawn_blocking(move || root.remove_published(&execution));
        removing.await.map_err(io::Error::other)?
    }
}
