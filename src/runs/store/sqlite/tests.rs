//! The store against real files, damaged ones included.

mod batches;

mod faults;

mod migrations;

mod disk;

mod full;

mod tenants;

mod receipts;

mod testing;

mod turns;

use std::os::unix::fs::PermissionsExt as _;

use futures_util::future::join_all;
use rusqlite::{Connection, OpenFlags};

use super::*;
use crate::ids::ClientKey;
use crate::receipt::testing::{notary, notary_with};
use crate::runs::record::Ending;
use crate::runs::service::testing::{
    Place, client, episode, finish, new_run, recorded, request, start, tenant,
};
use crate::runs::state::RunState;
use crate::runs::store::IdempotencyKey;

fn key(text: &str, fingerprint: &str) -> Option<IdempotencyKey> {
    Some(IdempotencyKey {
        scope: ClientKey(String::new()),
        key: text.to_owned(),
        fingerprint: fingerprint.to_owned(),
    })
}

fn is_new(inserted: &Inserted) -> bool {
    matches!(inserted, Inserted::New { .. })
}

/// A setting of the connection that writes.
async fn pragma(store: &SqliteStore, name: &'static str) -> String {
    store.writer.run(testing::Pragma(name)).await.unwrap()
}

fn second_connection(place: &Place, mode: OpenFlags) -> Connection {
    Connection::open_with_flags(place.file(), mode).unwrap()
}

#[tokio::test]
async fn a_run_comes_back_as_it_was_kept_and_survives_a_restart() {
    let place = Place::new();
    let store = place.open().await;
    let run = new_run("a");
    store.insert(&run, 1).await.unwrap();
    for reopened in [false, true] {
        let store = if reopened {
            store.close().await;
            &place.open().await
        } else {
            &store
        };
        let complete = store.get_complete(run.id).await.unwrap().unwrap();
        assert_eq!(complete.request, request());
        assert_eq!(complete.state, RunState::Queued);
        assert_eq!(complete.accepted_at, run.accepted_at);
        assert_eq!(complete.client, client("a"));
        assert_eq!(store.get(RunId::random()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn an_outline_has_no_program_and_no_bytes() {
    let place = Place::new();
    let store = place.open().await;
    let id = place.insert(&store, "a").await;
    let outline = store.get(id).await.unwrap().unwrap().request;
    assert_eq!(outline.code.as_deref(), Some(""));
    assert_eq!(outline.bash_script.as_deref(), Some(""));
    assert_eq!(outline.input_files["a.bin"], b"");
    assert_eq!(outline.user_instruction, request().user_instruction);
}

#[tokio::test]
async fn what_was_answered_is_on_disk_for_everybody() {
    let place = Place::new();
    let store = place.open().await;
    let id = place.insert(&store, "a").await;
    let other = second_connection(&place, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let status: String = other
        .query_row(
            "SELECT status FROM runs WHERE id = ?",
            [id.to_string()],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(status, "QUEUED");
    assert_eq!(pragma(&store, "journal_mode").await, "wal");
    assert_eq!(pragma(&store, "synchronous").await, "2");
}

#[tokio::test]
async fn only_the_owner_can_read_the_files() {
    let place = Place::new();
    let store = place.open().await;
    place.insert(&store, "a").await;
    let state = place.file().parent().unwrap().to_owned();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    let mut files = 0;
    for entry in std::fs::read_dir(state).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
        files += 1;
    }
    assert!(files >= 3, "database, log and lock");
}

#[tokio::test]
async fn a_second_daemon_is_refused_until_the_first_has_closed() {
    let place = Place::new();
    let store = place.open().await;
    let second = SqliteStore::open(&place.file(), notary()).await;
    assert!(matches!(second, Err(StoreError::InUse { .. })));
    store.close().await;
    place.open().await;
}

/// The sandboxes of what is open in it would be unknown there, and its programs be started twice.
#[tokio::test]
async fn another_state_directory_is_refused_and_changes_nothing() {
    let place = Place::new();
    place.open().await.close().await;
    let before = std::fs::read(place.file()).unwrap();
    let other = SqliteStore::open(&place.file(), notary_with(7, "mnopqrstuvwx")).await;
    let Err(StoreError::OtherInstance { owner, own }) = other else {
        panic!("{other:?}");
    };
    assert_eq!(
        (owner.as_str(), own.as_str()),
        ("abcdefghijkl", "mnopqrstuvwx")
    );
    assert_eq!(std::fs::read(place.file()).unwrap(), before);
    // Nobody is kept away by the attempt.
    place.open().await.close().await;
}

#[tokio::test]
async fn files_of_other_programs_and_newer_versions_are_refused() {
    let place = Place::new();
    place.open().await.close().await;
    let other = second_connection(&place, OpenFlags::SQLITE_OPEN_READ_WRITE);
    other.execute_batch("PRAGMA user_version = 99").unwrap();
    other.close().unwrap();
    let newer = SqliteStore::open(&place.file(), notary()).await;
    assert!(matches!(
        newer,
        Err(StoreError::TooNew {
            found: 99,
            known: 10
        })
    ));

    let foreign = place.directory.path().join("foreign.db");
    let connection = Connection::open(&foreign).unwrap();
    connection.execute_batch("CREATE TABLE runs (id)").unwrap();
    let refused = SqliteStore::open(&foreign, notary()).await;
    assert!(matches!(refused, Err(StoreError::Corrupt(_))));
}

#[tokio::test]
async fn keys_belong_to_a_client_and_a_body() {
    let place = Place::new();
    let store = place.open().await;
    let with = |name: &str, idempotency: Option<IdempotencyKey>| NewRun {
        idempotency: idempotency.map(|key| IdempotencyKey {
            scope: client(name),
            ..key
        }),
        ..new_run(name)
    };
    let first = with("a", key("k", "1"));
    assert!(is_new(&store.insert(&first, 2).await.unwrap()));
    let second = with("b", key("k", "2"));
    assert!(is_new(&store.insert(&second, 2).await.unwrap()));
    for (run, expected) in [
        (with("a", key("k", "1")), Inserted::Repeated(first.id)),
        (with("a", key("k", "2")), Inserted::KeyReused),
        (with("a", key("l", "1")), Inserted::QueueFull),
        (with("a", None), Inserted::QueueFull),
    ] {
        assert_eq!(store.insert(&run, 2).await.unwrap(), expected);
    }
    for (name, idempotency, expected) in [
        ("a", key("k", "1"), Some(first.id)),
        ("a", key("k", "2"), None),
        ("b", key("k", "1"), None),
        ("a", key("l", "1"), None),
    ] {
        let run = with(name, idempotency);
        let known = store.repeated(&run.tenant, run.idempotency.as_ref().unwrap());
        assert_eq!(known.await.unwrap(), expected);
    }
    // A refused run leaves its key free.
    let later = with("a", key("l", "3"));
    assert!(is_new(&store.insert(&later, 3).await.unwrap()));
}

#[tokio::test]
async fn nothing_new_is_accepted_on_a_disk_that_is_nearly_full() {
    let place = Place::new();
    let store = place.open().await;
    let running = place.insert(&store, "a").await;
    store.room().await.unwrap();
    store.writer.surroundings.space.set_floor(u64::MAX);
    assert!(matches!(
        store.room().await,
        Err(StoreError::LowSpace { .. })
    ));
    let refused = store.insert(&new_run("a"), 9).await;
    assert!(matches!(refused, Err(StoreError::LowSpace { .. })));
    start(&store, running).await;
    let ended = store.apply(running, finish(Ending::Success), &Alongside::Nothing);
    let ended = ended.await;
    assert!(ended.unwrap().unwrap().is_ok());
}

#[tokio::test]
async fn after_a_failed_flush_nothing_more_is_written() {
    let place = Place::new();
    let store = place.open().await;
    assert!(!store.broken().is_cancelled());
    store.writer.surroundings.flushes.give_up();
    let refused = store.insert(&new_run("a"), 9).await;
    assert!(matches!(refused, Err(StoreError::Unflushed)));
    // The daemon ends.
    assert!(store.broken().is_cancelled());
}

#[tokio::test]
async fn the_list_is_newest_first_and_pages_without_gaps() {
    let place = Place::new();
    let store = place.open().await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(place.insert(&store, "a").await);
    }
    start(&store, ids[2]).await;
    ids.reverse();
    let mut filter = RunFilter {
        limit: 3,
        ..RunFilter::default()
    };
    let mut seen = Vec::new();
    loop {
        let page = store.list(tenant(), &filter).await.unwrap();
        let Some(last) = page.last() else { break };
        filter.before = Some(last.sequence);
        seen.extend(page.iter().map(|run| run.id));
        // A run that comes in between changes nothing about older pages.
        place.insert(&store, "b").await;
    }
    assert_eq!(seen, ids);
    let running = RunFilter {
        status: Some("RUNNING".to_owned()),
        before: None,
        limit: 9,
    };
    let running = store.list(tenant(), &running).await.unwrap();
    assert_eq!(
        running.iter().map(|run| run.id).collect::<Vec<_>>(),
        [ids[4]]
    );
    assert_eq!(store.running().await.unwrap(), running);
}

#[tokio::test]
async fn episodes_and_executions_belong_to_runs_that_are_carried_out() {
    let place = Place::new();
    let store = place.open().await;
    let id = place.insert(&store, "a").await;
    let planned = OpenExecution::first(ExecutionId::random(), id);
    let refused = store.plan_execution(&planned).await;
    assert!(matches!(refused, Err(StoreError::NotRunning(run)) if run == id));
    start(&store, id).await;
    store.plan_execution(&planned).await.unwrap();
    assert!(store.plan_execution(&planned).await.is_err());
    let open = store.open_executions().await.unwrap();
    assert_eq!(open, std::slice::from_ref(&planned));

    let first = episode(id, 1, &planned.id);
    store
        .add_episode(&recorded(&first, "print(1)"))
        .await
        .unwrap();
    assert_eq!(store.open_executions().await.unwrap(), []);
    assert!(
        store
            .add_episode(&recorded(&first, "print(1)"))
            .await
            .is_err()
    );
    let second = episode(id, 2, &ExecutionId::random());
    store
        .add_episode(&recorded(&second, "print(2)"))
        .await
        .unwrap();
    assert_eq!(store.episodes(id).await.unwrap(), [first, second.clone()]);
    assert_eq!(store.last_episode(id).await.unwrap(), Some(second));

    let ended = store
        .apply(id, finish(Ending::Fail), &Alongside::Nothing)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended.unwrap().state.status(), "FAIL");
    let late = recorded(&episode(id, 3, &planned.id), "");
    let late = store.add_episode(&late).await;
    assert!(matches!(late, Err(StoreError::NotRunning(_))));
}

#[tokio::test]
async fn of_many_ends_at_once_one_is_written() {
    let place = Place::new();
    let store = place.open().await;
    let id = place.insert(&store, "a").await;
    start(&store, id).await;
    let endings = [Ending::Success, Ending::Fail, Ending::Cancelled];
    let attempts = endings.iter().cycle().take(12);
    let attempts = attempts.map(|e| store.apply(id, finish(*e), &Alongside::Nothing));
    let answers = join_all(attempts).await;
    let mut written = answers
        .into_iter()
        .filter_map(|answer| answer.unwrap().unwrap().ok());
    let winner = written.next().unwrap();
    assert_eq!(written.next(), None);
    assert_eq!(store.get(id).await.unwrap(), Some(winner));
}

/// Whatever calls itself a change of state: the statement itself changes nothing that has ended.
#[tokio::test]
async fn a_terminal_state_is_not_written_over_by_the_statement_itself() {
    let place = Place::new();
    let store = place.open().await;
    let id = place.insert(&store, "a").await;
    start(&store, id).await;
    let end = store.apply(id, finish(Ending::Success), &Alongside::Nothing);
    let ended = end.await.unwrap().unwrap().unwrap();
    store.close().await;
    let other = second_connection(&place, OpenFlags::SQLITE_OPEN_READ_WRITE);
    for before in ["SUCCESS", "RUNNING"] {
        let change = params!["FAIL", false, 1, 2, "{}", 3, 4, ended.sequence, before];
        assert_eq!(other.execute(statements::UPDATE_STATE, change).unwrap(), 0);
    }
    other.close().unwrap();
    assert_eq!(place.open().await.get(id).await.unwrap(), Some(ended));
}

#[tokio::test]
async fn the_judgements_of_many_runs_are_one_answer() {
    let place = Place::new();
    let store = place.open().await;
    let mut ids = Vec::new();
    for decisions in [&["FIX", "FINISH"][..], &[][..], &["FINISH"][..]] {
        let id = place.insert(&store, "a").await;
        start(&store, id).await;
        for (decision, iteration) in decisions.iter().zip(1..) {
            let mut judged = episode(id, iteration, &ExecutionId::random());
            judged.judge_decision = Some((*decision).to_owned());
            judged.judge_reason = Some("\"why\"".to_owned());
            store.add_episode(&recorded(&judged, "")).await.unwrap();
        }
        let unjudged = episode(id, 9, &ExecutionId::random());
        store.add_episode(&recorded(&unjudged, "")).await.unwrap();
        ids.push(id);
    }
    let all = store.judgements(&ids).await.unwrap();
    assert_eq!(all.len(), 3);
    let of = |id: RunId| {
        let own = all.iter().filter(move |one| one.run_id == id);
        own.map(|one| (one.iteration, one.decision.as_str()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(ids[0]), [(1, "FIX"), (2, "FINISH")]);
    assert_eq!(of(ids[2]), [(1, "FINISH")]);
    assert_eq!(all[0].reason.as_deref(), Some("\"why\""));
    assert_eq!(store.judgements(&ids[..1]).await.unwrap().len(), 2);
}
