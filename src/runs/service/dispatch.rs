//! The dispatcher: one task that starts the run whose turn it is whenever a place is free.
//!
//! Starts are recorded one after the other, so that the runs of a client start in the order in which
//! they were accepted.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::Origin;
use super::ahead::Ahead;
use super::carry::Work;
use super::inner::{Active, Inner, Stop, now};
use super::places::Place;
use crate::ids::{ExecutionId, RunId, TenantId};
use crate::runs::events::RunEvent;
use crate::runs::queue::Waiting;
use crate::runs::recovery::LeftRun;
use crate::runs::service::Observer as _;
use crate::runs::state::{Event, RunState};
use crate::runs::store::Alongside;

/// What a run that is taken over has left at least: its program may have ended long ago, and its
/// result has to be fetched.
const LEAST_LIMIT: Duration = Duration::from_secs(60);

/// Starts runs until the service closes.
pub(super) async fn dispatch(inner: Arc<Inner>) {
    let closing = inner.closing.clone();
    let mut ahead = Ahead::default();
    // A start is never cut off half-way: only waiting for the next one is.
    while let Some(Some((run, place))) = closing.run_until_cancelled(next(&inner, &mut ahead)).await
    {
        if start(&inner, run, place).await == Started::NotRecorded {
            closing
                .run_until_cancelled(tokio::time::sleep(inner.timing.start_pause))
                .await;
        }
    }
}

/// Waits for a place and a run. Nothing is taken out of the queue if the future is dropped.
async fn next(inner: &Inner, ahead: &mut Ahead) -> Option<(Waiting, Place)> {
    let place = place(inner, ahead).await?;
    loop {
        let arrived = inner.arrived.notified();
        inner.gate.opened().await;
        let turn = inner.queue().pop();
        if let Some(run) = turn {
            return Some((run, place));
        }
        ahead.tell(inner).await;
        arrived.await;
    }
}

/// Waits for a place. While there is none, the runs that wait are told of before their turn.
async fn place(inner: &Inner, ahead: &mut Ahead) -> Option<Place> {
    if let Some(place) = inner.places.try_take() {
        return Some(place);
    }
    let mut waiting = pin!(inner.places.take());
    loop {
        let arrived = inner.arrived.notified();
        tokio::select! {
            biased;
            place = &mut waiting => return place,
            () = async { ahead.tell(inner).await; arrived.await } => {}
        }
    }
}

/// The right to carry a run out: one of the daemon's places, and one of its tenant's.
pub(super) struct Turn {
    pub(super) tenant: TenantId,
    /// Given back when it is dropped.
    _place: Place,
}

/// What a run that is taken over has left of its limit. What has passed of that only the wall clock knows,
/// which may have been set since, and the limit may have been lowered since the run was accepted: in no
/// case it has less than `own`, how long it can be gone on with.
fn bound(limit: Duration, passed: Duration, own: Duration) -> Duration {
    limit.saturating_sub(passed).max(own).max(LEAST_LIMIT)
}

/// Goes on with a run that an earlier daemon left. It has a place whether or not one is free: it has
/// had it all the time.
pub(super) fn take_over(inner: &Arc<Inner>, left: LeftRun) {
    let LeftRun {
        run,
        execution,
        takeovers,
    } = left;
    let active = Active::default();
    let mut limit = inner.settings.run_timeout;
    if let RunState::Running {
        started_at,
        cancel_requested,
    } = run.state
    {
        let passed = Duration::try_from(now().duration_since(started_at)).unwrap_or_default();
        limit = bound(limit, passed, inner.orchestrator.longest_left(&run));
        if cancel_requested {
            active.stop(Stop::Client);
        }
    }
    inner.active().insert(run.id, active.clone());
    inner.queue().taken_over(run.tenant.clone());
    let status = RunEvent::Status(run.state.status());
    inner.hub.open(run.id).observe(status);
    let turn = Turn {
        tenant: run.tenant,
        _place: inner.places.take_over(),
    };
    let work = Work {
        id: run.id,
        origin: execution.map_or(Origin::Between, |open| Origin::Left(Box::new(open))),
        takeovers,
        limit,
        active,
    };
    tracing::info!(run.id = %run.id, "A run that an earlier daemon left is taken over");
    inner
        .runs
        .spawn(super::carry::carry_out(Arc::clone(inner), work, turn));
}

#[derive(PartialEq, Eq)]
enum Started {
    Done,
    /// The store failed; the run is the next in turn again.
    NotRecorded,
}

/// Chosen by the orchestrator, which may have something ready. A record that cannot be read is met
/// again by whoever records the start.
async fn first_execution(inner: &Inner, id: RunId) -> ExecutionId {
    match inner.store.get(id).await {
        Ok(Some(run)) => inner.orchestrator.first_execution(&run),
        Ok(None) | Err(_) => ExecutionId::random(),
    }
}

async fn start(inner: &Arc<Inner>, run: Waiting, place: Place) -> Started {
    let id = run.id;
    // Known before its start is recorded, so that a request to cancel always finds it.
    let active = Active::default();
    inner.active().insert(id, active.clone());
    // Every run has a first execution: planned together with the start, it costs no flush.
    let execution = first_execution(inner, id).await;
    let planned = Alongside::Execution(execution.clone());
    let start = Event::Start { at: now() };
    match inner.store.apply(id, start, &planned).await {
        Ok(Some(Ok(record))) => {
            tracing::info!(run.id = %id, "A run was started");
            inner
                .hub
                .open(id)
                .observe(RunEvent::Status(record.state.status()));
            let inside = Arc::clone(inner);
            let turn = Turn {
                tenant: run.tenant,
                _place: place,
            };
            let work = Work {
                id,
                origin: Origin::New(execution),
                takeovers: 0,
                limit: inner.settings.run_timeout,
                active,
            };
            inner
                .runs
                .spawn(super::carry::carry_out(inside, work, turn));
            return Started::Done;
        }
        // Cancelled in the moment between its turn and its start.
        Ok(Some(Err(refused))) => {
            tracing::info!(run.id = %id, reason = %refused, "A run was not started");
        }
        Ok(None) => tracing::error!(run.id = %id, "A waiting run is not in the store"),
        Err(error) if error.retryable() => {
            tracing::error!(
                run.id = %id, error = &error as &dyn std::error::Error,
                "The start of a run could not be recorded; it waits on"
            );
            inner.orchestrator.give_up(&execution);
            inner.active().remove(&id);
            inner.queue().put_back(run);
            return Started::NotRecorded;
        }
        Err(error) => tracing::error!(
            run.id = %id, error = &error as &dyn std::error::Error,
            "The start of a run could not be recorded; it waits for a restart"
        ),
    }
    inner.orchestrator.give_up(&execution);
    inner.active().remove(&id);
    inner.finished(&run.tenant);
    Started::Done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_clock_that_was_set_nor_a_lower_limit_ends_a_run_that_is_taken_over() {
        let seconds = Duration::from_secs;
        // An hour, of a program that may take five minutes and then be waited for.
        assert_eq!(
            bound(seconds(3600), seconds(100), seconds(1000)),
            seconds(3500)
        );
        assert_eq!(
            bound(seconds(3600), seconds(3599), seconds(1000)),
            seconds(1000)
        );
        // The clock was set forward, by an hour and by ten years.
        for passed in [seconds(3610), seconds(10 * 365 * 86_400)] {
            assert_eq!(bound(seconds(3600), passed, seconds(1000)), seconds(1000));
        }
        // The limit is five seconds by now.
        assert_eq!(bound(seconds(5), seconds(10), seconds(1000)), seconds(1000));
        // Nothing is known of it but that it is there.
        assert_eq!(bound(seconds(5), seconds(10), Duration::ZERO), LEAST_LIMIT);
    }
}
