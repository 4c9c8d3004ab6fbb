//! What a daemon that went away left behind, put in order before the next one accepts runs.
//!
//! A run that was going on is gone on with: it has an execution that was planned and is not recorded,
//! and its sandbox may still be there; or its programs are written, and none is at the moment. Whatever
//! else is open is closed: a run with a given program and without an execution ends and says so, and an
//! execution that belongs to none any more gets a receipt that says that it was lost, after its sandbox
//! was destroyed. Waiting runs are left alone. Doing it twice changes nothing but how often the runs
//! were gone on with.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;

use super::record::{Ending, Episode, RunOutcome, RunRecord};
use super::state::{Event, RunState};
use super::store::{Alongside, OpenExecution, Store, StoreError};
use crate::clock;
use crate::ids::ExecutionId;

/// What a run says that went on when the daemon stopped.
pub const INTERRUPTED: &str =
    "Interrupted: the daemon was stopped while the run was going on. Submit it again.";

/// What a run says that a client had cancelled when the daemon stopped.
const CANCELLED: &str = "Cancelled; the daemon was stopped while the run was being ended.";

/// How long destroying one sandbox may take.
const DESTROY_LIMIT: Duration = Duration::from_secs(30);

/// Sandboxes destroyed at the same time.
const DESTROY_WIDTH: usize = 4;

/// Destroys what is left of executions. Implemented on the engine's side.
#[async_trait]
pub trait Cleaner: Send + Sync + std::fmt::Debug {
    /// Destroys the sandbox of an execution if there is one. Success means that there is none.
    async fn destroy(&self, execution: &ExecutionId) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// What was put in order.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Runs to go on with.
    pub left: Vec<LeftRun>,
    /// Runs that were going on and have ended now.
    pub interrupted_runs: usize,
    /// Executions whose sandboxes are gone.
    pub destroyed_executions: usize,
    /// Executions whose sandboxes could not be destroyed; the next start tries again.
    pub left_executions: usize,
}

/// A run that was going on when its daemon went away.
#[derive(Debug, Clone, PartialEq)]
pub struct LeftRun {
    /// Its outline.
    pub run: RunRecord,
    /// What it was going on with; `None` between two executions.
    pub execution: Option<OpenExecution>,
    /// How many daemons have gone on with it, this one included; counted only if its programs are
    /// written.
    pub takeovers: u32,
}

/// What was open in the store, by what is to be done with it.
#[derive(Debug, Default, PartialEq)]
struct Sorted {
    left: Vec<LeftRun>,
    /// Runs that end.
    interrupted: Vec<RunRecord>,
    /// Executions that nothing goes on with.
    abandoned: Vec<OpenExecution>,
}

/// Of several open executions of one run the last attempt counts: the ones before were given up.
fn sort(running: Vec<RunRecord>, open: Vec<OpenExecution>) -> Sorted {
    let mut by_run: BTreeMap<String, Vec<OpenExecution>> = BTreeMap::new();
    for execution in open {
        let of_run = by_run.entry(execution.run_id.to_string()).or_default();
        of_run.push(execution);
    }
    let mut sorted = Sorted::default();
    for run in running {
        let mut attempts = by_run.remove(&run.id.to_string()).unwrap_or_default();
        attempts.sort_by_key(|execution| execution.attempt);
        let execution = attempts.pop();
        if execution.is_some() || goes_on_between(&run) {
            sorted.left.push(LeftRun {
                run,
                execution,
                takeovers: 0,
            });
        } else {
            sorted.interrupted.push(run);
        }
        sorted.abandoned.append(&mut attempts);
    }
    sorted.abandoned.extend(by_run.into_values().flatten());
    sorted
}

/// Whether a run can be gone on with between two executions.
fn goes_on_between(run: &RunRecord) -> bool {
    let is_to_end = matches!(
        run.state,
        RunState::Running {
            cancel_requested: true,
            ..
        }
    );
    run.request.code.is_none() && !is_to_end
}

/// Puts in order what an earlier daemon left, and tells which runs are to be gone on with. Has to be
/// done before a service is started on the store.
///
/// # Errors
///
/// [`StoreError`] if the store fails. A sandbox that cannot be destroyed is no error: the runs have
/// ended by then, and the execution stays open in the store.
pub async fn recover(store: &dyn Store, cleaner: &dyn Cleaner) -> Result<Recovered, StoreError> {
    let Sorted {
        mut left,
        interrupted: ended,
        abandoned,
    } = sort(store.running().await?, store.open_executions().await?);
    for left in &mut left {
        if left.run.request.code.is_none() {
            left.takeovers = store.count_takeover(left.run.id).await?;
        }
    }
    let mut recovered = Recovered {
        left,
        ..Recovered::default()
    };
    for run in ended {
        let episodes = store.episodes(run.id).await?;
        let finish = Event::Finish {
            at: clock::now(),
            outcome: Box::new(interrupted(&run, &episodes)),
        };
        let ended = store.apply(run.id, finish, &Alongside::Nothing).await?;
        if let Some(Ok(ended)) = ended {
            let status = ended.state.status();
            tracing::warn!(run.id = %run.id, status, "A run was interrupted by the daemon's end");
            recovered.interrupted_runs += 1;
        }
    }

    let answers: Vec<(OpenExecution, bool)> = stream::iter(abandoned)
        .map(|execution| async move {
            let gone = destroy(cleaner, &execution).await;
            (execution, gone)
        })
        .buffer_unordered(DESTROY_WIDTH)
        .collect()
        .await;
    for (execution, gone) in answers {
        if gone {
            store.abandon_execution(&execution.id).await?;
            recovered.destroyed_executions += 1;
        } else {
            recovered.left_executions += 1;
        }
    }
    Ok(recovered)
}

async fn destroy(cleaner: &dyn Cleaner, execution: &OpenExecution) -> bool {
    let OpenExecution { id, run_id, .. } = execution;
    match tokio::time::timeout(DESTROY_LIMIT, cleaner.destroy(id)).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::error!(
                run.id = %run_id, execution.id = %id, error,
                "What is left of an execution could not be destroyed"
            );
            false
        }
        Err(_elapsed) => {
            tracing::error!(
                run.id = %run_id, execution.id = %id, limit_seconds = DESTROY_LIMIT.as_secs(),
                "What is left of an execution was not destroyed in time"
            );
            false
        }
    }
}

/// How a run ends that was going on when the daemon stopped.
fn interrupted(run: &RunRecord, episodes: &[Episode]) -> RunOutcome {
    let (ending, why) = match &run.state {
        RunState::Running {
            cancel_requested: true,
            ..
        } => (Ending::Cancelled, CANCELLED),
        RunState::Queued | RunState::Running { .. } | RunState::Ended { .. } => {
            (Ending::Fail, INTERRUPTED)
        }
    };
    RunOutcome::cut_short(ending, why.to_owned(), episodes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use jiff::Timestamp;

    use super::*;
    use crate::ids::RunId;
    use crate::runs::record::PlannedProgram;
    use crate::runs::service::testing::{Place, episode, new_run, recorded, start};
    use crate::runs::store::sqlite::SqliteStore;
    use crate::runs::task::ModelUsage;

    /// Destroys everything but one.
    #[derive(Debug, Default)]
    struct FakeCleaner {
        stubborn: Option<ExecutionId>,
        destroyed: Mutex<BTreeSet<ExecutionId>>,
    }

    #[async_trait]
    impl Cleaner for FakeCleaner {
        async fn destroy(&self, id: &ExecutionId) -> Result<(), Box<dyn Error + Send + Sync>> {
            if self.stubborn.as_ref() == Some(id) {
                return Err("the engine does not answer".into());
            }
            self.destroyed.lock().unwrap().insert(id.clone());
            Ok(())
        }
    }

    async fn started(place: &Place, store: &SqliteStore, name: &str) -> RunId {
        let id = place.insert(store, name).await;
        start(store, id).await;
        id
    }

    async fn planned(store: &dyn Store, run: RunId, attempt: u32) -> OpenExecution {
        let execution = OpenExecution {
            attempt,
            ..OpenExecution::first(ExecutionId::random(), run)
        };
        store.plan_execution(&execution).await.unwrap();
        execution
    }

    #[tokio::test]
    async fn runs_with_an_open_execution_are_gone_on_with_and_others_end() {
        let place = Place::new();
        let store = place.open().await;
        let waiting = place.insert(&store, "a").await;
        let left = started(&place, &store, "a").await;
        let interrupted = started(&place, &store, "a").await;
        let cancelled = started(&place, &store, "b").await;
        let cancel = Event::CancelRequested {
            at: Timestamp::now(),
        };
        let cancelling = store.apply(cancelled, cancel, &Alongside::Nothing);
        cancelling.await.unwrap();
        // Planned in another order than they were tried.
        let last = planned(&store, left, 2).await;
        let first = planned(&store, left, 1).await;
        let finished = planned(&store, interrupted, 1).await;
        let done = episode(interrupted, 1, &finished.id);
        let adding = recorded(&done, "print()");
        store.add_episode(&adding).await.unwrap();
        store.close().await;

        let store = place.open().await;
        let cleaner = FakeCleaner::default();
        let recovered = recover(&store, &cleaner).await.unwrap();
        let run = store.get(left).await.unwrap().unwrap();
        assert_eq!(run.state.status(), "RUNNING");
        let expected = LeftRun {
            run,
            execution: Some(last.clone()),
            takeovers: 0,
        };
        assert_eq!(recovered.left, [expected]);
        assert_eq!(recovered.interrupted_runs, 2);
        assert_eq!(recovered.destroyed_executions, 1);
        let destroyed = cleaner.destroyed.lock().unwrap().clone();
        assert_eq!(destroyed, BTreeSet::from([first.id]));

        let state = |id| {
            let store = &store;
            async move { store.get(id).await.unwrap().unwrap().state }
        };
        assert_eq!(state(waiting).await.status(), "QUEUED");
        assert_eq!(state(cancelled).await.status(), "CANCELLED");
        let ended = state(interrupted).await;
        let outcome = ended.outcome().unwrap();
        assert_eq!(ended.status(), "FAIL");
        assert_eq!(outcome.iterations, 1);
        assert_eq!(outcome.final_error.as_deref(), Some(INTERRUPTED));
        // Doing it again changes nothing.
        let again = recover(&store, &cleaner).await.unwrap();
        assert_eq!(again.left.len(), 1);
        assert_eq!((again.interrupted_runs, again.destroyed_executions), (0, 0));
    }

    #[tokio::test]
    async fn a_run_whose_programs_are_written_is_gone_on_with_between_two_of_them() {
        let place = Place::new();
        let store = place.open().await;
        let mut generated = Vec::new();
        for _ in 0..2 {
            let mut run = new_run("a");
            run.request.code = None;
            store.insert(&run, 9).await.unwrap();
            start(&store, run.id).await;
            generated.push(run.id);
        }
        let cancel = Event::CancelRequested {
            at: Timestamp::now(),
        };
        let cancelling = store.apply(generated[1], cancel, &Alongside::Nothing);
        cancelling.await.unwrap();

        let cleaner = FakeCleaner::default();
        for takeovers in 1..=2 {
            let recovered = recover(&store, &cleaner).await.unwrap();
            let [left] = recovered.left.as_slice() else {
                panic!("{recovered:?}");
            };
            assert_eq!((left.run.id, &left.execution), (generated[0], &None));
            assert_eq!(left.takeovers, takeovers);
        }
        let cancelled = store.get(generated[1]).await.unwrap().unwrap();
        assert_eq!(cancelled.state.status(), "CANCELLED");

        // Its program is known as long as it is not recorded what came of it.
        let program = PlannedProgram {
            iteration: 1,
            code: "print()".to_owned(),
            timeout_seconds: 1.5,
            usage: ModelUsage::default(),
        };
        let planned = OpenExecution {
            program: Some(Box::new(program)),
            ..OpenExecution::first(ExecutionId::random(), generated[0])
        };
        store.plan_execution(&planned).await.unwrap();
        let left = recover(&store, &cleaner).await.unwrap().left;
        assert_eq!(left[0].execution.as_ref(), Some(&planned));
        let done = episode(generated[0], 1, &planned.id);
        store
            .add_episode(&recorded(&done, "print()"))
            .await
            .unwrap();
        store.close().await;
        let file = rusqlite::Connection::open(place.file()).unwrap();
        let kept: Option<String> = file
            .query_row("SELECT program FROM executions", [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, None);
    }

    #[tokio::test]
    async fn what_cannot_be_destroyed_stays_open_for_the_next_start() {
        let place = Place::new();
        let store = place.open().await;
        let left = started(&place, &store, "a").await;
        let stubborn = planned(&store, left, 1).await;
        planned(&store, left, 2).await;
        let mut cleaner = FakeCleaner {
            stubborn: Some(stubborn.id),
            ..FakeCleaner::default()
        };
        let recovered = recover(&store, &cleaner).await.unwrap();
        let counts = (recovered.destroyed_executions, recovered.left_executions);
        assert_eq!(counts, (0, 1));
        cleaner.stubborn = None;
        let again = recover(&store, &cleaner).await.unwrap();
        assert_eq!((again.destroyed_executions, again.left_executions), (1, 0));
        assert_eq!(again.left, recovered.left);
    }

    #[tokio::test]
    async fn an_execution_of_an_earlier_life_of_the_host_is_known_as_one() {
        let place = Place::new();
        let store = place.open().await;
        let left = started(&place, &store, "a").await;
        planned(&store, left, 1).await;
        store.close().await;
        let file = rusqlite::Connection::open(place.file()).unwrap();
        let count = file
            .execute("UPDATE executions SET boot = 'another'", [])
            .unwrap();
        assert_eq!(count, 1);
        file.close().unwrap();
        let store = place.open().await;
        let recovered = recover(&store, &FakeCleaner::default()).await.unwrap();
        assert!(recovered.left[0].execution.as_ref().unwrap().host_restarted);
    }
}
