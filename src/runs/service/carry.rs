//! Carrying one run out: its bound, its end and the record of it.

use std::any::Any;
use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::dispatch::Turn;
use super::inner::{Active, Inner, Stop, now};
use super::{CarriedOut, Journal, Origin, RunContext, SoFar};
use crate::execution::cause::format_seconds;
use crate::fault_point::FaultPoint;
use crate::ids::{ExecutionId, RunId};
use crate::runs::record::{Ending, Episode, PlannedProgram, RecordedEpisode, RunOutcome};
use crate::runs::state::Event;
use crate::runs::store::{Alongside, OpenExecution, Store, StoreError};

/// What is to be carried out.
pub(super) struct Work {
    pub(super) id: RunId,
    pub(super) origin: Origin,
    pub(super) takeovers: u32,
    /// Wall clock that the run has left.
    pub(super) limit: Duration,
    pub(super) active: Active,
}

/// Has a started run carried out and records its end. Holds its turn all the while.
pub(super) async fn carry_out(inner: Arc<Inner>, work: Work, turn: Turn) {
    FaultPoint::AfterStart.reached();
    let (id, execution) = (work.id, work.origin.execution().cloned());
    let leave = inner.leaving.child_token();
    let concluded = leave.run_until_cancelled(conclude(&inner, &work, &leave));
    match concluded.await {
        Some(carried_out) => {
            let last = carried_out.last_episode.as_ref();
            let last = last.map(|last| last.episode.execution.execution_id.clone());
            if finish(&inner, id, carried_out).await == Finished::Recorded
                && let Some(last) = last.or(execution)
            {
                inner.orchestrator.recorded(&last).await;
            }
        }
        None => tracing::info!(run.id = %id, "A run is left to the next start"),
    }
    inner.active().remove(&id);
    inner.finished(&turn.tenant);
    drop(turn);
}

async fn conclude(inner: &Inner, work: &Work, leave: &CancellationToken) -> CarriedOut {
    let Work {
        id,
        origin,
        takeovers,
        limit,
        active,
    } = work;
    let (id, limit) = (*id, *limit);
    let run = match inner.store.get_complete(id).await {
        Ok(Some(run)) => run,
        Ok(None) => {
            give_up(inner, origin);
            return broken(inner, id, "its record is gone").await;
        }
        Err(error) => {
            give_up(inner, origin);
            log_error(id, &error, "The record of a run could not be read");
            return broken(inner, id, "its record could not be read").await;
        }
    };
    let context = RunContext {
        origin: origin.clone(),
        takeovers: *takeovers,
        gate: inner.gate.clone(),
        cancel: active.cancel.clone(),
        closing: inner.closing.clone(),
        leave: leave.clone(),
        journal: Arc::new(StoreJournal(Arc::clone(&inner.store))),
        observer: inner.hub.open(id),
    };
    let work = AssertUnwindSafe(inner.orchestrator.carry_out(&run, &context)).catch_unwind();
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        ended = &mut work => return ended_by_itself(inner, id, active, ended).await,
        () = active.cancel.cancelled() => {}
        () = tokio::time::sleep(limit) => {
            tracing::warn!(run.id = %id, "A run is ended because it took too long");
            active.stop(Stop::Timeout);
        }
    }
    match tokio::time::timeout(inner.timing.grace, work).await {
        Ok(ended) => ended_by_itself(inner, id, active, ended).await,
        Err(_elapsed) => {
            tracing::error!(run.id = %id, "A run did not end in time; it is given up");
            let (ending, why) = match active.why() {
                Some(Stop::Client) | None => (Ending::Cancelled, "Cancelled.".to_owned()),
                Some(Stop::Timeout) => (Ending::Fail, timed_out(inner)),
            };
            RunOutcome::cut_short(ending, why, &episodes(inner, id).await).into()
        }
    }
}

fn give_up(inner: &Inner, origin: &Origin) {
    if let Some(execution) = origin.execution() {
        inner.orchestrator.give_up(execution);
    }
}

/// What the orchestrator says stands, except that only a client's wish makes a run `CANCELLED`.
async fn ended_by_itself(
    inner: &Inner,
    id: RunId,
    active: &Active,
    ended: Result<CarriedOut, Box<dyn Any + Send>>,
) -> CarriedOut {
    let CarriedOut {
        outcome,
        last_episode,
    } = match ended {
        Ok(carried_out) => carried_out,
        Err(panic) => {
            let message = panic_message(panic.as_ref());
            tracing::error!(run.id = %id, panic.message = message, "Carrying a run out panicked");
            return broken(inner, id, "a fault in the daemon, see its log").await;
        }
    };
    let why = match active.why() {
        Some(Stop::Timeout) => Some(timed_out(inner)),
        Some(Stop::Client) | None => None,
    };
    let outcome = match why {
        Some(_) if outcome.ending == Ending::Cancelled => RunOutcome {
            ending: Ending::Fail,
            final_error: why,
            ..outcome
        },
        Some(_) | None => outcome,
    };
    CarriedOut {
        outcome,
        last_episode,
    }
}

/// A run that the daemon failed to carry out.
async fn broken(inner: &Inner, id: RunId, reason: &'static str) -> CarriedOut {
    let why = format!("Infrastructure: the run could not be carried out: {reason}.");
    RunOutcome::cut_short(Ending::Fail, why, &episodes(inner, id).await).into()
}

fn timed_out(inner: &Inner) -> String {
    let seconds = format_seconds(inner.settings.run_timeout.as_secs_f64());
    format!("Run timed out after {seconds} seconds.")
}

/// What is recorded of a run. If it cannot be read its end is worth recording all the same.
async fn episodes(inner: &Inner, id: RunId) -> Vec<Episode> {
    inner.store.episodes(id).await.unwrap_or_else(|error| {
        log_error(id, &error, "The episodes of a run could not be read");
        Vec::new()
    })
}

/// Records the end of a run, and with it its last episode. Tried until the store is well again: the
/// run keeps its place meanwhile. Once the daemon leaves it is tried a last time; the run stays `RUNNING`
/// if that fails, too, and the next start takes it over.
async fn finish(inner: &Inner, id: RunId, carried_out: CarriedOut) -> Finished {
    let outcome = Box::new(carried_out.outcome);
    let last = carried_out.last_episode;
    let last = last.map_or(Alongside::Nothing, Alongside::Episode);
    let mut pauses = inner.timing.finish_pauses.into_iter();
    let [.., mut pause] = inner.timing.finish_pauses;
    loop {
        let is_last = inner.leaving.is_cancelled();
        let event = Event::Finish {
            at: now(),
            outcome: outcome.clone(),
        };
        match inner.store.apply(id, event, &last).await {
            Ok(Some(Ok(record))) => {
                FaultPoint::AfterEnd.reached();
                let status = record.state.status();
                tracing::info!(run.id = %id, status, "A run has ended");
                inner.announce_end(id, status);
                return Finished::Recorded;
            }
            Ok(Some(Err(refused))) => {
                tracing::error!(run.id = %id, reason = %refused, "A run had ended before");
                break;
            }
            Ok(None) => {
                tracing::error!(run.id = %id, "A run that ended is not in the store");
                break;
            }
            Err(error) => {
                log_error(id, &error, "The end of a run could not be recorded");
                if is_last || !error.retryable() {
                    break;
                }
                pause = pauses.next().unwrap_or(pause);
                let pausing = tokio::time::sleep(pause);
                inner.leaving.run_until_cancelled(pausing).await;
            }
        }
    }
    // Nobody is left waiting for an end that will not be recorded.
    inner.hub.end(id);
    Finished::NotRecorded
}

/// Whether the end of a run is on disk.
#[derive(PartialEq, Eq)]
enum Finished {
    Recorded,
    NotRecorded,
}

fn log_error(id: RunId, error: &StoreError, message: &'static str) {
    let error: &dyn Error = error;
    tracing::error!(run.id = %id, error, "{message}");
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}

/// The journal of a run: straight into the store.
#[derive(Debug)]
struct StoreJournal(Arc<dyn Store>);

#[async_trait]
impl Journal for StoreJournal {
    async fn plan_execution(
        &self,
        run: RunId,
        execution: &ExecutionId,
        attempt: u32,
        program: Option<&PlannedProgram>,
    ) -> Result<(), StoreError> {
        let execution = OpenExecution {
            attempt,
            program: program.cloned().map(Box::new),
            ..OpenExecution::first(execution.clone(), run)
        };
        self.0.plan_execution(&execution).await
    }

    async fn abandon_execution(&self, execution: &ExecutionId) -> Result<(), StoreError> {
        self.0.abandon_execution(execution).await
    }

    async fn add_episode(&self, recorded: &RecordedEpisode) -> Result<(), StoreError> {
        self.0.add_episode(recorded).await
    }

    async fn so_far(&self, run: RunId) -> Result<SoFar, StoreError> {
        Ok(SoFar {
            episodes: self.0.episodes(run).await?,
            last_program: self.0.last_program(run).await?,
        })
    }
}
