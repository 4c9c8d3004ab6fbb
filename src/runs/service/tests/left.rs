//! Runs that a daemon leaves to the next one.

use async_trait::async_trait;

use super::*;
use crate::runs::recovery::{Cleaner, Recovered, recover};
use crate::runs::service::inner::now;
use crate::runs::service::testing::take_over;
use crate::runs::state::Event;
use crate::runs::store::Alongside;

/// There is nothing to destroy.
#[derive(Debug)]
struct Nobody;

#[async_trait]
impl Cleaner for Nobody {
    async fn destroy(
        &self,
        _execution: &ExecutionId,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
}

async fn left_in(store: &dyn Store) -> Recovered {
    recover(store, &Nobody).await.unwrap()
}

#[tokio::test]
async fn waiting_runs_survive_a_restart_in_order() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    let going_on = submit(&service, "a").await;
    started.recv().await.unwrap();
    let waiting = [submit(&service, "a").await, submit(&service, "a").await];
    service.shutdown(Duration::ZERO).await;
    let refused = service.submit(request(), client("a"), None).await;
    assert!(matches!(refused, Err(SubmitError::ShuttingDown)));
    assert!(!service.accepting());

    // What went on is left as it was, with the execution that it had.
    assert_eq!(fake.left_behind.load(Ordering::SeqCst), 1);
    let store = Arc::new(place.open().await);
    let recovered = left_in(store.as_ref()).await;
    let [left] = recovered.left.as_slice() else {
        panic!("{recovered:?}");
    };
    assert_eq!(
        (left.run.id, left.run.state.status()),
        (going_on, "RUNNING")
    );
    let open = left.execution.clone().unwrap();
    let execution = open.id.clone();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = take_over(store, &fake, settings(1), recovered.left).await;
    assert_eq!(service.in_flight().running, 1);
    assert_eq!(started.recv().await.unwrap().id, going_on);
    fake.let_end(3);
    assert_eq!(ended(&service, going_on).await.state.status(), "SUCCESS");
    assert_eq!(fake.origins(), [Origin::Left(Box::new(open))]);
    fake.until_recorded(&execution).await;
    for id in waiting {
        assert_eq!(started.recv().await.unwrap().id, id);
        assert_eq!(ended(&service, id).await.state.status(), "SUCCESS");
    }
}

#[tokio::test]
async fn a_run_that_was_to_end_is_ended_by_the_next_daemon() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Deaf);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    let id = submit(&service, "a").await;
    started.recv().await.unwrap();
    // It is told, and the daemon goes away before it has ended.
    let event = Event::CancelRequested { at: now() };
    let asked = service
        .inner
        .store
        .apply(id, event, &Alongside::Nothing)
        .await;
    asked.unwrap().unwrap().unwrap();
    service.shutdown(Duration::ZERO).await;

    let store = Arc::new(place.open().await);
    let left = left_in(store.as_ref()).await.left;
    let (fake, _started) = Fake::new(Manner::Obedient);
    let service = take_over(store, &fake, settings(1), left).await;
    assert_eq!(ended(&service, id).await.state.status(), "CANCELLED");
}

#[tokio::test]
async fn runs_that_are_taken_over_keep_their_places_and_new_ones_wait_for_them() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(2)).await;
    let both = [submit(&service, "a").await, submit(&service, "b").await];
    for _ in both {
        started.recv().await.unwrap();
    }
    service.shutdown(Duration::ZERO).await;

    // There is one place fewer now: both go on all the same.
    let store = Arc::new(place.open().await);
    let left = left_in(store.as_ref()).await.left;
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = take_over(store, &fake, settings(1), left).await;
    let next = submit(&service, "c").await;
    for _ in both {
        let id = started.recv().await.unwrap().id;
        assert!(both.contains(&id));
    }
    assert_eq!(service.in_flight().running, 2);
    assert_eq!(service.in_flight().queued, 1);
    fake.let_end(3);
    for id in both.into_iter().chain([next]) {
        assert_eq!(ended(&service, id).await.state.status(), "SUCCESS");
    }
}

/// Nothing is left of a run whose end is on disk, however often a daemon goes down after it.
#[tokio::test]
async fn what_has_ended_is_not_left() {
    let place = Place::new();
    let (fake, _started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    fake.let_end(1);
    let id = submit(&service, "a").await;
    ended(&service, id).await;
    service.shutdown(Duration::ZERO).await;
    let store = place.open().await;
    let recovered = left_in(&store).await;
    assert_eq!(recovered.left, []);
}
