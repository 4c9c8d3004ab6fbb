//! The operations of the writer: what each change of a run does to the tables.
//!
//! Texts are made before an operation waits for its turn, so that the writer only writes.

use rusqlite::params;

use super::access::Access;
use super::batch::Batch;
use super::receipts;
use super::rows::{self, StateColumns, column, json, record};
use super::statements;
use super::writer::Operation;
use crate::ids::{ExecutionId, RunId};
use crate::receipt::{Draft, Notary};
use crate::runs::record::{RecordedEpisode, RunRecord};
use crate::runs::state::{Event, Refused};
use crate::runs::store::{
    Alongside, Fault, IdempotencyKey, Inserted, NewRun, OpenExecution, StoreError,
};

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

impl Operation for Insert {
    const NAME: &'static str = "accept a run";
    type Answer = Inserted;

    fn execute(self, batch: &mut Batch<'_>) -> Result<Inserted, StoreError> {
        let access = batch.access(Self::NAME);
        if let Some(idempotency) = &self.idempotency {
            let by = params![self.client, idempotency.key];
            match access.first(statements::KEY, by, rows::key)? {
                Some((fingerprint, first)) if fingerprint == idempotency.fingerprint => {
                    return Ok(Inserted::Repeated(first));
                }
                Some(_) => return Ok(Inserted::KeyReused),
                None => {}
            }
        }
        if batch.unfinished >= i64::from(self.max_unfinished) {
            return Ok(Inserted::QueueFull);
        }
        batch.require_space()?;
        let run = params![self.id, self.client, self.outline, self.accepted_at];
        access.execute(statements::INSERT_RUN, run)?;
        let sequence = access.last_inserted();
        access.execute(statements::INSERT_REQUEST, params![sequence, self.request])?;
        if let Some(IdempotencyKey { key, fingerprint }) = &self.idempotency {
            let key = params![self.client, key, fingerprint, self.id];
            access.execute(statements::INSERT_KEY, key)?;
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
    pub(super) fn new(
        id: RunId,
        event: Event,
        alongside: &Alongside,
        notary: &Notary,
    ) -> Result<Self, StoreError> {
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
                apply.episode = Some(AddEpisode::new(last, notary)?);
            }
        }
        Ok(apply)
    }
}

impl Operation for Apply {
    const NAME: &'static str = "change the state of a run";
    type Answer = Option<Result<RunRecord, Refused>>;

    fn execute(self, batch: &mut Batch<'_>) -> Result<Self::Answer, StoreError> {
        let access = batch.access(Self::NAME);
        let by = params![self.id.to_string()];
        let Some(before) = access.first(&statements::run(), by, record)? else {
            return Ok(None);
        };
        let state = match before.state.after(self.event) {
            Ok(state) => state,
            Err(refused) => return Ok(Some(Err(refused))),
        };
        let columns = StateColumns::of(&state)?;
        let change = params![
            columns.status,
            columns.cancel_requested,
            columns.started_at,
            columns.ended_at,
            columns.outcome,
            before.sequence,
            before.state.status(),
        ];
        if access.execute(statements::UPDATE_STATE, change)? != 1 {
            return Err(access.failed(Fault::Gone));
        }
        if let Some(execution) = &self.execution {
            insert_execution(access, execution)?;
        }
        if let Some(episode) = &self.episode {
            episode.insert(batch)?;
        }
        if state.outcome().is_some() {
            batch.unfinished -= 1;
        }
        Ok(Some(Ok(RunRecord { state, ..before })))
    }
}

/// Writes down that an execution is about to be created.
pub(super) struct PlanExecution(pub(super) OpenExecution);

impl Operation for PlanExecution {
    const NAME: &'static str = "plan an execution";
    type Answer = ();

    fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        let access = batch.access(Self::NAME);
        require_running(access, self.0.run_id)?;
        insert_execution(access, &self.0)
    }
}

/// Keeps an episode and closes its execution with a receipt.
pub(super) struct AddEpisode {
    run: RunId,
    iteration: u32,
    text: String,
    code: String,
    execution: ExecutionId,
    receipt: Draft,
}

impl AddEpisode {
    pub(super) fn new(recorded: &RecordedEpisode, notary: &Notary) -> Result<Self, StoreError> {
        let RecordedEpisode { episode, code, .. } = recorded;
        Ok(Self {
            run: episode.run_id,
            iteration: episode.iteration,
            text: json(episode)?,
            code: code.clone(),
            execution: episode.execution.execution_id.clone(),
            receipt: receipts::draft(recorded, notary)?,
        })
    }

    fn insert(&self, batch: &Batch<'_>) -> Result<(), StoreError> {
        let access = batch.access(Self::NAME);
        let run = self.run.to_string();
        let episode = params![run, self.iteration, self.text, self.code];
        access.execute(statements::INSERT_EPISODE, episode)?;
        let execution = params![self.execution.as_str()];
        access.execute(statements::RECORD_EXECUTION, execution)?;
        receipts::append(batch, access, &self.receipt)
    }
}

impl Operation for AddEpisode {
    const NAME: &'static str = "record an episode";
    type Answer = ();

    fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        require_running(batch.access(Self::NAME), self.run)?;
        self.insert(batch)
    }
}

/// Closes an open execution that will never be recorded, with a receipt that says so.
pub(super) struct AbandonExecution(pub(super) ExecutionId);

impl Operation for AbandonExecution {
    const NAME: &'static str = "abandon an execution";
    type Answer = ();

    fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        let access = batch.access(Self::NAME);
        let by = params![self.0.as_str()];
        let run = access.first(statements::OPEN_EXECUTION, by, |row| {
            rows::run_id(&column::<String>(row, "run_id")?)
        })?;
        let Some(run) = run else {
            return Ok(());
        };
        let lost = receipts::lost(run, &self.0, batch.notary())?;
        access.execute(statements::ABANDON_EXECUTION, params![self.0.as_str()])?;
        receipts::append(batch, access, &lost)
    }
}

fn insert_execution(access: Access<'_>, execution: &OpenExecution) -> Result<(), StoreError> {
    let row = params![execution.id.as_str(), execution.run_id.to_string()];
    access.execute(statements::INSERT_EXECUTION, row).map(drop)
}

fn require_running(access: Access<'_>, run: RunId) -> Result<(), StoreError> {
    let by = params![run.to_string()];
    let status = access.first(statements::STATUS, by, |row| {
        column::<String>(row, "status")
    })?;
    match status.as_deref() {
        Some("RUNNING") => Ok(()),
        Some(_) | None => Err(StoreError::NotRunning(run)),
    }
}
