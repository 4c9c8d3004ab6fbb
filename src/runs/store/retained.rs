//! What the store does for retention: it tells what it keeps, and removes. Apart from
//! [`Store`](super::Store), because nothing that carries runs out may remove any.

use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::ids::{ExecutionId, RunId, TenantId};
use crate::runs::retention::plan::{Kept, Totals};

/// Runs of one tenant that are over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptRuns {
    /// All of them together.
    pub totals: Totals,
    /// The oldest, in order of their ends.
    pub oldest: Vec<Kept>,
}

/// Something outside of the store that goes after a time, and of whose age nothing else is certain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thing {
    /// What it is, in a word.
    pub kind: String,
    /// What it is called.
    pub name: String,
    /// Tells it from another one that had the same name before.
    pub mark: String,
}

/// The store as retention sees it. Every method that changes something returns after the change is on
/// disk.
#[async_trait]
pub trait Retained: Send + Sync + std::fmt::Debug {
    /// The tenants that have runs that are over, configured or not.
    async fn kept_tenants(&self) -> Result<Vec<TenantId>, StoreError>;

    /// All that a tenant has kept. Takes the longer the more that is.
    async fn kept_totals(&self, tenant: &TenantId) -> Result<Totals, StoreError>;

    /// At most `most` of the oldest runs that a tenant has kept, in order of their ends.
    async fn kept_oldest(&self, tenant: &TenantId, most: u32) -> Result<Vec<Kept>, StoreError>;

    /// Removes runs with everything but their receipts, and writes down in the same transaction which
    /// artifacts have to go. One that is not over, or may still have a sandbox, stays. Gives those
    /// that are gone.
    async fn remove(&self, sequences: Vec<i64>) -> Result<Vec<RunId>, StoreError>;

    /// Executions whose artifacts have to go, in order of their ids, from the one after `after`.
    async fn removals(
        &self,
        after: Option<&ExecutionId>,
        most: u32,
    ) -> Result<Vec<ExecutionId>, StoreError>;

    /// The artifacts of these executions are gone.
    async fn removed(&self, executions: Vec<ExecutionId>) -> Result<(), StoreError>;

    /// Writes down how long the store has been in use, from which every age is reckoned.
    async fn note_time(&self) -> Result<(), StoreError>;

    /// These things are there, and no others of those that were before. Gives for how long each has been
    /// seen, in their order.
    async fn sight(&self, things: Vec<Thing>) -> Result<Vec<Duration>, StoreError>;
}
