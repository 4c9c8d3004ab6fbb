//! What images are called and what they are, remembered for a moment, so that a run that finds a
//! sandbox waiting needs no answer of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use crate::sandbox::engine::{Engine, EngineError};
use crate::sandbox::template::Image;

/// For how long an answer holds: a name that is moved to another image is noticed after that.
const HOLDS_FOR: Duration = Duration::from_secs(15);

/// A name that nobody has asked for in so long is not asked about any more.
const WANTED_FOR: Duration = Duration::from_secs(600);

/// The images.
#[derive(Debug)]
pub(super) struct Images {
    engine: Arc<dyn Engine>,
    /// By name; only configured names get here, so there are few.
    known: Mutex<BTreeMap<String, Known>>,
    /// Names that were asked for and are not known.
    wanted: Mutex<BTreeSet<String>>,
}

#[derive(Debug)]
struct Known {
    image: Image,
    found_at: Instant,
    wanted_at: Instant,
}

impl Images {
    pub(super) fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            known: Mutex::default(),
            wanted: Mutex::default(),
        }
    }

    /// The image of this name, if it was found lately.
    pub(super) fn known(&self, reference: &str) -> Option<Image> {
        let now = Instant::now();
        let mut known = self.lock();
        let known = known.get_mut(reference)?;
        known.wanted_at = now;
        let is_fresh = now.saturating_duration_since(known.found_at) < HOLDS_FOR;
        is_fresh.then(|| known.image.clone())
    }

    /// Has this name looked up with the next refreshing.
    pub(super) fn want(&self, reference: &str) {
        self.wanted().insert(reference.to_owned());
    }

    /// Asks again about every name that is wanted, this one always, so that answers do not grow
    /// old; gives what was found.
    pub(super) async fn refresh(&self, always: &str) -> Vec<Image> {
        let now = Instant::now();
        let names: BTreeSet<String> = {
            let mut known = self.lock();
            known.retain(|_, known| now.saturating_duration_since(known.wanted_at) < WANTED_FOR);
            let mut names = std::mem::take(&mut *self.wanted());
            names.extend(known.keys().cloned());
            names.insert(always.to_owned());
            names
        };
        let mut all = Vec::new();
        for name in names {
            let found = self.engine.image(&name).await;
            let mut known = self.lock();
            match found {
                Ok(image) => {
                    all.push(image.clone());
                    let known = known.entry(name).or_insert_with(|| Known {
                        image: image.clone(),
                        found_at: now,
                        wanted_at: now,
                    });
                    (known.image, known.found_at) = (image, now);
                }
                // An engine that is away says nothing about the image; the next run asks it.
                Err(EngineError::ImageMissing { .. } | EngineError::ImageRefused { .. }) => {
                    known.remove(&name);
                }
                Err(error) => debug!(%error, "the pool waits for the engine"),
            }
        }
        all
    }

    fn wanted(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
