//! The service over a real store, with an orchestrator that tests can hold and let go.

mod failing_store;

mod left;

mod tenants;

use std::sync::atomic::Ordering;

use futures_util::future::join_all;

use super::testing::{Fake, Manner, Place, client, request, serve, settings, tenant};
use super::*;
use crate::runs::events::{Delivery, RunEvent};
use crate::runs::state::RunState;

/// Longer than anything here takes: passing it is a failure.
const LONG: Duration = Duration::from_secs(30);

async fn submit(service: &RunService, name: &str) -> RunId {
    let submitted = service.submit(request(), client(name), None).await;
    submitted.unwrap().id
}

async fn ended(service: &RunService, id: RunId) -> RunRecord {
    let record = service.wait(tenant(), id, LONG).await.unwrap().unwrap();
    assert!(record.state.outcome().is_some(), "{record:?}");
    record
}

async fn status(service: &RunService, id: RunId) -> &'static str {
    service
        .get(tenant(), id)
        .await
        .unwrap()
        .unwrap()
        .state
        .status()
}

fn final_error(record: &RunRecord) -> &str {
    let outcome = record.state.outcome().unwrap();
    outcome.final_error.as_deref().unwrap()
}

#[tokio::test]
async fn runs_of_a_client_start_in_order_and_never_more_than_there_are_permits() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let mut settings = settings(8);
    settings.max_queued_runs = 100;
    let service = serve(Arc::new(place.open().await), &fake, settings).await;
    let mut expected = Vec::new();
    for _ in 0..40 {
        expected.push(submit(&service, "a").await);
    }
    fake.let_end(40);
    let mut starts = Vec::new();
    for id in &expected {
        let RunState::Ended { started_at, .. } = ended(&service, *id).await.state else {
            panic!("a run is over before it has ended");
        };
        starts.push(started_at.unwrap());
    }
    assert!(starts.is_sorted(), "{starts:?}");
    assert!(fake.most.load(Ordering::SeqCst) <= 8);
    // What is carried out is the whole request.
    assert_eq!(started.recv().await.unwrap().request, request());
}

#[tokio::test]
async fn all_permits_are_used_and_clients_take_turns() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(2)).await;
    for _ in 0..4 {
        submit(&service, "a").await;
    }
    let single = submit(&service, "b").await;
    for _ in 0..2 {
        started.recv().await.unwrap();
    }
    assert_eq!(
        service.in_flight(),
        InFlight {
            queued: 3,
            running: 2
        }
    );
    assert_eq!(fake.most.load(Ordering::SeqCst), 2);
    assert!(service.queue_position(single).unwrap() <= 1);
    fake.let_end(2);
    let next = [started.recv().await.unwrap(), started.recv().await.unwrap()];
    assert!(next.iter().any(|run| run.id == single));
}

#[tokio::test]
async fn a_full_queue_refuses_and_says_how_many_wait() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    submit(&service, "a").await;
    started.recv().await.unwrap();
    let mut waiting = RunId::random();
    for _ in 0..3 {
        waiting = submit(&service, "a").await;
    }
    let refused = service.submit(request(), client("b"), None).await;
    assert!(matches!(
        refused,
        Err(SubmitError::QueueFull { waiting: 3 })
    ));
    service.cancel(tenant(), waiting).await.unwrap();
    submit(&service, "b").await;
}

#[tokio::test]
async fn one_key_sent_fifty_times_at_once_makes_one_run() {
    let place = Place::new();
    let (fake, _started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    let key = |fingerprint: &str| {
        Some(IdempotencyKey {
            scope: client("a"),
            key: "k".to_owned(),
            fingerprint: fingerprint.to_owned(),
        })
    };
    let answers = join_all((0..50).map(|_| service.submit(request(), client("a"), key("1")))).await;
    let answers: Vec<Submitted> = answers.into_iter().map(Result::unwrap).collect();
    assert!(answers.iter().all(|answer| answer.id == answers[0].id));
    assert_eq!(answers.iter().filter(|answer| !answer.repeated).count(), 1);
    let reused = service.submit(request(), client("a"), key("2")).await;
    assert!(matches!(reused, Err(SubmitError::KeyReused)));
}

#[tokio::test]
async fn a_dropped_submission_is_accepted_whole_or_not_at_all() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let (fake, _started) = Fake::new(Manner::Obedient);
    let mut settings = settings(1);
    settings.max_queued_runs = 100;
    let service = serve(Arc::clone(&store) as _, &fake, settings).await;
    for polls in 0..20 {
        let mut submission = Box::pin(service.submit(request(), client("a"), None));
        for _ in 0..polls {
            let _ = futures_util::poll!(&mut submission);
            tokio::task::yield_now().await;
        }
    }
    fake.let_end(100);
    let last = submit(&service, "a").await;
    ended(&service, last).await;
    let filter = RunFilter {
        limit: 100,
        ..RunFilter::default()
    };
    let runs = service.list(tenant(), &filter).await.unwrap();
    assert!(runs.len() >= 19, "every polled submission was accepted");
    assert!(runs.iter().all(|run| run.state.status() == "SUCCESS"));
}

#[tokio::test]
async fn a_waiting_run_ends_at_once_when_it_is_cancelled() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    submit(&service, "a").await;
    started.recv().await.unwrap();
    let waiting = submit(&service, "a").await;
    assert_eq!(
        service.cancel(tenant(), waiting).await.unwrap(),
        CancelAnswer::Accepted
    );
    assert_eq!(status(&service, waiting).await, "CANCELLED");
    assert_eq!(service.queue_position(waiting), None);
    assert_eq!(
        service.cancel(tenant(), waiting).await.unwrap(),
        CancelAnswer::AlreadyEnded
    );
    let unknown = service.cancel(tenant(), RunId::random()).await.unwrap();
    assert_eq!(unknown, CancelAnswer::Unknown);
}

#[tokio::test]
async fn cancelling_a_run_that_goes_on_ends_it_unless_it_ends_itself() {
    for (manner, expected) in [
        (Manner::Obedient, "CANCELLED"),
        (Manner::FasterThanCancel, "SUCCESS"),
        (Manner::Deaf, "CANCELLED"),
    ] {
        let place = Place::new();
        let (fake, mut started) = Fake::new(manner);
        let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
        let id = submit(&service, "a").await;
        started.recv().await.unwrap();
        assert_eq!(
            service.cancel(tenant(), id).await.unwrap(),
            CancelAnswer::Accepted
        );
        assert_eq!(ended(&service, id).await.state.status(), expected);
        // The permit is free again.
        submit(&service, "a").await;
        started.recv().await.unwrap();
    }
}

#[tokio::test]
async fn an_end_and_a_cancellation_at_once_have_one_winner_that_stays() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(4)).await;
    for _ in 0..30 {
        let id = submit(&service, "a").await;
        started.recv().await.unwrap();
        fake.let_end(1);
        let (first, _, _) = tokio::join!(
            ended(&service, id),
            service.cancel(tenant(), id),
            service.cancel(tenant(), id)
        );
        assert_eq!(
            service.get(tenant(), id).await.unwrap(),
            Some(first.clone())
        );
        let again = service.cancel(tenant(), id).await.unwrap();
        assert_eq!(again, CancelAnswer::AlreadyEnded);
        assert_eq!(service.get(tenant(), id).await.unwrap(), Some(first));
    }
}

#[tokio::test]
async fn a_fault_while_carrying_a_run_out_fails_the_run_and_nothing_else() {
    let place = Place::new();
    let (fake, _started) = Fake::new(Manner::Panics);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    for _ in 0..2 {
        let id = submit(&service, "a").await;
        let record = ended(&service, id).await;
        assert_eq!(record.state.status(), "FAIL");
        assert!(final_error(&record).starts_with("Infrastructure: "));
    }
}

#[tokio::test]
async fn a_run_that_takes_too_long_fails_whether_or_not_it_listens() {
    for manner in [Manner::Obedient, Manner::Deaf] {
        let place = Place::new();
        let (fake, _started) = Fake::new(manner);
        let mut settings = settings(1);
        settings.run_timeout = Duration::from_millis(20);
        let service = serve(Arc::new(place.open().await), &fake, settings).await;
        let id = submit(&service, "a").await;
        let record = ended(&service, id).await;
        assert_eq!(
            (record.state.status(), final_error(&record)),
            ("FAIL", "Run timed out after 0.02 seconds.")
        );
    }
}

#[tokio::test]
async fn a_drain_lets_runs_end_by_themselves() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    let id = submit(&service, "a").await;
    started.recv().await.unwrap();
    tokio::join!(service.shutdown(LONG), async { fake.let_end(1) });
    let store = place.open().await;
    let record = store.get(id).await.unwrap().unwrap();
    assert_eq!(record.state.status(), "SUCCESS");
}

#[tokio::test]
async fn waiting_for_a_run_ends_with_the_limit_or_the_run() {
    let place = Place::new();
    let (fake, _started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    let id = submit(&service, "a").await;
    let record = service.wait(tenant(), id, Duration::from_millis(1)).await;
    assert!(record.unwrap().unwrap().state.outcome().is_none());
    let (waited, ()) = tokio::join!(ended(&service, id), async { fake.let_end(1) });
    assert_eq!(waited.state.status(), "SUCCESS");
    assert_eq!(
        service.wait(tenant(), RunId::random(), LONG).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn the_events_of_a_run_are_its_states_in_order() {
    let place = Place::new();
    let (fake, _started) = Fake::new(Manner::Obedient);
    let store = Arc::new(place.open().await);
    let service = serve(Arc::clone(&store) as _, &fake, settings(1)).await;
    let id = submit(&service, "a").await;
    fake.let_end(1);
    let mut reader = service
        .subscribe(tenant(), id, None)
        .await
        .unwrap()
        .unwrap();
    let mut seen = Vec::new();
    while let Some(delivery) = reader.next().await {
        let Delivery::Event { event, .. } = delivery else {
            panic!("nothing is missing");
        };
        seen.push((*event).clone());
    }
    let expected = ["QUEUED", "RUNNING", "SUCCESS"].map(RunEvent::Status);
    assert_eq!(seen, expected);
    // On disk before it was told.
    assert_eq!(status(&service, id).await, "SUCCESS");
    let unknown = service
        .subscribe(tenant(), RunId::random(), None)
        .await
        .unwrap();
    assert!(unknown.is_none());
}

#[tokio::test]
async fn a_start_is_on_disk_before_anything_is_carried_out() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    let id = submit(&service, "a").await;
    let given = started.recv().await.unwrap();
    assert_eq!(given.state.status(), "RUNNING");
    let store = service.inner.store.running().await.unwrap();
    assert_eq!(store.iter().map(|run| run.id).collect::<Vec<_>>(), [id]);
}

#[tokio::test]
async fn a_run_costs_three_commits_and_runs_accepted_at_once_share_them() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let mut settings = settings(1);
    settings.max_queued_runs = 100;
    let service = serve(Arc::new(place.open().await), &fake, settings).await;
    let before = place.commits();
    let id = submit(&service, "a").await;
    fake.let_end(1);
    ended(&service, id).await;
    // Its acceptance, its start with its first execution, its end.
    assert_eq!(place.commits() - before, 3);

    let going_on = submit(&service, "a").await;
    started.recv().await.unwrap();
    assert_eq!(started.recv().await.unwrap().id, going_on);
    let before = place.commits();
    let waiting = join_all((0..50).map(|_| submit(&service, "a"))).await;
    assert!(place.commits() - before < 50);
    // The queue has the order that the store has.
    let queued = service.inner.store.queued().await.unwrap();
    for (place, run) in queued.iter().enumerate() {
        assert_eq!(service.queue_position(run.id), Some(place));
    }
    assert_eq!(queued.len(), waiting.len());
}

#[tokio::test]
async fn a_closed_gate_takes_no_run_and_starts_none_that_waits() {
    let place = Place::new();
    let store = place.open().await;
    let waiting = place.insert(&store, "a").await;
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let gate = Gate::pending("not yet");
    let orchestrator: Arc<dyn Orchestrator> = Arc::clone(&fake) as _;
    let service = RunService::start_behind(
        (Arc::new(store), orchestrator, gate.clone()),
        settings(2),
        Vec::new(),
    );
    let service = service.await.unwrap();
    let refused = service.submit(request(), client("a"), None).await;
    let Err(SubmitError::Closed { reasons }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(reasons, ["not yet"]);
    assert!(service.check_gate().is_err());
    assert_eq!(status(&service, waiting).await, "QUEUED");
    assert_eq!(service.queue_position(waiting), Some(0));

    gate.admit(crate::execution::runtime::Offered::default());
    assert_eq!(started.recv().await.unwrap().id, waiting);
    let next = submit(&service, "a").await;
    assert_eq!(started.recv().await.unwrap().id, next);
    // What runs already is not touched.
    gate.close(vec!["not any more".to_owned()]);
    fake.let_end(2);
    for id in [waiting, next] {
        assert_eq!(ended(&service, id).await.state.status(), "SUCCESS");
    }
}
