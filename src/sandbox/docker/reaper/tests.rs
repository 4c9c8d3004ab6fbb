//! What is remembered of containers, without an engine.

use super::*;
use crate::sandbox::health::CallBounds;
use crate::sandbox::slots::Slots;

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
    assert!(reaper.take_back("later"));
    reaper.finish(Duration::ZERO).await;
}

#[tokio::test]
async fn only_a_container_that_nobody_has_seen_is_taken_back() {
    let reaper = reaper();
    reaper.take_if_it_appears("unseen");
    reaper.take("seen", None, None);
    assert!(reaper.take_back("unseen"));
    assert!(!reaper.take_back("unseen"), "there is none any more");
    assert!(!reaper.take_back("seen"));
    reaper.finish(Duration::ZERO).await;
}
