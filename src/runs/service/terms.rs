//! What is said to the service, and what it answers.

use std::collections::HashMap;
use std::time::Duration;

use crate::ids::{RunId, TenantId};
use crate::runs::store::StoreError;
use crate::runs::tenants::{Quota, Share};

/// How a submission was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// The run, new or repeated.
    pub id: RunId,
    /// Whether the same key and body had been sent before.
    pub repeated: bool,
}

/// Why a submission was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// As many runs wait as are allowed.
    #[error("the queue is full: {waiting} runs are waiting")]
    QueueFull {
        /// How many.
        waiting: u32,
    },
    /// The tenant has used up what it may.
    #[error("{0}")]
    OverQuota(Quota),
    /// The key was used with another body.
    #[error("the idempotency key was used with another request body")]
    KeyReused,
    /// The gate is closed.
    #[error("runs are refused at the moment: {}", .reasons.join("; "))]
    Closed {
        /// Why.
        reasons: Vec<String>,
    },
    /// The daemon is going down.
    #[error("the daemon is shutting down")]
    ShuttingDown,
    /// The store failed.
    #[error("the run could not be recorded")]
    Store(#[from] StoreError),
}

/// How a request to cancel was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAnswer {
    /// It is over now, or will be in a moment.
    Accepted,
    /// It had ended before.
    AlreadyEnded,
    /// There is no such run.
    Unknown,
}

/// How much the service does at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceSettings {
    /// Runs carried out at the same time.
    pub max_concurrent_runs: usize,
    /// Runs waiting beyond those.
    pub max_queued_runs: u32,
    /// Wall clock of a whole run, from its start.
    pub run_timeout: Duration,
    /// How tenants share the places; who is not there has the usual share.
    pub shares: HashMap<TenantId, Share>,
}

/// What the service has to do at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// Runs waiting.
    pub queued: usize,
    /// Runs being carried out.
    pub running: usize,
}
