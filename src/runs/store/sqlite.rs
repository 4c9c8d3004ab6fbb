//! The embedded store: one SQLite file, write-ahead log, every commit flushed to disk.
//!
//! One connection writes, and belongs to the `writer`; a few read, and belong to the `readers`. Owns
//! the file and its lock; nothing else opens them.

pub mod lock;

mod open;

mod writer;

mod readers;

mod access;

mod batch;

mod changes;

mod failure;

mod log;

mod statements;

mod rows;

mod receipts;

mod space;

mod kept_clock;

pub mod export;

pub mod retention;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::types::Value;
use rusqlite::{params, params_from_iter};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use self::access::Access;
use self::batch::Surroundings;
use self::changes::{AbandonExecution, AddEpisode, Apply, CountTakeover, Insert, PlanExecution};
use self::failure::Flushes;
use self::readers::Readers;
use self::rows::{json, json_column, record};
pub use self::space::SpaceSettings;
use self::space::{Low, Space};
use self::writer::Writer;
use super::{
    Alongside, Fault, IdempotencyKey, Inserted, NewRun, OpenExecution, RunFilter, Store, StoreError,
};
use crate::ids::{ExecutionId, RunId, TenantId};
use crate::receipt::Notary;
use crate::runs::record::{Episode, Judgement, RecordedEpisode, RunRecord};
use crate::runs::state::{Event, Refused};

/// How long closing waits for operations that are under way.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How the store is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSettings {
    /// What is kept free on its disk.
    pub space: SpaceSettings,
    /// How long the check for damage may take before the store is used without it.
    pub check_limit: Duration,
}

impl Default for StoreSettings {
    /// With time for a check of any store, and without a file that holds room.
    fn default() -> Self {
        Self {
            space: SpaceSettings::default(),
            check_limit: Duration::from_secs(3600),
        }
    }
}

/// The embedded store.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: Readers,
}

impl SqliteStore {
    /// Opens the database at `path`; makes it, and its directory, if they are not there. The lock
    /// file beside it, `<path>.lock`, is held until [`Store::close`]. Receipts are made by `notary`.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] if another daemon has it, [`StoreError::Corrupt`] if it is damaged or
    /// another program's, [`StoreError::TooNew`] if a newer version wrote it,
    /// [`StoreError::OtherInstance`] if it is not that of the notary's daemon: in these cases the
    /// file is left as it was. [`StoreError::Open`] for everything else.
    pub async fn open(path: &Path, notary: Notary) -> Result<Self, StoreError> {
        Self::open_with(path, notary, StoreSettings::default()).await
    }

    /// Like [`SqliteStore::open`], with settings.
    ///
    /// # Errors
    ///
    /// Those of [`SqliteStore::open`].
    pub async fn open_with(
        path: &Path,
        notary: Notary,
        settings: StoreSettings,
    ) -> Result<Self, StoreError> {
        let cannot = |fault: Fault| open::cannot_open(path, fault);
        let given = path.to_owned();
        let (key, instance) = (notary.public_key(), notary.instance().clone());
        let opening = spawn_blocking(move || {
            let opened = open::open(&given, settings.check_limit, &instance)?;
            let flushes = Flushes::default();
            let access = Access::new(&opened.reader, &flushes, "read the last receipt");
            receipts::standing(access, key)?.tell();
            let clock = retention::clock_of(&opened.reader)?;
            let space = Space::new(opened.directory.clone(), &opened.path, settings.space);
            space.prepare();
            Ok::<_, StoreError>((opened, space, clock))
        });
        let opening = opening.await.map_err(|_panicked| cannot(Fault::Died))?;
        let (opened, space, clock) = opening?;
        let surroundings = Arc::new(Surroundings::new(space, clock, notary));
        let readers = Readers::new(&opened.path, opened.reader, Arc::clone(&surroundings));
        let readers = readers.map_err(cannot)?;
        let writer = Writer::start(opened.writer, opened.unfinished, surroundings, opened.lock);
        Ok(Self {
            writer: writer.map_err(cannot)?,
            readers,
        })
    }

    /// Cancelled once the store can write nothing more, because what is on disk is uncertain: the
    /// daemon is to end then, and the next start reads what is there (security.md 3.2, 2).
    #[must_use]
    pub fn broken(&self) -> CancellationToken {
        self.writer.surroundings.flushes.broken()
    }

    async fn with_status(
        &self,
        operation: &'static str,
        status: &'static str,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let reading = move |access: Access<'_>| {
            access.all(&statements::runs_with_status(), params![status], record)
        };
        self.readers.read(operation, reading).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn insert(&self, run: &NewRun, max_unfinished: u32) -> Result<Inserted, StoreError> {
        self.writer.run(Insert::new(run, max_unfinished)?).await
    }

    async fn repeated(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<RunId>, StoreError> {
        let (tenant, key) = (tenant.to_string(), key.clone());
        let reading =
            move |access: Access<'_>| {
                let by = params![tenant, key.scope.0, key.key];
                let known = access.first(statements::KEY, by, rows::key)?;
                Ok(known
                    .and_then(|(fingerprint, run)| (fingerprint == key.fingerprint).then_some(run)))
            };
        self.readers
            .read("look up a repeated request", reading)
            .await
    }

    async fn find(&self, tenant: &TenantId, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        let tenant = tenant.to_string();
        let reading = move |access: Access<'_>| {
            let by = params![id.to_string(), tenant];
            access.first(&statements::run_of_tenant(), by, record)
        };
        self.readers.read("read a run", reading).await
    }

    async fn get(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        let reading = move |access: Access<'_>| {
            access.first(&statements::run(), params![id.to_string()], record)
        };
        self.readers.read("read a run", reading).await
    }

    async fn get_complete(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        let reading = move |access: Access<'_>| {
            let by = params![id.to_string()];
            access.first(&statements::complete_run(), by, |row| {
                Ok(RunRecord {
                    request: json_column(row, "request")?,
                    ..record(row)?
                })
            })
        };
        self.readers.read("read a run", reading).await
    }

    async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let (tenant, filter) = (Value::from(tenant.to_string()), filter.clone());
        let reading = move |access: Access<'_>| {
            let statement = statements::page(filter.status.is_some(), filter.before.is_some());
            let status = filter.status.map(Value::from);
            let numbers =
                [filter.before, Some(i64::from(filter.limit))].map(|n| n.map(Value::from));
            let given = [Some(tenant), status].into_iter().chain(numbers).flatten();
            access.all(&statement, params_from_iter(given), record)
        };
        self.readers.read("list runs", reading).await
    }

    async fn queued(&self) -> Result<Vec<RunRecord>, StoreError> {
        self.with_status("list waiting runs", "QUEUED").await
    }

    async fn running(&self) -> Result<Vec<RunRecord>, StoreError> {
        self.with_status("list the runs going on", "RUNNING").await
    }

    async fn apply(
        &self,
        id: RunId,
        event: Event,
        alongside: &Alongside,
    ) -> Result<Option<Result<RunRecord, Refused>>, StoreError> {
        let notary = &self.writer.surroundings.notary;
        self.writer
            .run(Apply::new(id, event, alongside, notary)?)
            .await
    }

    async fn plan_execution(&self, execution: &OpenExecution) -> Result<(), StoreError> {
        self.writer.run(PlanExecution(execution.clone())).await
    }

    async fn add_episode(&self, recorded: &RecordedEpisode) -> Result<(), StoreError> {
        let notary = &self.writer.surroundings.notary;
        self.writer.run(AddEpisode::new(recorded, notary)?).await
    }

    async fn episodes(&self, id: RunId) -> Result<Vec<Episode>, StoreError> {
        let reading = move |access: Access<'_>| {
            access.all(statements::EPISODES, params![id.to_string()], rows::episode)
        };
        self.readers.read("read episodes", reading).await
    }

    async fn last_episode(&self, id: RunId) -> Result<Option<Episode>, StoreError> {
        let reading = move |access: Access<'_>| {
            let by = params![id.to_string()];
            access.first(statements::LAST_EPISODE, by, rows::episode)
        };
        self.readers.read("read the last episode", reading).await
    }

    async fn last_program(&self, id: RunId) -> Result<Option<String>, StoreError> {
        let reading = move |access: Access<'_>| {
            let by = params![id.to_string()];
            access.first(statements::LAST_PROGRAM, by, |row| {
                rows::column::<String>(row, "code")
            })
        };
        self.readers.read("read the last program", reading).await
    }

    async fn judgements(&self, ids: &[RunId]) -> Result<Vec<Judgement>, StoreError> {
        let ids = json(&ids)?;
        let reading = move |access: Access<'_>| {
            access.all(statements::JUDGEMENTS, params![ids], rows::judgement)
        };
        self.readers.read("read judgements", reading).await
    }

    async fn open_executions(&self) -> Result<Vec<OpenExecution>, StoreError> {
        let boot = self.writer.surroundings.boot.clone();
        let reading = move |access: Access<'_>| {
            access.all(statements::OPEN_EXECUTIONS, params![], |row| {
                rows::open_execution(row, &boot)
            })
        };
        self.readers.read("list open executions", reading).await
    }

    async fn count_takeover(&self, id: RunId) -> Result<u32, StoreError> {
        self.writer.run(CountTakeover(id)).await
    }

    async fn abandon_execution(&self, id: &ExecutionId) -> Result<(), StoreError> {
        self.writer.run(AbandonExecution(id.clone())).await
    }

    async fn receipt(
        &self,
        id: RunId,
        execution: Option<&ExecutionId>,
    ) -> Result<Option<String>, StoreError> {
        let execution = execution.cloned();
        let reading = move |access: Access<'_>| receipts::find(access, id, execution.as_ref());
        self.readers.read("read a receipt", reading).await
    }

    async fn room(&self) -> Result<(), StoreError> {
        let surroundings = Arc::clone(&self.writer.surroundings);
        let measuring = move |access: Access<'_>| {
            let room = surroundings.space.look();
            let room = room.map_err(|error| access.failed(error))?;
            room.map_err(|Low { free, floor }| StoreError::LowSpace { free, floor })
        };
        self.readers.read("measure the free space", measuring).await
    }

    async fn close(&self) {
        let closing = async {
            self.readers.close().await;
            self.writer.close().await;
        };
        if tokio::time::timeout(CLOSE_LIMIT, closing).await.is_err() {
            // The lock stays: an operation may still be under way.
            tracing::error!(
                "The store could not be closed in time: check the disk; the next start reads its log"
            );
        }
    }
}
