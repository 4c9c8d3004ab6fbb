//! What the orchestrator is told of the runs that wait, so that something can be ready for them.
//!
//! Owns which of them it knows. What it makes of that is its own affair; nothing waits for it.

use std::mem;

use super::inner::Inner;
use crate::runs::record::RunRecord;

/// The runs that the orchestrator was told of last.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    told: Vec<RunRecord>,
}

impl Ahead {
    /// Tells of the runs that are next in turn, if they are others than before.
    pub(super) async fn tell(&mut self, inner: &Inner) {
        let next = inner.queue().ahead(inner.orchestrator.looks_ahead());
        if self.told.iter().map(|run| run.id).eq(next.iter().copied()) {
            return;
        }
        // If this is cut off, all are told of anew.
        let mut known = mem::take(&mut self.told);
        let mut runs = Vec::with_capacity(next.len());
        for id in next {
            match known.iter().position(|run| run.id == id) {
                Some(place) => runs.push(known.swap_remove(place)),
                // A record that cannot be read is met again by whoever records the start.
                None => runs.extend(inner.store.get(id).await.ok().flatten()),
            }
        }
        inner.orchestrator.expect(&runs);
        self.told = runs;
    }
}
