//! A disk that has damaged the store, is full, or is too slow for a check of all of it.

use super::*;

#[test]
fn what_takes_too_long_is_interrupted_and_what_does_not_is_left_alone() {
    let connection = Connection::open_in_memory().unwrap();
    let count = |connection: &Connection, most: i64| {
        let count = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT ?) \
                     SELECT count(*) FROM c";
        connection.query_row(count, [most], |row| row.get::<_, i64>(0))
    };
    let soon = Duration::from_millis(1);
    let ended = open::within(soon, &connection, |c| count(c, i64::MAX)).unwrap_err();
    let code = ended.sqlite_error_code();
    assert_eq!(code, Some(rusqlite::ErrorCode::OperationInterrupted));
    let hour = Duration::from_secs(3600);
    assert_eq!(open::within(hour, &connection, |c| count(c, 9)).unwrap(), 9);
}

#[tokio::test]
async fn a_check_that_takes_too_long_is_left_off_and_one_with_time_is_not() {
    let place = Place::new();
    let store = place.open().await;
    let mut run = new_run("a");
    run.request.code = Some("x".repeat(1 << 20));
    for _ in 0..40 {
        run.id = RunId::random();
        store.insert(&run, 99).await.unwrap();
    }
    store.close().await;
    // A page that belongs to nobody, which the check alone sees, after it has read all of the rest.
    let connection = second_connection(&place, OpenFlags::SQLITE_OPEN_READ_WRITE);
    let lose = "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'removals'";
    connection.execute_batch(lose).unwrap();
    connection.close().unwrap();
    let damaged = SqliteStore::open(&place.file(), notary()).await;
    assert!(
        matches!(damaged, Err(StoreError::Corrupt(_))),
        "{damaged:?}"
    );
    let impatient = StoreSettings {
        check_limit: Duration::ZERO,
        ..StoreSettings::default()
    };
    let opened = SqliteStore::open_with(&place.file(), notary(), impatient).await;
    assert!(opened.is_ok(), "{opened:?}");
}

#[tokio::test]
async fn a_full_disk_gives_the_reserve_to_what_was_accepted() {
    let place = Place::new();
    let settings = StoreSettings {
        space: SpaceSettings {
            floor: 1,
            reserve: 1 << 20,
        },
        ..StoreSettings::default()
    };
    let file = place.file();
    let store = SqliteStore::open_with(&file, notary(), settings)
        .await
        .unwrap();
    let reserve = file.with_file_name("fumehood.db.reserve");
    assert_eq!(std::fs::metadata(&reserve).unwrap().len(), 1 << 20);
    let id = place.insert(&store, "a").await;
    start(&store, id).await;
    // As a disk is full for SQLite: the database may not grow.
    let pages = pragma(&store, "page_count").await.parse::<i64>().unwrap();
    let bound = format!("PRAGMA max_page_count = {pages}").leak();
    store.writer.run(testing::Statements(bound)).await.unwrap();
    let mut last = recorded(&episode(id, 1, &ExecutionId::random()), "");
    last.code = "x".repeat(1 << 20);
    let last = Alongside::Episode(Box::new(last));
    assert!(store.apply(id, finish(Ending::Fail), &last).await.is_err());
    assert!(!reserve.exists());
    let wide = "PRAGMA max_page_count = 1000000";
    store.writer.run(testing::Statements(wide)).await.unwrap();
    let ended = store.apply(id, finish(Ending::Fail), &last).await;
    assert!(ended.unwrap().unwrap().is_ok());
    // New runs only with the reserve in place again.
    place.insert(&store, "a").await;
    assert!(reserve.exists());
}

#[tokio::test]
async fn a_damaged_or_foreign_file_is_refused_and_left_as_it_was() {
    let place = Place::new();
    let store = place.open().await;
    for _ in 0..20 {
        place.insert(&store, "a").await;
    }
    store.close().await;
    let sound = std::fs::read(place.file()).unwrap();
    let page = 4096;
    let mut damages = vec![b"this is no database, but it is long enough".repeat(100)];
    for at in [10, page, 2 * page, sound.len() - page] {
        let mut damaged = sound.clone();
        damaged[at..at + 64].fill(0xa5);
        damages.push(damaged);
    }
    // Every page once lost, and every page the last.
    for at in (0..sound.len()).step_by(page) {
        let mut zeroed = sound.clone();
        zeroed[at..at + page].fill(0);
        damages.push(zeroed);
        damages.push(sound[..at].to_vec());
    }
    for (index, damaged) in damages.into_iter().enumerate() {
        std::fs::write(place.file(), &damaged).unwrap();
        let opened = SqliteStore::open(&place.file(), notary()).await;
        assert!(
            matches!(opened, Err(StoreError::Corrupt(_))),
            "{index}: {opened:?}"
        );
        assert_eq!(std::fs::read(place.file()).unwrap(), damaged, "{index}");
    }
    // Gone altogether: nothing is begun anew in its place.
    std::fs::remove_file(place.file()).unwrap();
    let gone = SqliteStore::open(&place.file(), notary()).await;
    assert!(matches!(gone, Err(StoreError::Corrupt(_))), "{gone:?}");
    assert!(!place.file().exists());
    std::fs::write(place.file(), &sound).unwrap();
    assert_eq!(place.open().await.queued().await.unwrap().len(), 20);
}

/// As the message says: away with all whose names begin with its own.
#[tokio::test]
async fn with_all_its_files_moved_away_it_begins_anew() {
    let place = Place::new();
    let store = place.open().await;
    place.insert(&store, "a").await;
    store.close().await;
    for entry in std::fs::read_dir(place.file().parent().unwrap()).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    assert_eq!(place.open().await.queued().await.unwrap(), []);
}

/// Copies the files of a store as they are, as a loss of power would leave them.
fn copied(from: &Place, log: &[u8]) -> Place {
    let place = Place::new();
    std::fs::create_dir(place.file().parent().unwrap()).unwrap();
    std::fs::copy(from.file(), place.file()).unwrap();
    std::fs::write(place.file().with_file_name("fumehood.db-wal"), log).unwrap();
    place
}

#[tokio::test]
async fn a_torn_or_changed_end_of_the_log_goes_back_to_the_last_whole_commit() {
    let place = Place::new();
    let store = place.open().await;
    store.close().await;
    let store = place.open().await;
    let mut expected = Vec::new();
    for _ in 0..6 {
        expected.push(place.insert(&store, "a").await);
    }
    let log = std::fs::read(place.file().with_file_name("fumehood.db-wal")).unwrap();
    let mut before = 0;
    for part in 0..=24 {
        let end = log.len() * part / 24;
        let copy = copied(&place, &log[..end]);
        let torn = copy.open().await;
        let found: Vec<RunId> = torn
            .queued()
            .await
            .unwrap()
            .iter()
            .map(|run| run.id)
            .collect();
        assert!(found.len() >= before, "{part}");
        assert_eq!(found, expected[..found.len()], "{part}");
        before = found.len();
        let mut changed = log.clone();
        if let Some(byte) = changed.get_mut(end) {
            *byte ^= 0xff;
        }
        let copy = copied(&place, &changed);
        let changed = copy.open().await;
        let kept: Vec<RunId> = changed
            .queued()
            .await
            .unwrap()
            .iter()
            .map(|run| run.id)
            .collect();
        assert_eq!(kept, expected[..kept.len()], "{part}");
    }
    assert_eq!(before, expected.len());
}

/// Wherever a byte is flipped: the file is refused and left as it is, or all runs can be found, or what
/// cannot be read says so. Nothing panics, and nothing is made of it.
#[tokio::test]
async fn a_byte_that_flipped_is_refused_or_harmless_wherever_it_is() {
    let place = Place::new();
    let store = place.open().await;
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(place.insert(&store, "a").await);
    }
    start(&store, ids[0]).await;
    store.close().await;
    let sound = std::fs::read(place.file()).unwrap();
    let mut refused = 0;
    for at in (0..sound.len()).step_by(512) {
        let mut flipped = sound.clone();
        flipped[at] ^= 0xff;
        let copy = Place::new();
        std::fs::create_dir(copy.file().parent().unwrap()).unwrap();
        std::fs::write(copy.file(), &flipped).unwrap();
        match SqliteStore::open(&copy.file(), notary()).await {
            Err(StoreError::Corrupt(_) | StoreError::TooNew { .. }) => {
                refused += 1;
                assert_eq!(std::fs::read(copy.file()).unwrap(), flipped, "{at}");
            }
            Err(other) => assert!(
                matches!(
                    other,
                    StoreError::Unreadable(_) | StoreError::Open { .. } | StoreError::Failed { .. }
                ),
                "{at}: {other:?}"
            ),
            Ok(store) => {
                // None has got lost, whichever way it is looked for.
                match store.queued().await {
                    Ok(waiting) => {
                        let found: Vec<RunId> = waiting.iter().map(|run| run.id).collect();
                        assert_eq!(found, ids[1..], "{at}");
                    }
                    Err(StoreError::Unreadable(_)) => {}
                    Err(other) => panic!("{at}: {other:?}"),
                }
                for id in &ids {
                    let read = store.get_complete(*id).await;
                    assert!(
                        matches!(
                            read,
                            Ok(_)
                                | Err(StoreError::Unreadable(_)
                                    | StoreError::Corrupt(_)
                                    | StoreError::Failed { .. })
                        ),
                        "{at}: {read:?}"
                    );
                }
                store.close().await;
            }
        }
    }
    assert!(refused > 0);
}

/// The quick check of SQLite does not see it: the run would wait for ever, and nobody would find it.
#[tokio::test]
async fn a_run_that_an_index_has_lost_is_damage() {
    let place = Place::new();
    let store = place.open().await;
    place.insert(&store, "a").await;
    store.close().await;
    let schema =
        "UPDATE sqlite_schema SET sql = replace(sql, ?1, ?2) WHERE name = 'runs_by_status'";
    let change = |from: &str, to: &str| {
        let connection = second_connection(&place, OpenFlags::SQLITE_OPEN_READ_WRITE);
        let writable = "PRAGMA writable_schema = ON";
        connection.execute_batch(writable).unwrap();
        assert_eq!(connection.execute(schema, [from, to]).unwrap(), 1);
    };
    // An entry of the right number, in the wrong place.
    change("(status, sequence)", "(client, sequence)");
    let connection = second_connection(&place, OpenFlags::SQLITE_OPEN_READ_WRITE);
    let copy = "INSERT INTO runs (tenant, id, client, outline, status, accepted_at) \
                SELECT tenant, 'another', client, outline, status, accepted_at FROM runs";
    assert_eq!(connection.execute(copy, []).unwrap(), 1);
    connection.close().unwrap();
    change("(client, sequence)", "(status, sequence)");
    let connection = second_connection(&place, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let quick = connection.query_row("PRAGMA quick_check", [], |row| row.get::<_, String>(0));
    assert_eq!(quick.unwrap(), "ok");
    connection.close().unwrap();
    let opened = SqliteStore::open(&place.file(), notary()).await;
    assert!(matches!(opened, Err(StoreError::Corrupt(_))), "{opened:?}");
}
