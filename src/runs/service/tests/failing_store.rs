//! What the service does when its store fails.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};

use super::*;
use crate::runs::record::RecordedEpisode;
use crate::runs::service::testing::quick;
use crate::runs::state::{Event, Refused};
use crate::runs::store::sqlite::SqliteStore;
use crate::runs::store::{Alongside, Fault, Inserted, NewRun, OpenExecution};

/// A store whose writes of starts or ends fail while they are told to.
#[derive(Debug)]
struct Failing {
    inner: SqliteStore,
    starts: AtomicBool,
    ends: AtomicBool,
    /// Writes of ends that have failed.
    failed: watch::Sender<usize>,
}

#[async_trait]
impl Store for Failing {
    async fn apply(
        &self,
        id: RunId,
        event: Event,
        alongside: &Alongside,
    ) -> Result<Option<Result<RunRecord, Refused>>, StoreError> {
        let fails = match event {
            Event::Start { .. } => self.starts.fetch_and(false, Ordering::SeqCst),
            Event::Finish { .. } => {
                let fails = self.ends.load(Ordering::SeqCst);
                self.failed
                    .send_modify(|failed| *failed += usize::from(fails));
                fails
            }
            Event::CancelRequested { .. } => false,
        };
        if fails {
            return Err(StoreError::Failed {
                operation: "do as the test wishes",
                source: Arc::new(Fault::Died),
            });
        }
        self.inner.apply(id, event, alongside).await
    }

    async fn insert(&self, run: &NewRun, max_unfinished: u32) -> Result<Inserted, StoreError> {
        self.inner.insert(run, max_unfinished).await
    }

    async fn repeated(
        &self,
        tenant: &TenantId,
        key: &IdempotencyKey,
    ) -> Result<Option<RunId>, StoreError> {
        self.inner.repeated(tenant, key).await
    }

    async fn find(&self, tenant: &TenantId, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        self.inner.find(tenant, id).await
    }

    async fn get(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        self.inner.get(id).await
    }

    async fn get_complete(&self, id: RunId) -> Result<Option<RunRecord>, StoreError> {
        self.inner.get_complete(id).await
    }

    async fn list(
        &self,
        tenant: &TenantId,
        filter: &RunFilter,
    ) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.list(tenant, filter).await
    }

    async fn queued(&self) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.queued().await
    }

    async fn running(&self) -> Result<Vec<RunRecord>, StoreError> {
        self.inner.running().await
    }

    async fn plan_execution(&self, execution: &OpenExecution) -> Result<(), StoreError> {
        self.inner.plan_execution(execution).await
    }

    async fn add_episode(&self, recorded: &RecordedEpisode) -> Result<(), StoreError> {
        self.inner.add_episode(recorded).await
    }

    async fn episodes(&self, id: RunId) -> Result<Vec<Episode>, StoreError> {
        self.inner.episodes(id).await
    }

    async fn last_episode(&self, id: RunId) -> Result<Option<Episode>, StoreError> {
        self.inner.last_episode(id).await
    }

    async fn last_program(&self, id: RunId) -> Result<Option<String>, StoreError> {
        self.inner.last_program(id).await
    }

    async fn judgements(&self, ids: &[RunId]) -> Result<Vec<Judgement>, StoreError> {
        self.inner.judgements(ids).await
    }

    async fn count_takeover(&self, id: RunId) -> Result<u32, StoreError> {
        self.inner.count_takeover(id).await
    }

    async fn open_executions(&self) -> Result<Vec<OpenExecution>, StoreError> {
        self.inner.open_executions().await
    }

    async fn abandon_execution(&self, id: &ExecutionId) -> Result<(), StoreError> {
        self.inner.abandon_execution(id).await
    }

    async fn receipt(
        &self,
        id: RunId,
        execution: Option<&ExecutionId>,
    ) -> Result<Option<String>, StoreError> {
        self.inner.receipt(id, execution).await
    }

    async fn room(&self) -> Result<(), StoreError> {
        self.inner.room().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[tokio::test]
async fn a_start_that_was_not_recorded_is_no_start_and_is_tried_again() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let store = Arc::new(Failing {
        inner: place.open().await,
        starts: AtomicBool::new(true),
        ends: AtomicBool::new(false),
        failed: watch::Sender::new(0),
    });
    let service = serve(Arc::clone(&store) as _, &fake, settings(1)).await;
    let ids = [submit(&service, "a").await, submit(&service, "a").await];
    fake.let_end(2);
    for id in ids {
        assert_eq!(started.recv().await.unwrap().id, id);
        ended(&service, id).await;
    }
}

struct Unrecorded {
    store: Arc<Failing>,
    service: Arc<RunService>,
    started: mpsc::Receiver<RunRecord>,
    ids: [RunId; 2],
}

/// A run whose end cannot be recorded, and one that waits for its place.
async fn unrecorded(place: &Place) -> Unrecorded {
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let store = Arc::new(Failing {
        inner: place.open().await,
        starts: AtomicBool::new(false),
        ends: AtomicBool::new(true),
        failed: watch::Sender::new(0),
    });
    let service = serve(Arc::clone(&store) as _, &fake, settings(1)).await;
    let id = submit(&service, "a").await;
    let next = submit(&service, "a").await;
    fake.let_end(2);
    assert_eq!(started.recv().await.unwrap().id, id);
    let tries = quick().finish_pauses.len() * 3;
    let mut failed = store.failed.subscribe();
    let many = failed.wait_for(|failed| *failed > tries);
    tokio::time::timeout(LONG, many).await.unwrap().unwrap();
    assert_eq!(status(&service, id).await, "RUNNING");
    Unrecorded {
        store,
        service,
        started,
        ids: [id, next],
    }
}

#[tokio::test]
async fn an_end_that_cannot_be_recorded_keeps_its_place_until_it_can() {
    let place = Place::new();
    let Unrecorded {
        store,
        service,
        mut started,
        ids,
    } = unrecorded(&place).await;
    assert_eq!(
        (service.in_flight().running, service.in_flight().queued),
        (1, 1)
    );
    store.ends.store(false, Ordering::SeqCst);
    for id in ids {
        assert_eq!(ended(&service, id).await.state.status(), "SUCCESS");
    }
    assert_eq!(started.recv().await.unwrap().id, ids[1]);
}

#[tokio::test]
async fn an_end_that_cannot_be_recorded_is_left_to_the_next_start_and_holds_up_nobody() {
    let place = Place::new();
    let left = unrecorded(&place).await;
    let stopping = left.service.shutdown(Duration::ZERO);
    tokio::time::timeout(LONG, stopping).await.unwrap();
    let [id, _] = left.ids;
    drop(left);
    let running = place.open().await.running().await.unwrap();
    assert_eq!(running.iter().map(|run| run.id).collect::<Vec<_>>(), [id]);
}
