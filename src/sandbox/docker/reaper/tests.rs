//! What is remembered of containers, without an engine.

use super::*;
use crate::sandbox::health::CallBounds;
use crate::sandbox::slots::Slots;

const SOON: Duration = Duration::from_millis(200);

fn reaper() -> Reaper {
    let calls = Arc::new(Calls::new(CallBounds::default()));
    Reaper::new("/nowhere/engine.sock".to_owned(), calls)
}

#[tokio::test]
async fn what_is_set_aside_is_counted_and_keeps_its_uid_from_others() {
    let reaper = reaper();
    let slots = Slots::new(50_000);
    assert_eq!(reaper.quarantine(), Quarantine::default());
    reaper.set_aside("one", Some(slots.take()));
    let quarantine = reaper.quarantine();
    assert_eq!(quarantine.sandboxes, 1);
    assert!(quarantine.since.is_some());
    // Neither a second word about the same one nor another one changes that.
    reaper.take("one", None, None);
    reaper.take("two", Some(slots.take()), None);
    assert_eq!(reaper.quarantine(), quarantine);
    assert_eq!(slots.take().uid(), 50_002);
    reaper.finish(Duration::ZERO).await;
}

/// Whoever makes one by the same name knows that it is a second one.
#[tokio::test]
async fn one_that_may_appear_later_is_not_looked_for_at_once() {
    let reaper = reaper();
    reaper.take_if_it_appears_later("later");
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(reaper.take_back("later", SOON).await, Some(true));
    reaper.finish(Duration::ZERO).await;
}

#[tokio::test]
async fn only_a_container_that_nobody_has_seen_is_taken_back() {
    let reaper = reaper();
    reaper.take_if_it_appears("unseen");
    reaper.take("seen", None, None);
    assert_eq!(reaper.take_back("unseen", SOON).await, Some(true));
    let again = reaper.take_back("unseen", SOON).await;
    assert_eq!(again, Some(false), "there is none any more");
    assert_eq!(reaper.take_back("seen", SOON).await, None);
    reaper.finish(Duration::ZERO).await;
}

/// While the engine is being asked for it nobody can know whether it is there.
#[tokio::test]
async fn one_that_is_just_being_looked_for_is_taken_back_as_soon_as_it_was() {
    let reaper = reaper();
    reaper.take_if_it_appears("unseen");
    let set_tried = |is_tried| {
        let mut pending = lock(&reaper.shared.pending);
        pending.get_mut("unseen").unwrap().is_tried = is_tried;
    };
    set_tried(true);
    assert_eq!(reaper.take_back("unseen", Duration::ZERO).await, None);
    let looked = async {
        tokio::task::yield_now().await;
        set_tried(false);
        reaper.shared.changed.notify_waiters();
    };
    let (taken, ()) = tokio::join!(reaper.take_back("unseen", SOON), looked);
    assert_eq!(taken, Some(true));
    reaper.finish(Duration::ZERO).await;
}
