//! Slots: which uid a sandbox gets, so that no two at the same time share one (row 2).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Hands out uids, each to one sandbox at a time.
#[derive(Debug, Clone)]
pub struct Slots {
    base: u32,
    taken: Arc<Mutex<BTreeSet<u32>>>,
}

/// A uid that nobody else has until this is dropped.
#[derive(Debug)]
pub struct Slot {
    index: u32,
    slots: Slots,
}

impl Slots {
    /// Slots whose uids start at `base`.
    #[must_use]
    pub fn new(base: u32) -> Self {
        Self {
            base,
            taken: Arc::default(),
        }
    }

    /// Takes the slot of this uid, for a sandbox that is there already; `None` if somebody has it, or
    /// if it is none of these.
    #[must_use]
    pub fn take_uid(&self, uid: u32) -> Option<Slot> {
        let index = uid.checked_sub(self.base)?;
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.insert(index).then(|| Slot {
            index,
            slots: self.clone(),
        })
    }

    /// Takes the lowest free slot. How many there are at a time is bounded by whoever runs
    /// executions: a slot is not what they wait for.
    #[must_use]
    pub fn take(&self) -> Slot {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let index = taken
            .iter()
            .zip(0..)
            .find(|&(&used, free)| used != free)
            .map_or_else(
                || u32::try_from(taken.len()).unwrap_or(u32::MAX),
                |(_, free)| free,
            );
        taken.insert(index);
        Slot {
            index,
            slots: self.clone(),
        }
    }
}

impl Slot {
    /// The uid, and the gid.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.slots.base.saturating_add(self.index)
    }

    /// Keeps it from everybody as long as this process lives: its sandbox may, too.
    pub fn never_free(self) {
        std::mem::forget(self);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self
            .slots
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        taken.remove(&self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    #[test]
    fn no_two_slots_at_the_same_time_share_a_uid() {
        let slots = Slots::new(50_000);
        let first = slots.take();
        let second = slots.take();
        let third = slots.take();
        assert_eq!(
            [first.uid(), second.uid(), third.uid()],
            [50_000, 50_001, 50_002]
        );
        drop(second);
        assert_eq!(slots.take().uid(), 50_001);
        drop(first);
        assert_eq!(slots.take().uid(), 50_000);
    }

    #[test]
    fn the_uid_of_a_sandbox_that_is_there_is_given_to_nobody_else() {
        let slots = Slots::new(50_000);
        let found = slots.take_uid(50_001).unwrap();
        assert_eq!(found.uid(), 50_001);
        assert!(slots.take_uid(50_001).is_none());
        assert!(slots.take_uid(49_999).is_none());
        let (first, second) = (slots.take(), slots.take());
        assert_eq!([first.uid(), second.uid()], [50_000, 50_002]);
        drop(found);
        assert_eq!(slots.take().uid(), 50_001);
    }
}
