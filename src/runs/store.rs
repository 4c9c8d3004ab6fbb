//! Where runs are kept. The trait is what the service needs; [`sqlite`] is the embedded store.
//!
//! Owns the durable record and its guarantees: what was acknowledged is on disk, and a terminal
//! state is written once. Decides nothing about runs: which state follows which is
//! [`RunState::after`](super::state::RunState::after).

mod fault;

pub mod retained;

pub mod sqlite;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

pub use self::fault::Fault;
use super::record::{Episode, Judgement, PlannedProgram, RecordedEpisode, RunRecord};
use super::request::RunRequest;
use super::state::{Event, Refused};
use super::tenants::{Quota, Quotas};
use crate::ids::{ClientKey, ExecutionId, RunId, TenantId};

/// A run that is to be kept.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What the tenant may use up.
    pub quotas: Quotas,
    /// Whose turn it is within the tenant.
    pub client: ClientKey,
    /// What was asked for.
    pub request: RunRequest,
    /// When.
    pub accepted_at: Timestamp,
    /// CPU time that it is taken to use as long as it has not ended, in microseconds.
    pub reserved_cpu_microseconds: i64,
    /// The client's key for repeating the request safely.
    pub idempotency: Option<IdempotencyKey>,
}

/// A client's key and the fingerprint of what it sent with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// Who shares the keys: one client, or all of a tenant.
    pub scope: ClientKey,
    /// As sent.
    pub key: String,
    /// SHA-256 of the request body, lower case hexadecimal.
    pub fingerprint: String,
}

/// What became of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// It is kept, under its own id.
    New {
        /// Its place in the order of acceptance.
        sequence: i64,
    },
    /// The same key and fingerprint were there before: this is the run.
    Repeated(RunId),
    /// The same key came with another body.
    KeyReused,
    /// As many runs are unfinished as are allowed.
    QueueFull,
    /// The tenant has used up one of its quotas.
    OverQuota(Quota),
}

/// Which runs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs with this status, as the interface writes it.
    pub status: Option<String>,
    /// Only runs accepted before the one with this sequence number.
    pub before: Option<i64>,
    /// At most so many.
    pub limit: u32,
}

/// An execution that was started or about to be when the daemon went away.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenExecution {
    /// Its id.
    pub id: ExecutionId,
    /// Its run.
    pub run_id: RunId,
    /// The how manieth attempt of its turn it is, from 1.
    pub attempt: u32,
    /// The program, if it is in no request.
    pub program: Option<Box<PlannedProgram>>,
    /// Whether the host was started anew since it was planned, or nobody can tell. What was not
    /// flushed to disk may be gone then. Of no account for one that is about to be planned.
    pub host_restarted: bool,
}

impl OpenExecution {
    /// The first attempt of a run, about to be planned.
    #[must_use]
    pub fn first(id: ExecutionId, run_id: RunId) -> Self {
        Self {
            id,
            run_id,
            attempt: 1,
            program: None,
            host_restarted: false,
        }
    }
}

/// What is written down in the same transaction as the change of a run's state, or not at all.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Alongside {
    /// Nothing.
    #[default]
    Nothing,
    /// This execution is about to be created: what [`Store::plan_execution`] does.
    Execution(ExecutionId),
    /// This episode is the run's last: what [`Store::add_episode`] does.
    Episode(Box<RecordedEpisode>),
}

/// A failing store. Final for the operation; the caller reports it as the daemon's fault.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store cannot be opened.
    #[error("the store at {path} cannot be opened: check that its directory is writable")]
    Open {
        /// Where.
        path: String,
        /// Why.
        #[source]
        source: Fault,
    },
    /// Another daemon uses it.
    #[error(
        "the store at {path} is in use by another fumehood: stop it or give this one its own state directory"
    )]
    InUse {
        /// Where.
        path: String,
    },
    /// It is that of another state directory: the sandboxes of what is open in it are not known here.
    #[error(
        "the store belongs to the instance {owner} and app.state_dir to {own}: set app.state_dir to the \
         directory whose file `instance` says {owner}; if that one is lost, write {owner} into the file \
         `instance` of the new one, and programs that were running are told as lost"
    )]
    OtherInstance {
        /// In the file.
        owner: String,
        /// Of the state directory.
        own: String,
    },
    /// It was written by a newer version.
    #[error(
        "the store has schema version {found}, this version knows up to {known}: upgrade fumehood"
    )]
    TooNew {
        /// In the file.
        found: i64,
        /// In this program.
        known: i64,
    },
    /// It was written by an older version, and only a daemon may bring it up to date.
    #[error(
        "the store has schema version {found}, this version needs {known}: start `fumehood serve` once, \
         which brings it up to date"
    )]
    TooOld {
        /// In the file.
        found: i64,
        /// In this program.
        known: i64,
    },
    /// It is damaged.
    #[error(
        "the store is damaged ({0}); nothing was changed: restore it from a backup, or move its files \
         away (the database and those beside it whose names begin with its own) to begin anew"
    )]
    Corrupt(String),
    /// A statement failed.
    #[error("the store failed to {operation}")]
    Failed {
        /// What was to be done.
        operation: &'static str,
        /// Why; shared by all operations that failed with one transaction.
        #[source]
        source: Arc<Fault>,
    },
    /// A record cannot be read back.
    #[error("a record of the store cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// The disk is nearly full: what is left is for the runs that are already accepted.
    #[error("the disk of the store has {free} bytes left, new runs need {floor}: free some space")]
    LowSpace {
        /// Bytes available.
        free: u64,
        /// Bytes kept for accepted runs.
        floor: u64,
    },
    /// The run is not being carried out, so nothing may be started or recorded for it.
    #[error("the run {0} is not being carried out")]
    NotRunning(RunId),
    /// A flush to disk failed before: what is on disk is uncertain, so nothing more is written.
    #[error("the store could not be flushed to disk: check the disk and restart fumehood")]
    Unflushed,
}

impl StoreError {
    /// Whether the same operation may succeed a little later without anybody's help.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Failed { .. } | Self::LowSpace { .. } => true,
            Self::Open { .. }
            | Self::InUse { .. }
            | Self::OtherInstance { .. }
            | Self::TooNew { .. }
            | Self::TooOld { .. }
            | Self::Corrupt(_)
            | Self::Unreadable(_)
            | Self::NotRunning(_)
            | Self::Unflushed => false,
        }
    }
}

/// The durable record of runs. Every method that changes something returns after the change is on
/// disk (invariant 2). Dropping the future of one either leaves the change out or makes all of it.
///
/// Records come as *outlines* unless said otherwise: the texts of programs are empty and input
/// files have names but no bytes, because those can be megabytes each and only carrying a run
/// out needs them.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Keeps a new run, its key in the same transaction, unless `max_unfinished` runs are waiting
    /// or being carried out already, or a quota of its tenant is used up. A repeated key is
    /// recognised even then.
    async fn insert(&self, run: &NewRun, max_unfinished: u32) -> Result<Inserted, StoreError>;

    /// The run of a tenant that was accepted with this key and fingerprint, if there is one.
    async fn repeated(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<RunId>, StoreError>;

    /// The outline of a run, if it is this tenant's: one of another is as unknown as one that is not
    /// there. What is asked for by a client is asked for in this way.
    async fn find(&self, tenant: &TenantId, id: RunId) -> Result<Option<RunRecord>, StoreError>;

    /// The outline of a run, whosever it is, or `None` if there is none with this id.
    async fn get(&self, id: RunId) -> Result<Option<RunRecord>, StoreError>;

    /// A run, whosever it is, with its programs and input files, or `None` if there is none with this
    /// id.
    async fn get_complete(&self, id: RunId) -> Result<Option<RunRecord>, StoreError>;

    /// Outlines of a tenant's runs, newest first.
    async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
    ) -> Result<Vec<RunRecord>, StoreError>;

    /// The outline of every waiting run, in order of acceptance.
    async fn queued(&self) -> Result<Vec<RunRecord>, StoreError>;

    /// The outline of every run that is `RUNNING` in the store, in order of acceptance.
    async fn running(&self) -> Result<Vec<RunRecord>, StoreError>;

    /// Applies `event` to the run's state in one transaction, as one compare-and-set, and writes
    /// down what belongs to it. Gives the outline after it; `Err(Refused)` inside if the state
    /// machine refused; `None` if unknown.
    async fn apply(
        &self,
        id: RunId,
        event: Event,
        alongside: &Alongside,
    ) -> Result<Option<Result<RunRecord, Refused>>, StoreError>;

    /// Writes down that an execution is about to be created, before it is, with its program as long as
    /// it is open. Refused with
    /// [`StoreError::NotRunning`] unless its run is being carried out: nothing is started for a
    /// run that is over.
    async fn plan_execution(&self, execution: &OpenExecution) -> Result<(), StoreError>;

    /// Keeps an episode with its program, and the receipt of its execution, which is open no more.
    /// Refused with [`StoreError::NotRunning`] like [`Store::plan_execution`]: a final record stays
    /// as it is.
    async fn add_episode(&self, recorded: &RecordedEpisode) -> Result<(), StoreError>;

    /// The episodes of a run, in order, with what was looked at before the first turn.
    async fn episodes(&self, id: RunId) -> Result<Vec<Episode>, StoreError>;

    /// The last turn of a run; `None` if it has had none.
    async fn last_episode(&self, id: RunId) -> Result<Option<Episode>, StoreError>;

    /// The program of a run's last turn; `None` if it has had none. For whoever goes on with the run,
    /// never for a client.
    async fn last_program(&self, id: RunId) -> Result<Option<String>, StoreError>;

    /// What was decided about the episodes of these runs, in order of the episodes of each.
    async fn judgements(&self, ids: &[RunId]) -> Result<Vec<Judgement>, StoreError>;

    /// Executions planned but never recorded: what a daemon that went away left open.
    async fn open_executions(&self) -> Result<Vec<OpenExecution>, StoreError>;

    /// Counts a daemon that goes on with a run, and tells how many have by now.
    async fn count_takeover(&self, id: RunId) -> Result<u32, StoreError>;

    /// Closes an open execution that will never be recorded, with a receipt that says so.
    async fn abandon_execution(&self, id: &ExecutionId) -> Result<(), StoreError>;

    /// The receipt of an execution of a run, or of the last one that is over, as it was signed;
    /// `None` if there is none. Every execution that was planned gets one receipt, in the same
    /// transaction as the record of its end, and the receipts of a store are one chain.
    async fn receipt(
        &self,
        id: RunId,
        execution: Option<&ExecutionId>,
    ) -> Result<Option<String>, StoreError>;

    /// Whether there is room for new runs; changes nothing. [`StoreError::LowSpace`] as
    /// [`Store::insert`] would have it.
    async fn room(&self) -> Result<(), StoreError>;

    /// Finishes outstanding work, within a bound, and closes the files.
    async fn close(&self);
}
