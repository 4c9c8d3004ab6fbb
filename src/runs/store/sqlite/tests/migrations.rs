//! Files of earlier versions.

use super::*;

/// A file as version 1 of the schema has it, with everything that is in the file of `from`.
fn version_1(from: &Place) -> Place {
    let place = Place::new();
    std::fs::create_dir(place.file().parent().unwrap()).unwrap();
    let connection = Connection::open(place.file()).unwrap();
    let copy = format!(
        "{}; ATTACH '{}' AS present; \
         INSERT INTO runs SELECT sequence, id, client, outline, status, cancel_requested, \
         accepted_at, started_at, ended_at, outcome FROM present.runs; \
         INSERT INTO requests SELECT id, request \
         FROM present.runs JOIN present.requests USING (sequence) ORDER BY id; \
         INSERT INTO idempotency_keys SELECT client, key, fingerprint, run_id \
         FROM present.idempotency_keys; \
         INSERT INTO executions SELECT id, run_id, state FROM present.executions; \
         INSERT INTO episodes SELECT * FROM present.episodes; \
         PRAGMA main.application_id = 0x66756d65; PRAGMA main.user_version = 1",
        include_str!("../schema.sql"),
        from.file().display()
    );
    connection.execute_batch(&copy).unwrap();
    connection.close().unwrap();
    place
}

#[tokio::test]
async fn a_file_of_version_1_keeps_its_rows() {
    let present = Place::new();
    let store = present.open().await;
    let mut expected = Vec::new();
    for number in 0..20 {
        let mut run = new_run("a");
        run.request.code = Some(format!("print({number})"));
        run.idempotency = key(&number.to_string(), "1");
        store.insert(&run, 99).await.unwrap();
        expected.push(run);
    }
    let ended = expected[3].id;
    start(&store, ended).await;
    let last = episode(ended, 1, &ExecutionId::random());
    store
        .add_episode(&recorded(&last, "print()"))
        .await
        .unwrap();
    let end = store.apply(ended, finish(Ending::Success), &Alongside::Nothing);
    end.await.unwrap();
    let mut records = Vec::new();
    for run in &expected {
        records.push(store.get_complete(run.id).await.unwrap());
    }
    store.close().await;

    let place = version_1(&present);
    for _ in 0..2 {
        let store = place.open().await;
        for (run, record) in expected.iter().zip(&records) {
            assert_eq!(store.get_complete(run.id).await.unwrap(), *record);
            let again = store.insert(run, 99).await.unwrap();
            assert_eq!(again, Inserted::Repeated(run.id));
        }
        let kept = store.last_episode(ended).await.unwrap();
        assert_eq!(kept.as_ref(), Some(&last));
        // What was recorded before there were receipts has none.
        assert_eq!(store.receipt(ended, None).await.unwrap(), None);
        store.close().await;
    }
    let store = place.open().await;
    let next = store.insert(&new_run("a"), 99).await.unwrap();
    assert_eq!(next, Inserted::New { sequence: 21 });
    assert_eq!(pragma(&store, "user_version").await, "10");
}

/// A file as version 2 of the schema has it, with one run of a client and its key.
fn version_2() -> (Place, NewRun) {
    let place = Place::new();
    std::fs::create_dir(place.file().parent().unwrap()).unwrap();
    let mut run = new_run("10.0.0.1");
    run.idempotency = key("k", "1");
    let connection = Connection::open(place.file()).unwrap();
    connection
        .execute_batch(include_str!("../schema.sql"))
        .unwrap();
    connection
        .execute_batch(include_str!("../requests_by_sequence.sql"))
        .unwrap();
    let outline = serde_json::to_string(&rows::outline(&run.request)).unwrap();
    let request = serde_json::to_string(&run.request).unwrap();
    let id = run.id.to_string();
    let insert = "INSERT INTO runs (id, client, outline, status, accepted_at) \
                  VALUES (?, ?, ?, 'QUEUED', ?)";
    let accepted_at = run.accepted_at.as_microsecond();
    let values = params![id, run.client.0, outline, accepted_at];
    connection.execute(insert, values).unwrap();
    let insert = "INSERT INTO requests (sequence, request) VALUES (1, ?)";
    connection.execute(insert, params![request]).unwrap();
    let insert = "INSERT INTO idempotency_keys (client, key, fingerprint, run_id) \
                  VALUES (?, 'k', '1', ?)";
    connection
        .execute(insert, params![run.client.0, id])
        .unwrap();
    let marks = "PRAGMA application_id = 0x66756d65; PRAGMA user_version = 2";
    connection.execute_batch(marks).unwrap();
    connection.close().unwrap();
    (place, run)
}

#[tokio::test]
async fn the_runs_and_keys_of_version_2_belong_to_the_default_tenant() {
    let (place, mut run) = version_2();
    let store = place.open().await;
    let found = store.find(tenant(), run.id).await.unwrap().unwrap();
    assert_eq!((&found.tenant, &found.client), (tenant(), &run.client));
    let other = TenantId::parse("alice").unwrap();
    assert_eq!(store.find(&other, run.id).await.unwrap(), None);
    let filter = RunFilter {
        limit: 9,
        ..RunFilter::default()
    };
    assert_eq!(store.list(tenant(), &filter).await.unwrap(), [found]);
    // The key is still the client's.
    let id = run.id;
    run.id = RunId::random();
    run.idempotency = run.idempotency.map(|key| IdempotencyKey {
        scope: run.client.clone(),
        ..key
    });
    let again = store.insert(&run, 9).await.unwrap();
    assert_eq!(again, Inserted::Repeated(id));
    assert_eq!(pragma(&store, "user_version").await, "10");
}

/// A file as version 3 or a later one has it, with everything of `from` that it has a place for.
pub(super) fn of_version(version: usize, from: &Place) -> Place {
    let place = Place::new();
    std::fs::create_dir(place.file().parent().unwrap()).unwrap();
    let connection = Connection::open(place.file()).unwrap();
    for step in &open::MIGRATIONS[..version] {
        connection.execute_batch(step).unwrap();
    }
    let attach = format!("ATTACH '{}' AS present", from.file().display());
    connection.execute_batch(&attach).unwrap();
    let names = |query: &str| -> Vec<String> {
        let mut statement = connection.prepare(query).unwrap();
        let names = statement.query_map([], |row| row.get(0)).unwrap();
        names.map(Result::unwrap).collect()
    };
    let tables =
        "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
    for table in names(tables) {
        let of = |database: &str| {
            names(&format!(
                "SELECT name FROM pragma_table_info('{table}', '{database}')"
            ))
        };
        let (columns, present) = (of("main"), of("present"));
        // What has lost a column since is left as the steps made it.
        if columns.iter().any(|column| !present.contains(column)) {
            continue;
        }
        let columns = columns.join(", ");
        let copy =
            format!("REPLACE INTO main.{table} ({columns}) SELECT {columns} FROM present.{table}");
        connection.execute_batch(&copy).unwrap();
    }
    let marks =
        format!("PRAGMA main.application_id = 0x66756d65; PRAGMA main.user_version = {version}");
    connection.execute_batch(&marks).unwrap();
    connection.close().unwrap();
    place
}

#[tokio::test]
async fn files_of_versions_3_to_7_keep_their_rows_and_their_runs_begin_to_age() {
    use crate::runs::store::retained::Retained as _;

    let present = Place::new();
    let store = present.open().await;
    let waiting = present.insert(&store, "a").await;
    let ended = present.insert(&store, "a").await;
    start(&store, ended).await;
    let last = episode(ended, 1, &ExecutionId::random());
    let last = Alongside::Episode(Box::new(recorded(&last, "print()")));
    let end = store.apply(ended, finish(Ending::Success), &last).await;
    end.unwrap().unwrap().unwrap();
    let kept_runs = [waiting, ended];
    let mut records = Vec::new();
    for id in kept_runs {
        records.push(store.get_complete(id).await.unwrap());
    }
    let going_on = present.insert(&store, "a").await;
    start(&store, going_on).await;
    let planned = OpenExecution::first(ExecutionId::random(), going_on);
    store.plan_execution(&planned).await.unwrap();
    let kept = store.kept_totals(tenant()).await.unwrap();
    store.close().await;

    for version in 3..=7 {
        let place = of_version(version, &present);
        let store = place.open().await;
        for (id, record) in kept_runs.iter().zip(&records) {
            assert_eq!(store.get_complete(*id).await.unwrap(), *record, "{version}");
        }
        assert_eq!(pragma(&store, "user_version").await, "10");
        // Of an execution from before the attempts were counted (version 7) it is not known whether
        // the host was started anew.
        let expected = OpenExecution {
            host_restarted: version < 7,
            ..planned.clone()
        };
        let open = store.open_executions().await.unwrap();
        assert_eq!(open, [expected], "{version}");
        let receipt = store.receipt(ended, None).await.unwrap();
        assert_eq!(receipt.is_some(), version >= 4);
        // What is over begins to age now, and takes what it takes.
        assert_eq!(
            store.kept_totals(tenant()).await.unwrap(),
            kept,
            "{version}"
        );
        let oldest = store.kept_oldest(tenant(), 9).await.unwrap();
        assert!(oldest[0].age < Duration::from_secs(600), "{version}");
        // It can go.
        let sequence = oldest[0].sequence;
        assert_eq!(store.remove(vec![sequence]).await.unwrap(), [ended]);
        assert_eq!(store.get(ended).await.unwrap(), None);
    }
}

/// What earlier versions wrote is the state directory's that opens it first.
#[tokio::test]
async fn a_file_that_was_nobodys_is_the_one_that_opened_it_first_and_no_others() {
    let (place, _run) = version_2();
    place.open().await.close().await;
    let other = SqliteStore::open(&place.file(), notary_with(7, "mnopqrstuvwx")).await;
    assert!(
        matches!(&other, Err(StoreError::OtherInstance { owner, .. }) if owner == "abcdefghijkl"),
        "{other:?}"
    );
    place.open().await.close().await;
}
