//! The sandboxes that wait, and those that are kept for an execution: what is where, no I/O. Each has
//! a keeper that holds it; dropping its entry here makes the keeper give it up.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::debug;

use super::ledger::Ledger;
use crate::ids::ExecutionId;
use crate::sandbox::preparation::ReadySandbox;
use crate::sandbox::template::Template;

/// How long a sandbox may wait before it is made anew: what it holds should not be much older than
/// what is on the disk, and a container that has stood for days is one that nobody has tried.
pub(super) const RENEWED_AFTER: Duration = Duration::from_secs(1800);

/// How soon an execution claims what was kept for it; after that its start was not recorded.
const CLAIMED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) ledger: Ledger,
    /// By template, the one that has waited longest first.
    waiting: BTreeMap<Template, VecDeque<Waiting>>,
    /// Those that an execution is about to claim.
    kept: BTreeMap<ExecutionId, Waiting>,
}

/// A sandbox that waits; its keeper has it. Dropping this makes the keeper remove it.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: ExecutionId,
    pub(super) since: Instant,
    pub(super) order: oneshot::Sender<Order>,
}

/// Asks a keeper for its sandbox.
pub(super) type Order = oneshot::Sender<ReadySandbox>;

impl Shelf {
    pub(super) fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            waiting: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    /// Lets one more wait, which takes so much memory.
    pub(super) fn put(&mut self, template: &Template, waiting: Waiting, bytes: Option<u64>) {
        self.ledger.made(template, bytes);
        let queue = self.waiting.entry(template.clone()).or_default();
        queue.push_back(waiting);
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.values().map(VecDeque::len).sum()
    }

    /// Keeps one that waits for an execution that is to claim it by this id.
    pub(super) fn reserve(&mut self, template: &Template, now: Instant) -> Option<ExecutionId> {
        let waiting = self.pop(template)?;
        let id = waiting.id.clone();
        let kept = Waiting {
            since: now,
            ..waiting
        };
        self.kept.insert(id.clone(), kept);
        Some(id)
    }

    /// Takes the one that was kept under this id.
    pub(super) fn claim(&mut self, id: &ExecutionId) -> Option<Waiting> {
        self.kept.remove(id)
    }

    /// The one that has waited longest.
    pub(super) fn pop(&mut self, template: &Template) -> Option<Waiting> {
        let queue = self.waiting.get_mut(template)?;
        let waiting = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(template);
        }
        if waiting.is_some() {
            self.ledger.gone(template);
        }
        waiting
    }

    /// Forgets this very one, if it still waits.
    pub(super) fn lose(&mut self, template: &Template, id: &ExecutionId) {
        let Some(queue) = self.waiting.get_mut(template) else {
            return;
        };
        let before = queue.len();
        queue.retain(|waiting| waiting.id != *id);
        if queue.len() < before {
            self.ledger.gone(template);
        }
        if queue.is_empty() {
            self.waiting.remove(template);
        }
    }

    pub(super) fn give_up_all(&mut self) {
        self.waiting.clear();
        self.kept.clear();
        self.ledger.all_gone();
    }

    /// Gives up one that has waited too long, and those that are claimed by nobody.
    pub(super) fn give_up_old(&mut self, now: Instant) {
        let age = |since| now.saturating_duration_since(since);
        self.kept.retain(|_, kept| age(kept.since) < CLAIMED_WITHIN);
        let old: Option<(Template, ExecutionId)> = self
            .waiting
            .iter()
            .flat_map(|(template, queue)| queue.iter().map(move |waiting| (template, waiting)))
            .find(|(_, waiting)| age(waiting.since) >= RENEWED_AFTER)
            .map(|(template, waiting)| (template.clone(), waiting.id.clone()));
        // One at a time: those that were made together shall not be missing together.
        if let Some((template, id)) = old {
            debug!(execution.id = %id, "a waiting sandbox is renewed");
            self.lose(&template, &id);
        }
    }
}
