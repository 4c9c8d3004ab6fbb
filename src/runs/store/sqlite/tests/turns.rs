//! What counts as a turn of a run.

use super::*;
use crate::runs::record::RunOutcome;

#[tokio::test]
async fn the_look_at_a_data_set_is_recorded_like_a_turn_and_counts_as_none() {
    let place = Place::new();
    let store = place.open().await;
    let id = place.insert(&store, "a").await;
    start(&store, id).await;
    let planned = OpenExecution::first(ExecutionId::random(), id);
    store.plan_execution(&planned).await.unwrap();
    let look = episode(id, 0, &planned.id);
    let kept = recorded(&look, "the script");
    store.add_episode(&kept).await.unwrap();
    assert_eq!(store.open_executions().await.unwrap(), []);
    assert!(
        store
            .receipt(id, Some(&planned.id))
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(
        store.episodes(id).await.unwrap(),
        std::slice::from_ref(&look)
    );
    assert_eq!(store.last_episode(id).await.unwrap(), None);
    assert_eq!(store.last_program(id).await.unwrap(), None);

    for iteration in [1, 2] {
        let turn = episode(id, iteration, &ExecutionId::random());
        let program = format!("program {iteration}");
        store.add_episode(&recorded(&turn, &program)).await.unwrap();
    }
    let last = store.last_episode(id).await.unwrap();
    assert_eq!(last.unwrap().iteration, 2);
    let program = store.last_program(id).await.unwrap();
    assert_eq!(program.as_deref(), Some("program 2"));
    let outcome = RunOutcome::cut_short(
        Ending::Fail,
        "x".to_owned(),
        &store.episodes(id).await.unwrap(),
    );
    assert_eq!(outcome.iterations, 2);
}
