//! Faults of our own and waits without end: nobody hangs, and what is on disk stays right.

use futures_util::poll;
use tokio::sync::oneshot;

use super::batches::{Answer, ids, in_one_batch, insert, told};
use super::testing::{Hold, Panic};
use super::*;

#[tokio::test]
async fn a_fault_in_the_writer_leaves_nobody_waiting() {
    let place = Place::new();
    let store = place.open().await;
    let kept = place.insert(&store, "a").await;
    let run = new_run("a");
    let fault: Answer<'_> = Box::pin(async { told(store.writer.run(Panic).await) });
    let answers = in_one_batch(&store, [insert(&store, &run, 9), fault]).await;
    assert_eq!(answers[0], "the store failed to accept a run");
    assert_eq!(answers[1], "the store failed to panic");
    let StoreError::Failed { source, .. } = store.insert(&run, 9).await.unwrap_err() else {
        panic!("another error");
    };
    assert!(source.to_string().contains("restart"), "{source}");
    assert!(store.broken().is_cancelled());
    // Reading goes on, closing ends, and the next store finds everything in order.
    assert_eq!(ids(&store).await, [kept]);
    store.close().await;
    assert_eq!(ids(&place.open().await).await, [kept]);
}

#[tokio::test]
async fn an_answer_is_not_waited_for_without_end_and_nothing_is_written_after_that() {
    let place = Place::new();
    let store = place.open().await;
    let (begun, has_begun) = oneshot::channel();
    let (end, to_end) = oneshot::channel();
    let mut holding = Box::pin(store.writer.run(Hold { begun, end: to_end }));
    assert!(poll!(&mut holding).is_pending());
    has_begun.await.unwrap();
    tokio::time::pause();
    let late = store.insert(&new_run("a"), 9).await;
    assert!(
        matches!(&late, Err(StoreError::Failed { source, .. }) if matches!(**source, Fault::Slow(_))),
        "{late:?}"
    );
    tokio::time::resume();
    // Before it ends: an answer that is there already would count, late as it is.
    assert!(holding.await.is_err());
    end.send(()).unwrap();
    let refused = store.insert(&new_run("a"), 9).await;
    assert!(matches!(refused, Err(StoreError::Unflushed)));
    assert_eq!(ids(&store).await, []);
}

#[tokio::test]
async fn a_fault_while_reading_costs_no_place() {
    let place = Place::new();
    let store = place.open().await;
    let kept = place.insert(&store, "a").await;
    for _ in 0..9 {
        let died = store.readers.read::<()>("panic", |_| panic!("a fault"));
        let died = died.await;
        assert!(matches!(died, Err(StoreError::Failed { .. })), "{died:?}");
    }
    assert_eq!(ids(&store).await, [kept]);
    store.close().await;
    let closed = store.get(kept).await.unwrap_err();
    assert!(
        matches!(closed, StoreError::Failed { source, .. } if matches!(*source, Fault::Closed))
    );
}

#[tokio::test]
async fn more_who_read_than_connections_take_turns() {
    let place = Place::new();
    let store = place.open().await;
    let kept = place.insert(&store, "a").await;
    let answers = join_all((0..50).map(|_| store.get(kept))).await;
    for answer in answers {
        assert_eq!(answer.unwrap().unwrap().id, kept);
    }
}
