//! The embedded store: one SQLite file, write-ahead log, every commit flushed to disk.
//!
//! One connection writes, and belongs to the `writer`; a few read. Owns the file and its lock;
//! nothing else opens them.

pub mod lock;

mod open;

mod writer;

mod batch;

mod changes;

mod failure;

mod statements;

mod rows;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::SqlitePool;

use self::batch::Surroundings;
use self::changes::{AbandonExecution, AddEpisode, Apply, Insert, PlanExecution};
use self::rows::{column, from_json, json, record, run_id};
use self::writer::Writer;
use super::{
    Alongside, IdempotencyKey, Inserted, NewRun, OpenExecution, RunFilter, Store, StoreError,
};
use crate::ids::{ClientKey, ExecutionId, RunId};
use crate::runs::record::{Episode, Judgement, RunRecord};
use crate::runs::state::{Event, Refused};

/// How long closing waits for operations that are under way.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The embedded store.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    readers: SqlitePool,
    surroundings: Arc<Surroundings>,
}

impl SqliteStore {
    /// Opens the database at `path`; makes it, and its directory, if they are not there. The lock
    /// file beside it, `<path>.lock`, is held until [`Store::close`].
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] if another daemon has it, [`StoreError::Corrupt`] if it is damaged or
    /// another program's, [`StoreError::TooNew`] if a newer version wrote it: in these cases the
    /// file is left as it was. [`StoreError::Open`] for everything else.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let opened = open::open(path).await?;
        let surroundings = Arc::new(Surroundings::new(opened.directory));
        let writer = Writer::start(
            opened.writer,
            opened.unfinished,
            Arc::clone(&surroundings),
            opened.lock,
        );
        Ok(Self {
            writer,
            readers: opened.readers,
            surroundings,
        })
    }

    fn failed(&self, operation: &'static str, source: sqlx::Error) -> StoreError {
        self.surroundings.flushes.failed(operation, source)
    }

    async fn with_status(
        &self,
        operation: &'static str,
        status: &'static str,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let rows = sqlx::query(&statements::runs_with_status())
            .bind(status)
            .fetch_all(&self.readers)
            .await
            .map_err(|source| self.failed(operation, source))?;
        rows.iter().map(record).collect()
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn insert(&self, run: &NewRun, max_unfinished: u32) -> Result<Inserted, StoreError> {
        self.writer.run(Insert::new(run, max_unfinished)?).await
    }

    async fn repeated(
        &self,
        client: &ClientKey,
        key: &IdempotencyKey,
    ) -> Result<Option<RunId>, StoreError> {
        let known: Option<(String, String)> = sqlx::query_as(statements::KEY)
            .bind(&client.0)
            .bind(&key.key)
            .fetch_optional(&self.readers)
            .await
            .map_err(|source| self.failed("look up a repeated request", source))?;
        let known = known.filter(|(fingerprint, _)| *fingerprint == key.fingerprint);
        known.map(|(_, run)| run_id(&run)).transpose()
    }

    async fn get(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        let row = sqlx::query(&statements::run())
            .bind(id.to_string())
            .fetch_optional(&self.readers)
            .await
            .map_err(|source| self.failed("read a run", source))?;
        row.as_ref().map(record).transpose()
    }

    async fn get_complete(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        let row = sqlx::query(&statements::complete_run())
            .bind(id.to_string())
            .fetch_optional(&self.readers)
            .await
            .map_err(|source| self.failed("read a run", source))?;
        let Some(row) = row else { return Ok(None) };
        let request: String = column(&row, "request")?;
        Ok(Some(RunRecord {
            request: from_json(&request)?,
            ..record(&row)?
        }))
    }

    async fn list(&self, filter: &RunFilter) -> Result<Vec<RunRecord>, StoreError> {
        let statement = statements::page(filter.status.is_some(), filter.before.is_some());
        let mut query = sqlx::query(&statement);
        if let Some(status) = &filter.status {
            query = query.bind(status);
        }
        if let Some(before) = filter.before {
            query = query.bind(before);
        }
        let rows = query
            .bind(filter.limit)
            .fetch_all(&self.readers)
            .await
            .map_err(|source| self.failed("list runs", source))?;
        rows.iter().map(record).collect()
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
        self.writer.run(Apply::new(id, event, alongside)?).await
    }

    async fn plan_execution(&self, execution: &OpenExecution) -> Result<(), StoreError> {
        self.writer.run(PlanExecution(execution.clone())).await
    }

    async fn add_episode(&self, episode: &Episode, code: &str) -> Result<(), StoreError> {
        self.writer.run(AddEpisode::new(episode, code)?).await
    }

    async fn episodes(&self, id: RunId) -> Result<Vec<Episode>, StoreError> {
        let texts: Vec<String> = sqlx::query_scalar(statements::EPISODES)
            .bind(id.to_string())
            .fetch_all(&self.readers)
            .await
            .map_err(|source| self.failed("read episodes", source))?;
        texts.iter().map(|text| from_json(text)).collect()
    }

    async fn last_episode(&self, id: RunId) -> Result<Option<Episode>, StoreError> {
        let text: Option<String> = sqlx::query_scalar(statements::LAST_EPISODE)
            .bind(id.to_string())
            .fetch_optional(&self.readers)
            .await
            .map_err(|source| self.failed("read the last episode", source))?;
        text.as_deref().map(from_json).transpose()
    }

    async fn judgements(&self, ids: &[RunId]) -> Result<Vec<Judgement>, StoreError> {
        let rows = sqlx::query(statements::JUDGEMENTS)
            .bind(json(&ids)?)
            .fetch_all(&self.readers)
            .await
            .map_err(|source| self.failed("read judgements", source))?;
        rows.iter().map(rows::judgement).collect()
    }

    async fn open_executions(&self) -> Result<Vec<OpenExecution>, StoreError> {
        let rows = sqlx::query(statements::OPEN_EXECUTIONS)
            .fetch_all(&self.readers)
            .await
            .map_err(|source| self.failed("list open executions", source))?;
        rows.iter().map(rows::open_execution).collect()
    }

    async fn abandon_execution(&self, id: &ExecutionId) -> Result<(), StoreError> {
        self.writer.run(AbandonExecution(id.clone())).await
    }

    async fn close(&self) {
        let closing = async {
            self.readers.close().await;
            self.writer.close().await;
        };
        if tokio::time::timeout(CLOSE_LIMIT, closing).await.is_err() {
            // The lock stays: an operation may still be under way.
            tracing::error!("The store could not be closed in time");
        }
    }
}
