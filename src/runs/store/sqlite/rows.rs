//! Rows to records and back. A row that makes no sense is an error, never a guess.

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::FromSql;
use serde::de::Error as _;
use serde_json::Error;

use crate::ids::{ClientKey, ExecutionId, RunId, TenantId};
use crate::runs::record::{Episode, Judgement, RunOutcome, RunRecord};
use crate::runs::request::RunRequest;
use crate::runs::state::RunState;
use crate::runs::store::{OpenExecution, StoreError};

/// The columns that [`record`] reads.
pub(super) const COLUMNS: &str = "sequence, id, tenant, client, outline, status, cancel_requested, \
     accepted_at, started_at, ended_at, outcome";

/// The changeable columns of a run's state.
pub(super) struct StateColumns {
    pub(super) status: &'static str,
    pub(super) cancel_requested: bool,
    pub(super) started_at: Option<i64>,
    pub(super) ended_at: Option<i64>,
    pub(super) outcome: Option<String>,
}

impl StateColumns {
    pub(super) fn of(state: &RunState) -> Result<Self, StoreError> {
        let empty = Self {
            status: state.status(),
            cancel_requested: false,
            started_at: None,
            ended_at: None,
            outcome: None,
        };
        Ok(match state {
            RunState::Queued => empty,
            RunState::Running {
                started_at,
                cancel_requested,
            } => Self {
                started_at: Some(started_at.as_microsecond()),
                cancel_requested: *cancel_requested,
                ..empty
            },
            RunState::Ended {
                started_at,
                ended_at,
                outcome,
            } => Self {
                started_at: started_at.map(Timestamp::as_microsecond),
                ended_at: Some(ended_at.as_microsecond()),
                outcome: Some(json(outcome)?),
                ..empty
            },
        })
    }
}

/// The outline of a request: everything but the texts of programs and the bytes of files.
pub(super) fn outline(request: &RunRequest) -> RunRequest {
    let RunRequest {
        dataset_path,
        dataset,
        user_instruction,
        code,
        input_files,
        expected_output_files,
        bash_script,
        llm_mode,
        max_iterations,
        disable_judge,
        image,
        runtime,
        preload,
        retries,
        limits,
    } = request;
    RunRequest {
        dataset_path: dataset_path.clone(),
        dataset: dataset.clone(),
        user_instruction: user_instruction.clone(),
        code: code.as_ref().map(|_| String::new()),
        input_files: input_files
            .keys()
            .map(|name| (name.clone(), Vec::new()))
            .collect(),
        expected_output_files: expected_output_files.clone(),
        bash_script: bash_script.as_ref().map(|_| String::new()),
        llm_mode: *llm_mode,
        max_iterations: *max_iterations,
        disable_judge: *disable_judge,
        image: image.clone(),
        runtime: runtime.clone(),
        preload: *preload,
        retries: *retries,
        limits: limits.clone(),
    }
}

/// Reads a row with [`COLUMNS`].
pub(super) fn record(row: &Row<'_>) -> Result<RunRecord, StoreError> {
    let id: String = column(row, "id")?;
    Ok(RunRecord {
        id: run_id(&id)?,
        sequence: column(row, "sequence")?,
        tenant: tenant(row)?,
        client: ClientKey(column(row, "client")?),
        request: json_column(row, "outline")?,
        state: state(row)?,
        accepted_at: timestamp(column(row, "accepted_at")?)?,
    })
}

/// Reads the column `tenant`.
pub(super) fn tenant(row: &Row<'_>) -> Result<TenantId, StoreError> {
    let name: String = column(row, "tenant")?;
    TenantId::parse(&name).ok_or_else(|| senseless("not the name of a tenant"))
}

/// Reads a row with the column `number`.
pub(super) fn number(row: &Row<'_>) -> Result<i64, StoreError> {
    column(row, "number")
}

fn state(row: &Row<'_>) -> Result<RunState, StoreError> {
    let status: String = column(row, "status")?;
    let started_at: Option<i64> = column(row, "started_at")?;
    let started_at = started_at.map(timestamp).transpose()?;
    Ok(match status.as_str() {
        "QUEUED" => RunState::Queued,
        "RUNNING" => RunState::Running {
            started_at: started_at.ok_or_else(|| senseless("RUNNING without a start"))?,
            cancel_requested: column(row, "cancel_requested")?,
        },
        _ => {
            let outcome: Box<RunOutcome> = json_column(row, "outcome")?;
            let state = RunState::Ended {
                started_at,
                ended_at: timestamp(column(row, "ended_at")?)?,
                outcome,
            };
            if state.status() != status {
                return Err(senseless("status and outcome differ"));
            }
            state
        }
    })
}

/// Reads a row of an open execution, in this life of the host.
pub(super) fn open_execution(row: &Row<'_>, boot: &str) -> Result<OpenExecution, StoreError> {
    let id: String = column(row, "id")?;
    let run: String = column(row, "run_id")?;
    Ok(OpenExecution {
        id: execution_id(&id)?,
        run_id: run_id(&run)?,
        attempt: column(row, "attempt")?,
        program: optional_json(row, "program")?,
        host_restarted: boot.is_empty() || column::<String>(row, "boot")? != boot,
    })
}

/// Reads a row of [`KEY`](super::statements::KEY): the fingerprint and the run.
pub(super) fn key(row: &Row<'_>) -> Result<(String, RunId), StoreError> {
    let run: String = column(row, "run_id")?;
    Ok((column(row, "fingerprint")?, run_id(&run)?))
}

/// Reads a row with the column `episode`.
pub(super) fn episode(row: &Row<'_>) -> Result<Episode, StoreError> {
    json_column(row, "episode")
}

/// Reads a row of [`JUDGEMENTS`](super::statements::JUDGEMENTS).
pub(super) fn judgement(row: &Row<'_>) -> Result<Judgement, StoreError> {
    let run: String = column(row, "run_id")?;
    Ok(Judgement {
        run_id: run_id(&run)?,
        iteration: column(row, "iteration")?,
        decision: column(row, "decision")?,
        reason: column(row, "reason")?,
    })
}

pub(super) fn column<T: FromSql>(row: &Row<'_>, name: &'static str) -> Result<T, StoreError> {
    row.get(name)
        .map_err(|error| StoreError::Unreadable(Error::custom(error)))
}

/// A column of JSON, read where it lies: it can be megabytes.
pub(super) fn json_column<T>(row: &Row<'_>, name: &'static str) -> Result<T, StoreError>
where
    T: serde::de::DeserializeOwned,
{
    let unreadable = |error| StoreError::Unreadable(Error::custom(error));
    let value = row.get_ref(name).map_err(unreadable)?;
    let text = value
        .as_str()
        .map_err(|error| StoreError::Unreadable(Error::custom(error)))?;
    serde_json::from_str(text).map_err(StoreError::Unreadable)
}

/// A column of JSON that may be empty.
fn optional_json<T>(row: &Row<'_>, name: &'static str) -> Result<Option<T>, StoreError>
where
    T: serde::de::DeserializeOwned,
{
    let text: Option<String> = column(row, name)?;
    text.map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(StoreError::Unreadable)
}

pub(super) fn run_id(text: &str) -> Result<RunId, StoreError> {
    RunId::parse(text).ok_or_else(|| senseless("not the id of a run"))
}

pub(super) fn execution_id(text: &str) -> Result<ExecutionId, StoreError> {
    ExecutionId::parse(text).ok_or_else(|| senseless("not the id of an execution"))
}

fn timestamp(microseconds: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_microsecond(microseconds)
        .map_err(|error| StoreError::Unreadable(Error::custom(error)))
}

pub(super) fn json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(StoreError::Unreadable)
}

fn senseless(why: &'static str) -> StoreError {
    StoreError::Unreadable(Error::custom(why))
}
