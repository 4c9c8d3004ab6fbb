//! The operations of the writer: what each change of a run does to the tables.
//!
//! Texts are made before an operation waits for its turn, so that the writer only writes.

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;

use super::batch::Batch;
use super::rows::{self, StateColumns, column, json, record, run_id};
use super::statements;
use super::writer::Operation;
use crate::ids::{ExecutionId, RunId};
use crate::runs::record::{Episode, RunRecord};
use crate::runs::state::{Event, Refused};
use crate::runs::store::{Alongside, IdempotencyKey, Inserted, NewRun, OpenExecution, StoreError};

/// Keeps a new run.
pub(super) struct Insert {
    id: String,
    client: String,
    outline: String,
    request: String,
    accepted_at: i64,
    idempotency: Option<IdempotencyKey>,
    max_unfinished: u32,
}

impl Insert {
    pub(super) fn new(run: &NewRun, max_unfinished: u32) -> Result<Self, StoreError> {
        Ok(Self {
            id: run.id.to_string(),
            client: run.client.0.clone(),
            outline: json(&rows::outline(&run.request))?,
            request: json(&run.request)?,
            accepted_at: run.accepted_at.as_microsecond(),
            idempotency: run.idempotency.clone(),
            max_unfinished,
        })
    }
}

#[async_trait]
impl Operation for Insert {
    const NAME: &'static str = "accept a run";
    type Answer = Inserted;

    async fn execute(self, batch: &mut Batch<'_>) -> Result<Inserted, StoreError> {
        if let Some(idempotency) = &self.idempotency {
            let known: Option<(String, String)> = sqlx::query_as(statements::KEY)
                .bind(&self.client)
                .bind(&idempotency.key)
                .fetch_optional(&mut *batch.connection)
                .await
                .map_err(|source| batch.failed(Self::NAME, source))?;
            match known {
                Some((fingerprint, first)) if fingerprint == idempotency.fingerprint => {
                    return Ok(Inserted::Repeated(run_id(&first)?));
                }
                Some(_) => return Ok(Inserted::KeyReused),
                None => {}
            }
        }
        if batch.unfinished >= i64::from(self.max_unfinished) {
            return Ok(Inserted::QueueFull);
        }
        batch.require_space()?;
        let inserted = sqlx::query(statements::INSERT_RUN)
            .bind(&self.id)
            .bind(&self.client)
            .bind(self.outline)
            .bind(self.accepted_at)
            .bind(self.request)
            .execute(&mut *batch.connection)
            .await
            .map_err(|source| batch.failed(Self::NAME, source))?;
        let sequence = inserted.last_insert_rowid();
        if let Some(idempotency) = self.idempotency {
            sqlx::query(statements::INSERT_KEY)
                .bind(self.client)
                .bind(idempotency.key)
                .bind(idempotency.fingerprint)
                .bind(self.id)
                .execute(&mut *batch.connection)
                .await
                .map_err(|source| batch.failed(Self::NAME, source))?;
        }
        batch.unfinished += 1;
        Ok(Inserted::New { sequence })
    }
}

/// Changes the state of a run, and writes down what belongs to that change.
pub(super) struct Apply {
    id: RunId,
    event: Event,
    execution: Option<OpenExecution>,
    episode: Option<AddEpisode>,
}

impl Apply {
    pub(super) fn new(id: RunId, event: Event, alongside: &Alongside) -> Result<Self, StoreError> {
        let mut apply = Self {
            id,
            event,
            execution: None,
            episode: None,
        };
        match alongside {
            Alongside::Nothing => {}
            Alongside::Execution(execution) => {
                apply.execution = Some(OpenExecution {
                    id: execution.clone(),
                    run_id: id,
                });
            }
            Alongside::Episode(last) => {
                apply.episode = Some(AddEpisode::new(&last.episode, &last.code)?);
            }
        }
        Ok(apply)
    }
}

#[async_trait]
impl Operation for Apply {
    const NAME: &'static str = "change the state of a run";
    type Answer = Option<Result<RunRecord, Refused>>;

    async fn execute(self, batch: &mut Batch<'_>) -> Result<Self::Answer, StoreError> {
        let row: Option<SqliteRow> = sqlx::query(&statements::run())
            .bind(self.id.to_string())
            .fetch_optional(&mut *batch.connection)
            .await
            .map_err(|source| batch.failed(Self::NAME, source))?;
        let Some(row) = row else { return Ok(None) };
        let before = record(&row)?;
        let state = match before.state.after(self.event) {
            Ok(state) => state,
            Err(refused) => return Ok(Some(Err(refused))),
        };
        let columns = StateColumns::of(&state)?;
        let changed = sqlx::query(statements::UPDATE_STATE)
            .bind(columns.status)
            .bind(columns.cancel_requested)
            .bind(columns.started_at)
            .bind(columns.ended_at)
            .bind(columns.outcome)
            .bind(before.sequence)
            .bind(before.state.status())
            .execute(&mut *batch.connection)
            .await
            .map_err(|source| batch.failed(Self::NAME, source))?;
        if changed.rows_affected() != 1 {
            return Err(batch.failed(Self::NAME, sqlx::Error::RowNotFound));
        }
        if let Some(execution) = &self.execution {
            insert_execution(batch, Self::NAME, execution).await?;
        }
        if let Some(episode) = self.episode {
            episode.insert(batch).await?;
        }
        if state.outcome().is_some() {
            batch.unfinished -= 1;
        }
        Ok(Some(Ok(RunRecord { state, ..before })))
    }
}

/// Writes down that an execution is about to be created.
pub(super) struct PlanExecution(pub(super) OpenExecution);

#[async_trait]
impl Operation for PlanExecution {
    const NAME: &'static str = "plan an execution";
    type Answer = ();

    async fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        require_running(batch, Self::NAME, self.0.run_id).await?;
        insert_execution(batch, Self::NAME, &self.0).await
    }
}

/// Keeps an episode and closes its execution.
pub(super) struct AddEpisode {
    run: RunId,
    iteration: u32,
    text: String,
    code: String,
    execution: ExecutionId,
}

impl AddEpisode {
    pub(super) fn new(episode: &Episode, code: &str) -> Result<Self, StoreError> {
        Ok(Self {
            run: episode.run_id,
            iteration: episode.iteration,
            text: json(episode)?,
            code: code.to_owned(),
            execution: episode.execution.execution_id.clone(),
        })
    }

    async fn insert(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        sqlx::query(statements::INSERT_EPISODE)
            .bind(self.run.to_string())
            .bind(self.iteration)
            .bind(self.text)
            .bind(self.code)
            .bind(self.execution.as_str())
            .execute(&mut *batch.connection)
            .await
            .map(drop)
            .map_err(|source| batch.failed(Self::NAME, source))
    }
}

#[async_trait]
impl Operation for AddEpisode {
    const NAME: &'static str = "record an episode";
    type Answer = ();

    async fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        require_running(batch, Self::NAME, self.run).await?;
        self.insert(batch).await
    }
}

/// Closes an open execution that will never be recorded.
pub(super) struct AbandonExecution(pub(super) ExecutionId);

#[async_trait]
impl Operation for AbandonExecution {
    const NAME: &'static str = "abandon an execution";
    type Answer = ();

    async fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        sqlx::query(statements::ABANDON_EXECUTION)
            .bind(self.0.as_str())
            .execute(&mut *batch.connection)
            .await
            .map(drop)
            .map_err(|source| batch.failed(Self::NAME, source))
    }
}

async fn insert_execution(
    batch: &mut Batch<'_>,
    operation: &'static str,
    execution: &OpenExecution,
) -> Result<(), StoreError> {
    sqlx::query(statements::INSERT_EXECUTION)
        .bind(execution.id.as_str())
        .bind(execution.run_id.to_string())
        .execute(&mut *batch.connection)
        .await
        .map(drop)
        .map_err(|source| batch.failed(operation, source))
}

async fn require_running(
    batch: &mut Batch<'_>,
    operation: &'static str,
    run: RunId,
) -> Result<(), StoreError> {
    let row: Option<SqliteRow> = sqlx::query(statements::STATUS)
        .bind(run.to_string())
        .fetch_optional(&mut *batch.connection)
        .await
        .map_err(|source| batch.failed(operation, source))?;
    let status: Option<String> = row.as_ref().map(|row| column(row, "status")).transpose()?;
    match status.as_deref() {
        Some("RUNNING") => Ok(()),
        Some(_) | None => Err(StoreError::NotRunning(run)),
    }
}
