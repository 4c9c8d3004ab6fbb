//! Files of earlier versions.

use super::*;

/// A file as version 1 of the schema has it, with everything that is in the file of `from`.
fn version_1(from: &Place) -> Place {
    let place = Place::new();
    std::fs::create_dir(place.file().parent().unwrap()).unwrap();
    let connection = Connection::open(place.file()).unwrap();
    let copy = format!(
        "{}; ATTACH '{}' AS present; \
         INSERT INTO runs SELECT * FROM present.runs; \
         INSERT INTO requests SELECT id, request \
         FROM present.runs JOIN present.requests USING (sequence) ORDER BY id; \
         INSERT INTO idempotency_keys SELECT * FROM present.idempotency_keys; \
         INSERT INTO executions SELECT * FROM present.executions; \
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
    assert_eq!(pragma(&store, "user_version").await, "4");
}
