//! What a daemon that went away left behind, put in order before the next one accepts runs.
//!
//! Runs that were going on cannot be taken up again: they end, and say so. Executions that were
//! planned and never recorded may still have a sandbox: it is destroyed, and they get a receipt that
//! says that they were lost. Waiting runs are left alone. Doing it twice changes nothing.

use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream;
use jiff::Timestamp;

use super::record::{Ending, Episode, RunOutcome, RunRecord};
use super::state::{Event, RunState};
use super::store::{Alongside, OpenExecution, Store, StoreError};
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Runs that were going on and have ended now.
    pub interrupted_runs: usize,
    /// Executions whose sandboxes are gone.
    pub destroyed_executions: usize,
    /// Executions whose sandboxes could not be destroyed; the next start tries again.
    pub left_executions: usize,
}

/// Ends every run that the store says is going on and destroys what is left of executions. Has to
/// be done before a service is started on the store.
///
/// # Errors
///
/// [`StoreError`] if the store fails. A sandbox that cannot be destroyed is no error: the runs have
/// ended by then, and the execution stays open in the store.
pub async fn recover(store: &dyn Store, cleaner: &dyn Cleaner) -> Result<Recovered, StoreError> {
    let mut recovered = Recovered::default();
    for run in store.running().await? {
        let episodes = store.episodes(run.id).await?;
        let finish = Event::Finish {
            at: Timestamp::now(),
            outcome: Box::new(interrupted(&run, &episodes)),
        };
        let ended = store.apply(run.id, finish, &Alongside::Nothing).await?;
        if let Some(Ok(ended)) = ended {
            let status = ended.state.status();
            tracing::warn!(run.id = %run.id, status, "A run was interrupted by the daemon's end");
            recovered.interrupted_runs += 1;
        }
    }

    let open = store.open_executions().await?;
    let answers: Vec<(OpenExecution, bool)> = stream::iter(open)
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
    let OpenExecution { id, run_id } = execution;
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

    use super::*;
    use crate::ids::RunId;
    use crate::runs::service::testing::{Place, episode, recorded, start};

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

    fn execution(run_id: RunId) -> OpenExecution {
        OpenExecution {
            id: ExecutionId::random(),
            run_id,
        }
    }

    #[tokio::test]
    async fn runs_going_on_end_and_their_sandboxes_are_destroyed() {
        let place = Place::new();
        let store = place.open().await;
        let waiting = place.insert(&store, "a").await;
        let running = place.insert(&store, "a").await;
        let cancelled = place.insert(&store, "b").await;
        for id in [running, cancelled] {
            start(&store, id).await;
        }
        let cancel = Event::CancelRequested {
            at: Timestamp::now(),
        };
        store
            .apply(cancelled, cancel, &Alongside::Nothing)
            .await
            .unwrap();
        let finished = execution(running);
        let open = execution(running);
        let stubborn = execution(cancelled);
        for planned in [&finished, &open, &stubborn] {
            store.plan_execution(planned).await.unwrap();
        }
        let done = episode(running, 1, &finished.id);
        store
            .add_episode(&recorded(&done, "print()"))
            .await
            .unwrap();
        store.close().await;

        let store = place.open().await;
        let mut cleaner = FakeCleaner {
            stubborn: Some(stubborn.id.clone()),
            ..FakeCleaner::default()
        };
        let recovered = recover(&store, &cleaner).await.unwrap();
        let expected = Recovered {
            interrupted_runs: 2,
            destroyed_executions: 1,
            left_executions: 1,
        };
        assert_eq!(recovered, expected);
        assert_eq!(
            *cleaner.destroyed.lock().unwrap(),
            BTreeSet::from([open.id])
        );

        let state = |id| {
            let store = &store;
            async move { store.get(id).await.unwrap().unwrap().state }
        };
        assert_eq!(state(waiting).await.status(), "QUEUED");
        assert_eq!(state(cancelled).await.status(), "CANCELLED");
        let ended = state(running).await;
        let outcome = ended.outcome().unwrap();
        assert_eq!(
            (
                ended.status(),
                outcome.iterations,
                outcome.final_error.as_deref()
            ),
            ("FAIL", 1, Some(INTERRUPTED))
        );

        // The next start has only the stubborn one left, the one after that nothing.
        cleaner.stubborn = None;
        let again = recover(&store, &cleaner).await.unwrap();
        assert_eq!((again.interrupted_runs, again.destroyed_executions), (0, 1));
        let nothing = recover(&store, &cleaner).await.unwrap();
        assert_eq!(nothing, Recovered::default());
    }
}
