//! The embedded store: one SQLite file, write-ahead log, every commit flushed to disk.
//!
//! One connection writes, a few read. Every change is one immediate transaction, so that a future
//! that is dropped half-way rolls back. Owns the file and its lock; nothing else opens them.

pub mod lock;

mod open;

mod transaction;

mod rows;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::SqlitePool;
use sqlx::{QueryBuilder, Sqlite, Transaction};

use self::lock::FileLock;
use self::rows::{COLUMNS, StateColumns, column, from_json, json, record, run_id};
use super::{IdempotencyKey, Inserted, NewRun, OpenExecution, RunFilter, Store, StoreError};
use crate::execution::Artifact;
use crate::ids::{ClientKey, ExecutionId, RunId};
use crate::runs::record::{Episode, RunRecord};
use crate::runs::state::{Event, Refused};

/// Free space below which no new run is accepted, so that accepted ones can still be recorded.
const SPACE_FLOOR: u64 = 64 << 20;

/// How long closing waits for statements that are under way.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The embedded store.
#[derive(Debug)]
pub struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
    directory: PathBuf,
    space_floor: u64,
    unflushed: AtomicBool,
    lock: Mutex<Option<FileLock>>,
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
        Ok(Self {
            writer: opened.writer,
            readers: opened.readers,
            directory: opened.directory,
            space_floor: SPACE_FLOOR,
            unflushed: AtomicBool::new(false),
            lock: Mutex::new(Some(opened.lock)),
        })
    }

    async fn with_status(
        &self,
        operation: &'static str,
        status: &'static str,
    ) -> Result<Vec<RunRecord>, StoreError> {
        let rows = sqlx::query(&format!(
            "SELECT {COLUMNS} FROM runs WHERE status = ? ORDER BY sequence"
        ))
        .bind(status)
        .fetch_all(&self.readers)
        .await
        .map_err(|source| self.failed(operation, source))?;
        rows.iter().map(record).collect()
    }

    async fn require_running(
        &self,
        operation: &'static str,
        transaction: &mut Transaction<'static, Sqlite>,
        run: RunId,
    ) -> Result<(), StoreError> {
        let status: Option<String> = sqlx::query_scalar("SELECT status FROM runs WHERE id = ?")
            .bind(run.to_string())
            .fetch_optional(&mut **transaction)
            .await
            .map_err(|source| self.failed(operation, source))?;
        match status.as_deref() {
            Some("RUNNING") => Ok(()),
            Some(_) | None => Err(StoreError::NotRunning(run)),
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn insert(&self, run: &NewRun, max_unfinished: u32) -> Result<Inserted, StoreError> {
        const OPERATION: &str = "accept a run";
        let failed = |source| self.failed(OPERATION, source);
        let id = run.id.to_string();
        let request = json(&run.request)?;
        let outline = json(&rows::outline(&run.request))?;

        let mut transaction = self.begin(OPERATION).await?;
        if let Some(idempotency) = &run.idempotency {
            let known: Option<(String, String)> = sqlx::query_as(
                "SELECT fingerprint, run_id FROM idempotency_keys WHERE client = ? AND key = ?",
            )
            .bind(&run.client.0)
            .bind(&idempotency.key)
            .fetch_optional(&mut *transaction)
            .await
            .map_err(failed)?;
            match known {
                Some((fingerprint, first)) if fingerprint == idempotency.fingerprint => {
                    return Ok(Inserted::Repeated(run_id(&first)?));
                }
                Some(_) => return Ok(Inserted::KeyReused),
                None => {}
            }
        }
        let unfinished: i64 =
            sqlx::query_scalar("SELECT count(*) FROM runs WHERE status IN ('QUEUED', 'RUNNING')")
                .fetch_one(&mut *transaction)
                .await
                .map_err(failed)?;
        if unfinished >= i64::from(max_unfinished) {
            return Ok(Inserted::QueueFull);
        }
        self.check_space()?;
        sqlx::query(
            "INSERT INTO runs (id, client, outline, status, accepted_at) \
             VALUES (?, ?, ?, 'QUEUED', ?)",
        )
        .bind(&id)
        .bind(&run.client.0)
        .bind(outline)
        .bind(run.accepted_at.as_microsecond())
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
        sqlx::query("INSERT INTO requests (run_id, request) VALUES (?, ?)")
            .bind(&id)
            .bind(request)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        if let Some(idempotency) = &run.idempotency {
            sqlx::query(
                "INSERT INTO idempotency_keys (client, key, fingerprint, run_id) \
                 VALUES (?, ?, ?, ?)",
            )
            .bind(&run.client.0)
            .bind(&idempotency.key)
            .bind(&idempotency.fingerprint)
            .bind(&id)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        }
        self.commit(OPERATION, transaction).await?;
        Ok(Inserted::New)
    }

    async fn repeated(
        &self,
        client: &ClientKey,
        key: &IdempotencyKey,
    ) -> Result<Option<RunId>, StoreError> {
        let known: Option<String> = sqlx::query_scalar(
            "SELECT run_id FROM idempotency_keys WHERE client = ? AND key = ? AND fingerprint = ?",
        )
        .bind(&client.0)
        .bind(&key.key)
        .bind(&key.fingerprint)
        .fetch_optional(&self.readers)
        .await
        .map_err(|source| self.failed("look up a repeated request", source))?;
        known.as_deref().map(run_id).transpose()
    }

    async fn get(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        let row = sqlx::query(&format!("SELECT {COLUMNS} FROM runs WHERE id = ?"))
            .bind(id.to_string())
            .fetch_optional(&self.readers)
            .await
            .map_err(|source| self.failed("read a run", source))?;
        row.as_ref().map(record).transpose()
    }

    async fn get_complete(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        let row = sqlx::query(&format!(
            "SELECT {COLUMNS}, request FROM runs JOIN requests ON run_id = id WHERE id = ?"
        ))
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
        let mut query = QueryBuilder::new(format!("SELECT {COLUMNS} FROM runs WHERE true"));
        if let Some(status) = &filter.status {
            query.push(" AND status = ").push_bind(status);
        }
        if let Some(before) = filter.before {
            query.push(" AND sequence < ").push_bind(before);
        }
        query
            .push(" ORDER BY sequence DESC LIMIT ")
            .push_bind(filter.limit);
        let rows = query
            .build()
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
    ) -> Result<Option<Result<RunRecord, Refused>>, StoreError> {
        const OPERATION: &str = "change the state of a run";
        let failed = |source| self.failed(OPERATION, source);
        let mut transaction = self.begin(OPERATION).await?;
        let row = sqlx::query(&format!("SELECT {COLUMNS} FROM runs WHERE id = ?"))
            .bind(id.to_string())
            .fetch_optional(&mut *transaction)
            .await
            .map_err(failed)?;
        let Some(row) = row else { return Ok(None) };
        let before = record(&row)?;
        let state = match before.state.after(event) {
            Ok(state) => state,
            Err(refused) => return Ok(Some(Err(refused))),
        };
        let columns = StateColumns::of(&state)?;
        let changed = sqlx::query(
            "UPDATE runs SET status = ?, cancel_requested = ?, started_at = ?, ended_at = ?, \
             outcome = ? WHERE sequence = ? AND status = ? AND status IN ('QUEUED', 'RUNNING')",
        )
        .bind(columns.status)
        .bind(columns.cancel_requested)
        .bind(columns.started_at)
        .bind(columns.ended_at)
        .bind(columns.outcome)
        .bind(before.sequence)
        .bind(before.state.status())
        .execute(&mut *transaction)
        .await
        .map_err(failed)?;
        if changed.rows_affected() != 1 {
            return Err(failed(sqlx::Error::RowNotFound));
        }
        self.commit(OPERATION, transaction).await?;
        Ok(Some(Ok(RunRecord { state, ..before })))
    }

    async fn plan_execution(&self, execution: &OpenExecution) -> Result<(), StoreError> {
        const OPERATION: &str = "plan an execution";
        let mut transaction = self.begin(OPERATION).await?;
        self.require_running(OPERATION, &mut transaction, execution.run_id)
            .await?;
        sqlx::query("INSERT INTO executions (id, run_id, state) VALUES (?, ?, 'OPEN')")
            .bind(execution.id.as_str())
            .bind(execution.run_id.to_string())
            .execute(&mut *transaction)
            .await
            .map_err(|source| self.failed(OPERATION, source))?;
        self.commit(OPERATION, transaction).await
    }

    async fn add_episode(&self, episode: &Episode, code: &str) -> Result<(), StoreError> {
        const OPERATION: &str = "record an episode";
        let failed = |source| self.failed(OPERATION, source);
        let text = json(episode)?;
        let mut transaction = self.begin(OPERATION).await?;
        self.require_running(OPERATION, &mut transaction, episode.run_id)
            .await?;
        sqlx::query("INSERT INTO episodes (run_id, iteration, episode, code) VALUES (?, ?, ?, ?)")
            .bind(episode.run_id.to_string())
            .bind(episode.iteration)
            .bind(text)
            .bind(code)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        sqlx::query("UPDATE executions SET state = 'RECORDED' WHERE id = ? AND state = 'OPEN'")
            .bind(episode.execution.execution_id.as_str())
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
        self.commit(OPERATION, transaction).await
    }

    async fn episodes(&self, id: RunId) -> Result<Vec<Episode>, StoreError> {
        let texts: Vec<String> =
            sqlx::query_scalar("SELECT episode FROM episodes WHERE run_id = ? ORDER BY iteration")
                .bind(id.to_string())
                .fetch_all(&self.readers)
                .await
                .map_err(|source| self.failed("read episodes", source))?;
        texts.iter().map(|text| from_json(text)).collect()
    }

    async fn artifacts(&self, id: RunId) -> Result<Vec<Artifact>, StoreError> {
        let text: Option<String> = sqlx::query_scalar(
            "SELECT episode FROM episodes WHERE run_id = ? ORDER BY iteration DESC LIMIT 1",
        )
        .bind(id.to_string())
        .fetch_optional(&self.readers)
        .await
        .map_err(|source| self.failed("read artifacts", source))?;
        match text {
            Some(text) => Ok(from_json::<Episode>(&text)?.execution.artifacts),
            None => Ok(Vec::new()),
        }
    }

    async fn open_executions(&self) -> Result<Vec<OpenExecution>, StoreError> {
        let rows = sqlx::query("SELECT id, run_id FROM executions WHERE state = 'OPEN'")
            .fetch_all(&self.readers)
            .await
            .map_err(|source| self.failed("list open executions", source))?;
        rows.iter().map(rows::open_execution).collect()
    }

    async fn abandon_execution(&self, id: &ExecutionId) -> Result<(), StoreError> {
        const OPERATION: &str = "abandon an execution";
        let mut transaction = self.begin(OPERATION).await?;
        sqlx::query("UPDATE executions SET state = 'ABANDONED' WHERE id = ? AND state = 'OPEN'")
            .bind(id.as_str())
            .execute(&mut *transaction)
            .await
            .map_err(|source| self.failed(OPERATION, source))?;
        self.commit(OPERATION, transaction).await
    }

    async fn close(&self) {
        let closing = async {
            self.readers.close().await;
            // Leaves one file with everything in it. If it fails, the log is read at the next start.
            let emptied = sqlx::raw_sql("PRAGMA wal_checkpoint(TRUNCATE)")
                .execute(&self.writer)
                .await;
            if let Err(error) = emptied {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "The log of the store could not be emptied"
                );
            }
            self.writer.close().await;
        };
        if self.writer.is_closed() {
            return;
        }
        if tokio::time::timeout(CLOSE_LIMIT, closing).await.is_err() {
            // The lock stays: a statement may still be under way.
            tracing::error!("The store could not be closed in time");
            return;
        }
        match self.lock.lock() {
            Ok(mut lock) => drop(lock.take()),
            Err(poisoned) => drop(poisoned.into_inner().take()),
        }
    }
}
