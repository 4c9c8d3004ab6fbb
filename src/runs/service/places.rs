//! The places for runs that are carried out at the same time.
//!
//! A run that is taken over has one whether or not one is free: after a start with fewer places than
//! before there can be more runs than places. So many places are owed then, and those that become free
//! pay for them before any new run is started.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// All places. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    /// Runs that go on without a permit, less those that have got one since.
    owed: Arc<AtomicUsize>,
}

/// The right to carry a run out. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    permit: Option<OwnedSemaphorePermit>,
    places: Places,
}

impl Places {
    pub(super) fn new(places: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(places)),
            owed: Arc::default(),
        }
    }

    /// A place that is free, for a new run.
    pub(super) fn try_take(&self) -> Option<Place> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        Some(self.place(Some(permit)))
    }

    /// Waits for one.
    pub(super) async fn take(&self) -> Option<Place> {
        let permit = Arc::clone(&self.free).acquire_owned().await.ok()?;
        Some(self.place(Some(permit)))
    }

    /// The place of a run that is taken over, free or not.
    pub(super) fn take_over(&self) -> Place {
        self.try_take().unwrap_or_else(|| {
            self.owed.fetch_add(1, Ordering::SeqCst);
            self.place(None)
        })
    }

    fn place(&self, permit: Option<OwnedSemaphorePermit>) -> Place {
        Place {
            permit,
            places: self.clone(),
        }
    }

    /// Whether a place that becomes free was owed, and is free for nobody.
    fn pay(&self) -> bool {
        let less = |owed: usize| owed.checked_sub(1);
        self.owed
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
            .is_ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        match (self.permit.take(), self.places.pay()) {
            (Some(permit), true) => permit.forget(),
            (Some(permit), false) => drop(permit),
            (None, true) => {}
            // Somebody else's went to this one meanwhile.
            (None, false) => self.places.free.add_permits(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_over_without_a_place_gets_those_that_become_free_first() {
        for order in [[0, 1, 2], [0, 2, 1], [2, 1, 0], [1, 2, 0]] {
            let places = Places::new(1);
            let mut going_on = [0; 3].map(|_| Some(places.take_over()));
            for (ended, index) in order.into_iter().enumerate() {
                assert!(places.try_take().is_none(), "{order:?}: after {ended}");
                going_on[index] = None;
            }
            // And then there is one again, and not more.
            let free = places.try_take().unwrap();
            assert!(places.try_take().is_none(), "{order:?}");
            drop(free);
            assert!(places.try_take().is_some(), "{order:?}");
        }
    }

    #[test]
    fn with_enough_places_nothing_is_owed() {
        let places = Places::new(3);
        let going_on = [0; 2].map(|_| places.take_over());
        let new = places.try_take().unwrap();
        assert!(places.try_take().is_none());
        drop(going_on);
        assert!(places.try_take().is_some());
        drop(new);
    }
}
