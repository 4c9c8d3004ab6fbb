//! The chain of receipts in the store: one for each execution, without gap or fork, whatever happens
//! to the operations that make them.

use futures_util::future::join_all;

use super::batches::{Answer, in_one_batch, told};
use super::testing::Statements;
use super::*;
use crate::receipt::Receipt;
use crate::receipt::testing::{notary, notary_with};
use crate::runs::store::sqlite::access::Access;
use crate::runs::store::sqlite::export;
use crate::runs::store::sqlite::failure::Flushes;
use crate::runs::store::sqlite::receipts::{Standing, standing};

/// Every receipt, in order of the table's numbers, each opened.
fn chain(place: &Place) -> Vec<Receipt> {
    let connection = second_connection(place, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let query = "SELECT receipt FROM receipts ORDER BY number";
    let mut statement = connection.prepare(query).unwrap();
    let texts = statement.query_map([], |row| row.get::<_, String>(0));
    texts
        .unwrap()
        .map(|text| Receipt::open(text.unwrap().as_bytes()).unwrap())
        .collect()
}

/// Checks that the receipts of a place are one chain; gives their executions in order.
fn executions(place: &Place) -> Vec<String> {
    let chain = chain(place);
    for (receipt, number) in chain.iter().zip(1i64..) {
        assert_eq!(receipt.number(), number);
    }
    for pair in chain.windows(2) {
        assert_eq!(pair[1].follows(&pair[0]), []);
    }
    chain
        .iter()
        .map(|receipt| receipt.execution().to_owned())
        .collect()
}

async fn running(place: &Place, store: &SqliteStore) -> RunId {
    let id = place.insert(store, "a").await;
    start(store, id).await;
    id
}

fn add<'s>(store: &'s SqliteStore, run: RunId, iteration: u32, id: &ExecutionId) -> Answer<'s> {
    let recorded = recorded(&episode(run, iteration, id), "print()");
    Box::pin(async move { told(store.add_episode(&recorded).await) })
}

#[tokio::test]
async fn the_chain_goes_on_through_batches_restarts_and_keys() {
    let place = Place::new();
    let mut expected = Vec::new();
    for _ in 0..3 {
        let store = place.open().await;
        let run = running(&place, &store).await;
        let ids: Vec<ExecutionId> = (0..5).map(|_| ExecutionId::random()).collect();
        let adding = ids
            .iter()
            .zip(1..)
            .map(|(id, turn)| add(&store, run, turn, id));
        in_one_batch(&store, adding).await;
        expected.extend(ids.iter().map(ToString::to_string));
        let last = store.receipt(run, None).await.unwrap().unwrap();
        let last = Receipt::open(last.as_bytes()).unwrap();
        assert_eq!(last.execution(), ids[4].as_str());
        assert_eq!(last.run(), run.to_string());
        store.close().await;
    }
    assert_eq!(executions(&place), expected);
}

#[tokio::test]
async fn executions_that_end_at_once_have_different_places() {
    let place = Place::new();
    let store = place.open().await;
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(running(&place, &store).await);
    }
    let ids: Vec<ExecutionId> = runs.iter().map(|_| ExecutionId::random()).collect();
    let adding = runs
        .iter()
        .zip(&ids)
        .map(|(run, id)| add(&store, *run, 1, id));
    for answer in join_all(adding).await {
        assert_eq!(answer, "()");
    }
    let mut expected: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let mut found = executions(&place);
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn what_is_refused_or_rolled_back_takes_no_number() {
    let place = Place::new();
    let store = place.open().await;
    let run = running(&place, &store).await;
    let waiting = place.insert(&store, "a").await;
    let ids: Vec<ExecutionId> = (0..4).map(|_| ExecutionId::random()).collect();
    let failing: Answer<'_> = Box::pin(async {
        let half = "INSERT INTO receipts SELECT max(number) + 1, 'exec_00000000', run_id, 'x', 'x' \
             FROM receipts; INSERT INTO nowhere VALUES (1)";
        told(store.writer.run(Statements(half)).await)
    });
    let operations = [
        add(&store, run, 1, &ids[0]),
        // Not being carried out.
        add(&store, waiting, 1, &ids[1]),
        // The turn was there before.
        add(&store, run, 1, &ids[2]),
        failing,
        // The execution was there before.
        add(&store, run, 2, &ids[0]),
        add(&store, run, 3, &ids[3]),
    ];
    let answers = in_one_batch(&store, operations).await;
    let accepted: Vec<bool> = answers.iter().map(|answer| answer == "()").collect();
    assert_eq!(
        accepted,
        [true, false, false, false, false, true],
        "{answers:?}"
    );
    assert_eq!(executions(&place), [ids[0].to_string(), ids[3].to_string()]);
    assert_eq!(store.episodes(run).await.unwrap().len(), 2);
    // An operation that is alone has its own transaction.
    add(&store, run, 3, &ids[1]).await;
    add(&store, run, 4, &ids[1]).await;
    assert_eq!(executions(&place).len(), 3);
}

#[tokio::test]
async fn a_last_episode_and_its_receipt_are_recorded_with_the_end_of_the_run() {
    let place = Place::new();
    let store = place.open().await;
    let run = running(&place, &store).await;
    assert_eq!(store.receipt(run, None).await.unwrap(), None);
    let execution = ExecutionId::random();
    let last = Box::new(recorded(&episode(run, 1, &execution), "print()"));
    let before = place.commits();
    for _ in 0..2 {
        let ending = Alongside::Episode(last.clone());
        let ended = store.apply(run, finish(Ending::Fail), &ending).await;
        assert!(ended.unwrap().is_some());
    }
    assert_eq!(place.commits() - before, 1);
    assert_eq!(executions(&place), [execution.to_string()]);
}

#[tokio::test]
async fn an_execution_that_was_lost_gets_one_receipt_that_says_so() {
    let place = Place::new();
    let store = place.open().await;
    let run = running(&place, &store).await;
    let planned = |id| OpenExecution::first(id, run);
    let (lost, ended) = (ExecutionId::random(), ExecutionId::random());
    store.plan_execution(&planned(lost.clone())).await.unwrap();
    store.plan_execution(&planned(ended.clone())).await.unwrap();
    add(&store, run, 1, &ended).await;
    for _ in 0..2 {
        store.abandon_execution(&lost).await.unwrap();
        store.abandon_execution(&ended).await.unwrap();
        store
            .abandon_execution(&ExecutionId::random())
            .await
            .unwrap();
    }
    assert_eq!(executions(&place), [ended.to_string(), lost.to_string()]);
    assert_eq!(chain(&place)[1].status(), "LOST");
    assert_eq!(store.open_executions().await.unwrap(), []);
}

#[tokio::test]
async fn of_an_unknown_run_there_is_no_receipt() {
    let place = Place::new();
    let store = place.open().await;
    assert_eq!(store.receipt(RunId::random(), None).await.unwrap(), None);
}

#[tokio::test]
async fn the_receipt_of_each_execution_of_a_run_is_found_and_of_no_other_run() {
    let place = Place::new();
    let store = place.open().await;
    let (run, other) = (running(&place, &store).await, running(&place, &store).await);
    let ids: Vec<ExecutionId> = (0..3).map(|_| ExecutionId::random()).collect();
    for (id, turn) in ids.iter().zip(1..) {
        assert_eq!(add(&store, run, turn, id).await, "()");
    }
    for id in &ids {
        let text = store.receipt(run, Some(id)).await.unwrap().unwrap();
        let receipt = Receipt::open(text.as_bytes()).unwrap();
        assert_eq!(receipt.execution(), id.as_str());
        assert_eq!(store.receipt(other, Some(id)).await.unwrap(), None);
    }
    let unknown = ExecutionId::random();
    assert_eq!(store.receipt(run, Some(&unknown)).await.unwrap(), None);
}

fn stood(place: &Place, secret: u8) -> Standing {
    let connection = second_connection(place, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let flushes = Flushes::default();
    let access = Access::new(&connection, &flushes, "look");
    standing(access, notary_with(secret, "abcdefghijkl").public_key()).unwrap()
}

#[tokio::test]
async fn another_key_or_a_changed_end_of_the_chain_is_noticed_at_the_start() {
    let place = Place::new();
    let store = place.open().await;
    assert_eq!(stood(&place, 7), Standing::Sound);
    let run = running(&place, &store).await;
    for turn in 1..3 {
        add(&store, run, turn, &ExecutionId::random()).await;
    }
    store.close().await;
    assert_eq!(stood(&place, 7), Standing::Sound);
    let previous = notary().public_key();
    let replaced = Standing::KeyReplaced {
        number: 2,
        previous,
    };
    assert_eq!(stood(&place, 8), replaced);

    let change = |statement: &str| {
        let connection = second_connection(&place, OpenFlags::SQLITE_OPEN_READ_WRITE);
        assert_eq!(connection.execute(statement, []).unwrap(), 1);
    };
    change("UPDATE receipts SET link = 'elsewhere' WHERE number = 2");
    assert_eq!(stood(&place, 7), Standing::Unlinked { number: 2 });
    change("UPDATE receipts SET receipt = replace(receipt, 'exec_', 'exec-') WHERE number = 2");
    let changed = stood(&place, 7);
    assert!(
        matches!(changed, Standing::Changed { number: 2, .. }),
        "{changed:?}"
    );
    // What can still be recorded is worth recording: it is told, and the store is used.
    let store = place.open().await;
    assert_eq!(add(&store, run, 3, &ExecutionId::random()).await, "()");
}

#[tokio::test]
async fn the_chain_is_read_out_in_order_while_the_store_is_in_use() {
    let place = Place::new();
    let read = |from| {
        let mut numbers = Vec::new();
        export::receipts(&place.file(), from, |text| {
            numbers.push(Receipt::open(text.as_bytes()).unwrap().number());
            true
        })
        .unwrap();
        numbers
    };
    let store = place.open().await;
    assert_eq!(read(1), [0i64; 0]);
    let run = running(&place, &store).await;
    for turn in 1..=40 {
        add(&store, run, turn, &ExecutionId::random()).await;
    }
    assert_eq!(read(1), (1..=40).collect::<Vec<i64>>());
    assert_eq!(read(39), [39, 40]);
    assert_eq!(read(41), [0i64; 0]);
    let mut taken = 0;
    let two = |_| {
        taken += 1;
        taken < 2
    };
    export::receipts(&place.file(), 1, two).unwrap();
    assert_eq!(taken, 2);
    store.close().await;
    assert_eq!(read(40), [40]);
    let nowhere = place.directory.path().join("nowhere.db");
    assert!(export::receipts(&nowhere, 1, |_| true).is_err());
    assert!(!nowhere.exists());
}

#[tokio::test]
async fn a_store_of_another_version_is_not_read_out() {
    let place = Place::new();
    place.open().await.close().await;
    for (version, old) in [(2, true), (99, false)] {
        let connection = second_connection(&place, OpenFlags::SQLITE_OPEN_READ_WRITE);
        connection
            .pragma_update(None, "user_version", version)
            .unwrap();
        drop(connection);
        let error = export::receipts(&place.file(), 1, |_| true).unwrap_err();
        assert_eq!(
            matches!(error, StoreError::TooOld { found: 2, .. }),
            old,
            "{error}"
        );
        assert_eq!(matches!(error, StoreError::TooNew { found: 99, .. }), !old);
    }
}
