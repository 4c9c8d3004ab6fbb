//! The operations of the writer: what each change of a run does to the tables.
//!
//! Texts are made before an operation waits for its turn, so that the writer only writes.

use std::time::Duration;

use rusqlite::{ToSql, params};

use super::access::Access;
use super::batch::Batch;
use super::receipts;
use super::rows::{self, StateColumns, column, json, record};
use super::statements;
use super::writer::Operation;
use crate::ids::{ExecutionId, RunId};
use crate::receipt::{Draft, Notary};
use crate::runs::record::{Episode, RecordedEpisode, RunRecord};
use crate::runs::state::{Event, Refused};
use crate::runs::store::{
    Alongside, Fault, IdempotencyKey, Inserted, NewRun, OpenExecution, StoreError,
};
use crate::runs::tenants::{Quota, Quotas};

/// Seconds of a day without leap seconds, as UTC has them here.
const DAY_SECONDS: i64 = 86_400;

/// Keeps a new run.
pub(super) struct Insert {
    tenant: String,
    quotas: Quotas,
    id: String,
    client: String,
    outline: String,
    request: String,
    accepted_at: i64,
    reserved_cpu: i64,
    idempotency: Option<IdempotencyKey>,
    max_unfinished: u32,
}

impl Insert {
    pub(super) fn new(run: &NewRun, max_unfinished: u32) -> Result<Self, StoreError> {
        Ok(Self {
            tenant: run.tenant.to_string(),
            quotas: run.quotas,
            id: run.id.to_string(),
            client: run.client.0.clone(),
            outline: json(&rows::outline(&run.request))?,
            request: json(&run.request)?,
            accepted_at: run.accepted_at.as_microsecond(),
            reserved_cpu: run.reserved_cpu_microseconds,
            idempotency: run.idempotency.clone(),
            max_unfinished,
        })
    }

    /// The first quota that leaves no room for the run. CPU time counts as used from acceptance, as
    /// far as the run can use it at all, and as it was from the end: runs side by side cannot go
    /// further over the quota than one alone.
    fn used_up(&self, access: Access<'_>) -> Result<Option<Quota>, StoreError> {
        let Quotas {
            max_unfinished,
            cpu_microseconds_per_day,
            stored_bytes,
        } = self.quotas;
        let number = |statement: &'static str, by: &[&dyn ToSql]| {
            let number = access.first(statement, by, rows::number)?;
            Ok::<i64, StoreError>(number.unwrap_or(0))
        };
        if let Some(most) = max_unfinished
            && number(statements::COUNT_UNFINISHED_OF_TENANT, params![self.tenant])?
                >= i64::from(most)
        {
            return Ok(Some(Quota::Waiting));
        }
        if let Some(most) = cpu_microseconds_per_day {
            let used = number(statements::CPU_OF_DAY, params![self.tenant, self.day()])?;
            if used >= most {
                return Ok(Some(Quota::CpuTime));
            }
            let reserved = number(statements::CPU_RESERVED, params![self.tenant])?;
            if used.saturating_add(reserved) >= most {
                return Ok(Some(Quota::CpuReserved));
            }
        }
        if let Some(most) = stored_bytes
            && number(statements::STORED, params![self.tenant])? >= most
        {
            return Ok(Some(Quota::Storage));
        }
        Ok(None)
    }

    fn day(&self) -> i64 {
        day(self.accepted_at.div_euclid(1_000_000))
    }
}

/// The number of the day (UTC) of a time in seconds since 1970.
pub(super) fn day(seconds: i64) -> i64 {
    seconds.div_euclid(DAY_SECONDS)
}

impl Operation for Insert {
    const NAME: &'static str = "accept a run";
    type Answer = Inserted;

    fn execute(self, batch: &mut Batch<'_>) -> Result<Inserted, StoreError> {
        let access = batch.access(Self::NAME);
        if let Some(idempotency) = &self.idempotency {
            let by = params![self.tenant, idempotency.scope.0, idempotency.key];
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
        if let Some(quota) = self.used_up(access)? {
            return Ok(Inserted::OverQuota(quota));
        }
        batch.require_space()?;
        let bytes = length(&self.outline).saturating_add(length(&self.request));
        let run = params![
            self.tenant,
            self.id,
            self.client,
            self.outline,
            self.accepted_at,
            self.reserved_cpu,
            bytes
        ];
        access.execute(statements::INSERT_RUN, run)?;
        let sequence = access.last_inserted();
        access.execute(statements::INSERT_REQUEST, params![sequence, self.request])?;
        access.execute(
            statements::ADD_STORED,
            params![self.tenant, self.day(), bytes],
        )?;
        if let Some(IdempotencyKey {
            scope,
            key,
            fingerprint,
        }) = &self.idempotency
        {
            let key = params![self.tenant, scope.0, key, fingerprint, self.id];
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
                apply.execution = Some(OpenExecution::first(execution.clone(), id));
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
        let kept_since = state.outcome().map(|_| batch.clock().now());
        let kept_bytes = self.episode.as_ref().map_or(0, |last| last.usage.bytes);
        let change = params![
            columns.status,
            columns.cancel_requested,
            columns.started_at,
            columns.ended_at,
            columns.outcome,
            kept_since,
            kept_bytes,
            before.sequence,
            before.state.status(),
        ];
        if access.execute(statements::UPDATE_STATE, change)? != 1 {
            return Err(access.failed(Fault::Gone));
        }
        if let Some(execution) = &self.execution {
            insert_execution(batch, execution)?;
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
        require_running(batch.access(Self::NAME), self.0.run_id)?;
        insert_execution(batch, &self.0)
    }
}

/// Keeps an episode and closes its execution with a receipt.
pub(super) struct AddEpisode {
    run: RunId,
    iteration: u32,
    text: String,
    code: String,
    execution: ExecutionId,
    usage: Usage,
    receipt: Draft,
}

impl AddEpisode {
    pub(super) fn new(recorded: &RecordedEpisode, notary: &Notary) -> Result<Self, StoreError> {
        let RecordedEpisode { episode, code, .. } = recorded;
        let text = json(episode)?;
        let mut usage = Usage::of(episode);
        usage.bytes = usage.bytes.saturating_add(length(&text));
        usage.bytes = usage.bytes.saturating_add(length(code));
        Ok(Self {
            run: episode.run_id,
            iteration: episode.iteration,
            text,
            code: code.clone(),
            execution: episode.execution.execution_id.clone(),
            usage,
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
        let Usage {
            day,
            cpu,
            wall,
            bytes,
        } = self.usage;
        let usage = params![day, cpu, wall, bytes, run];
        access.execute(statements::ADD_USAGE, usage)?;
        receipts::append(batch, access, &self.receipt)
    }
}

/// What an execution is charged with.
#[derive(Clone, Copy)]
struct Usage {
    /// The day on which it ended.
    day: i64,
    /// CPU time in microseconds, as the supervisor reported it. Without a report a program is
    /// charged with all that it could have used in its time: otherwise one would use CPU time for
    /// nothing by seeing to it that there is none.
    cpu: Option<i64>,
    /// Wall clock in microseconds.
    wall: i64,
    /// What is kept of it.
    bytes: i64,
}

impl Usage {
    fn of(episode: &Episode) -> Self {
        let execution = &episode.execution;
        let reported = execution.usage.as_ref().map(|usage| usage.cpu_seconds);
        let sizes = execution.artifacts.iter().map(|artifact| artifact.size);
        let bytes = sizes.fold(0, u64::saturating_add);
        Self {
            day: day(execution.finished_at.as_second()),
            cpu: match (reported, execution.started_at) {
                (Some(seconds), _) => Some(microseconds(seconds)),
                (None, Some(_)) => None,
                (None, None) => Some(0),
            },
            wall: microseconds(execution.duration_seconds),
            bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        }
    }
}

/// What is no number of seconds is none.
fn microseconds(seconds: f64) -> i64 {
    let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

impl Operation for AddEpisode {
    const NAME: &'static str = "record an episode";
    type Answer = ();

    fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        let access = batch.access(Self::NAME);
        require_running(access, self.run)?;
        let kept = params![self.usage.bytes, self.run.to_string()];
        access.execute(statements::ADD_KEPT, kept)?;
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

/// Counts a daemon that goes on with a run.
pub(super) struct CountTakeover(pub(super) RunId);

impl Operation for CountTakeover {
    const NAME: &'static str = "count a takeover";
    type Answer = u32;

    fn execute(self, batch: &mut Batch<'_>) -> Result<u32, StoreError> {
        let access = batch.access(Self::NAME);
        let by = params![self.0.to_string()];
        access.execute(statements::COUNT_TAKEOVER, by)?;
        let count = access.first(statements::TAKEOVERS, by, rows::number)?;
        Ok(u32::try_from(count.unwrap_or(0)).unwrap_or(u32::MAX))
    }
}

fn insert_execution(batch: &Batch<'_>, execution: &OpenExecution) -> Result<(), StoreError> {
    let program = execution.program.as_deref().map(json).transpose()?;
    let row = params![
        execution.id.as_str(),
        execution.run_id.to_string(),
        execution.attempt,
        batch.boot(),
        program
    ];
    let access = batch.access(PlanExecution::NAME);
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
