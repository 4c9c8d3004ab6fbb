//! What counts as time that has passed.

use super::*;
use crate::runs::store::retained::Thing;
use crate::runs::store::sqlite::retention::sighted;

/// What the host has been up between two daemons counts, and what lies between two lives of it does not:
/// only the wall clock could tell that.
#[tokio::test]
async fn between_two_daemons_counts_what_cannot_be_set() {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let earlier = "UPDATE kept_clock SET up = up - 48 * 3600000000";
    let other_life = "UPDATE kept_clock SET up = 0, boot = 'another'";
    for (change, most, gone) in [(earlier, 49, 0), (earlier, 47, 1), (other_life, 1, 0)] {
        let place = Place::new();
        let store = place.open().await;
        several(&store, 1).await;
        store.note_time().await.unwrap();
        store.close().await;
        let connection = rusqlite::Connection::open(place.file()).unwrap();
        connection.execute(change, []).unwrap();
        connection.close().unwrap();
        let store = Arc::new(place.open().await);
        let mut rules = Rules::default();
        rules.all.age = Some(hours(most));
        let done = pass(&retention(&store, &Shelf::with([], Manner::Sound), rules)).await;
        assert_eq!(done.runs, gone, "{change}, {most} hours");
    }
}

/// What is on the engine is as old as it has been seen, whatever it is called and whoever has it.
#[tokio::test]
async fn a_thing_is_as_old_as_it_has_been_seen() {
    let thing = |name: &str, mark: &str| Thing {
        kind: "volume".to_owned(),
        name: name.to_owned(),
        mark: mark.to_owned(),
    };
    let hours = |age: &Duration| age.as_secs() / 3600;
    let place = Place::new();
    let store = place.open().await;
    let both = vec![thing("a", "1"), thing("b", "1")];
    let ages = store.sight(both.clone()).await.unwrap();
    assert_eq!(ages, [Duration::ZERO; 2]);
    store.note_time().await.unwrap();
    store.close().await;
    let later = || {
        let connection = rusqlite::Connection::open(place.file()).unwrap();
        let change = "UPDATE kept_clock SET kept = kept + 48 * 3600000000";
        connection.execute(change, []).unwrap();
        connection.close().unwrap();
    };
    later();
    let store = place.open().await;
    let seen = sighted(&place.file(), &[thing("a", "1"), thing("c", "1")]).unwrap();
    assert_eq!(seen[0].as_ref().map(hours), Some(48));
    assert_eq!(seen[1], None);
    // Another one of the same name is new, and so is one that was away.
    let now = vec![thing("b", "2"), thing("a", "1")];
    let ages = store.sight(now).await.unwrap();
    assert_eq!(ages.iter().map(hours).collect::<Vec<_>>(), [0, 48]);
    store.sight(Vec::new()).await.unwrap();
    assert_eq!(store.sight(both).await.unwrap(), [Duration::ZERO; 2]);
    store.close().await;
}
