//! Operations that share a transaction. The writer is held while they are sent, so that what is in
//! one batch is no matter of luck.

use std::pin::Pin;
use std::task::Poll;

use futures_util::future::join_all;
use futures_util::poll;
use jiff::Timestamp;
use proptest::prelude::*;
use tokio::sync::oneshot;

use super::testing::{Hold, Statements};
use super::*;

/// An answer to come, made comparable.
pub(super) type Answer<'s> = Pin<Box<dyn Future<Output = String> + 's>>;

/// Sends operations in order, so that they are one batch, and gives their answers.
pub(super) async fn in_one_batch<'s>(
    store: &'s SqliteStore,
    operations: impl IntoIterator<Item = Answer<'s>>,
) -> Vec<String> {
    let (begun, has_begun) = oneshot::channel();
    let (end, to_end) = oneshot::channel();
    let mut holding = Box::pin(store.writer.run(Hold { begun, end: to_end }));
    assert!(poll!(&mut holding).is_pending());
    has_begun.await.unwrap();
    let mut sent = Vec::new();
    for mut operation in operations {
        // One look at it puts it into the channel.
        assert_eq!(poll!(&mut operation), Poll::Pending);
        sent.push(operation);
    }
    end.send(()).unwrap();
    holding.await.unwrap();
    join_all(sent).await
}

pub(super) fn insert<'s>(store: &'s SqliteStore, run: &'s NewRun, most: u32) -> Answer<'s> {
    Box::pin(async move { told(store.insert(run, most).await) })
}

fn statements<'s>(store: &'s SqliteStore, text: &'static str) -> Answer<'s> {
    Box::pin(async move { told(store.writer.run(Statements(text)).await) })
}

pub(super) fn told<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => error.to_string(),
    }
}

pub(super) async fn ids(store: &SqliteStore) -> Vec<RunId> {
    let waiting = store.queued().await.unwrap();
    waiting.iter().map(|run| run.id).collect()
}

#[tokio::test]
async fn runs_accepted_at_once_share_one_commit_and_keep_their_order() {
    let place = Place::new();
    let store = place.open().await;
    place.insert(&store, "a").await;
    let before = place.commits();
    let runs: Vec<NewRun> = (0..50).map(|_| new_run("a")).collect();
    let answers = in_one_batch(&store, runs.iter().map(|run| insert(&store, run, 99))).await;
    assert_eq!(place.commits() - before, 1);
    let expected = (2..52).map(|sequence| format!("{:?}", Inserted::New { sequence }));
    assert_eq!(answers, expected.collect::<Vec<_>>());
    let accepted: Vec<RunId> = runs.iter().map(|run| run.id).collect();
    assert_eq!(ids(&store).await[1..], accepted);
}

#[tokio::test]
async fn one_that_is_alone_is_committed_at_once() {
    let place = Place::new();
    let store = place.open().await;
    place.insert(&store, "a").await;
    let before = place.commits();
    for _ in 0..3 {
        place.insert(&store, "a").await;
    }
    assert_eq!(place.commits() - before, 3);
}

#[tokio::test]
async fn what_is_refused_or_fails_harms_nothing_else_in_its_batch() {
    let place = Place::new();
    let store = place.open().await;
    let with = |idempotency| NewRun {
        idempotency,
        ..new_run("a")
    };
    let first = with(key("k", "1"));
    let again = with(key("k", "1"));
    let reused = with(key("k", "2"));
    let twin = NewRun {
        id: first.id,
        ..new_run("a")
    };
    let last = new_run("b");
    let one_too_many = new_run("b");
    let stranger = OpenExecution::first(ExecutionId::random(), RunId::random());
    let plan: Answer<'_> = Box::pin(async { told(store.plan_execution(&stranger).await) });
    let half = "INSERT INTO executions SELECT 'exec_00000000', id, 'OPEN', 1, '' FROM runs; \
                INSERT INTO nowhere VALUES (1)";
    let operations = [
        insert(&store, &first, 2),
        insert(&store, &again, 2),
        plan,
        insert(&store, &reused, 2),
        statements(&store, half),
        insert(&store, &twin, 2),
        insert(&store, &last, 2),
        insert(&store, &one_too_many, 2),
    ];
    let answers = in_one_batch(&store, operations).await;
    let expected = [
        "New { sequence: 1 }".to_owned(),
        format!("Repeated({:?})", first.id),
        StoreError::NotRunning(stranger.run_id).to_string(),
        "KeyReused".to_owned(),
        "the store failed to do as the test wishes".to_owned(),
        "the store failed to accept a run".to_owned(),
        "New { sequence: 2 }".to_owned(),
        "QueueFull".to_owned(),
    ];
    assert_eq!(answers, expected);
    assert_eq!(ids(&store).await, [first.id, last.id]);
    assert_eq!(store.open_executions().await.unwrap(), []);
}

#[tokio::test]
async fn a_failed_commit_fails_all_its_members_and_nobody_after_them() {
    let place = Place::new();
    let store = place.open().await;
    let runs = [new_run("a"), new_run("a")];
    // Found out by the commit, not before.
    let violation = "PRAGMA defer_foreign_keys = ON; \
                     INSERT INTO requests (sequence, request) VALUES (999, '{}')";
    let operations = [
        insert(&store, &runs[0], 1),
        insert(&store, &runs[1], 1),
        statements(&store, violation),
    ];
    let answers = in_one_batch(&store, operations).await;
    for answer in answers {
        assert!(answer.starts_with("the store failed to "), "{answer}");
    }
    assert_eq!(ids(&store).await, []);
    // The places of the failed ones are free.
    let later = store.insert(&runs[1], 1).await.unwrap();
    assert!(is_new(&later), "{later:?}");
}

#[tokio::test]
async fn a_full_disk_fails_what_needs_room_and_is_over_when_there_is_some() {
    let place = Place::new();
    let store = place.open().await;
    let mut large = new_run("a");
    large.request.code = Some("#".repeat(1 << 20));
    let (first, second) = (large.clone(), new_run("a"));
    let full = statements(&store, "PRAGMA max_page_count = 1");
    assert_eq!(full.await, "()");
    for alone in [true, false] {
        let mut operations = vec![insert(&store, &first, 9)];
        if !alone {
            operations.push(insert(&store, &large, 9));
        }
        for answer in in_one_batch(&store, operations).await {
            assert_eq!(answer, "the store failed to accept a run");
        }
    }
    let room = statements(&store, "PRAGMA max_page_count = 1073741823");
    assert_eq!(room.await, "()");
    for run in [&first, &second] {
        assert!(is_new(&store.insert(run, 2).await.unwrap()));
    }
    assert_eq!(ids(&store).await, [first.id, second.id]);
}

#[tokio::test]
async fn a_dropped_operation_is_left_out_or_done_whole() {
    let place = Place::new();
    let store = place.open().await;
    let runs = [new_run("a"), new_run("a"), new_run("a")];
    let mut kept = Vec::new();
    let dropping: Answer<'_> = Box::pin(async {
        // Sent and given up before its turn.
        let mut given_up = insert(&store, &runs[1], 9);
        assert!(poll!(&mut given_up).is_pending());
        drop(given_up);
        insert(&store, &runs[0], 9).await
    });
    kept.push(dropping);
    kept.push(insert(&store, &runs[2], 9));
    in_one_batch(&store, kept).await;
    assert_eq!(ids(&store).await, [runs[0].id, runs[2].id]);

    for polls in 0..30 {
        let run = NewRun {
            idempotency: key(&polls.to_string(), "1"),
            ..new_run("a")
        };
        let mut accepting = Box::pin(store.insert(&run, 99));
        for _ in 0..polls {
            if poll!(&mut accepting).is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_micros(50)).await;
        }
        drop(accepting);
        let again = store.insert(&run, 99).await;
        let complete = store.get_complete(run.id).await.unwrap().unwrap();
        assert_eq!(complete.request, run.request);
        assert!(again.is_ok(), "{again:?}");
    }
}

#[tokio::test]
async fn closing_carries_out_what_waits() {
    let place = Place::new();
    let store = place.open().await;
    let runs = [new_run("a"), new_run("a")];
    let closing: Answer<'_> = Box::pin(async {
        store.close().await;
        "closed".to_owned()
    });
    let operations = [
        insert(&store, &runs[0], 9),
        insert(&store, &runs[1], 9),
        closing,
    ];
    let answers = in_one_batch(&store, operations).await;
    assert_eq!(
        answers,
        ["New { sequence: 1 }", "New { sequence: 2 }", "closed"]
    );
    assert!(store.insert(&new_run("a"), 9).await.is_err());
    store.close().await;
    let store = place.open().await;
    assert_eq!(ids(&store).await, [runs[0].id, runs[1].id]);
}

#[tokio::test]
async fn places_are_counted_on_after_a_restart() {
    let place = Place::new();
    let store = place.open().await;
    let ended = place.insert(&store, "a").await;
    place.insert(&store, "a").await;
    start(&store, ended).await;
    let finished = store.apply(ended, finish(Ending::Fail), &Alongside::Nothing);
    finished.await.unwrap();
    store.close().await;
    let store = place.open().await;
    assert!(is_new(&store.insert(&new_run("a"), 2).await.unwrap()));
    let refused = store.insert(&new_run("a"), 2).await.unwrap();
    assert_eq!(refused, Inserted::QueueFull);
}

#[tokio::test]
async fn what_belongs_to_a_change_of_state_is_written_with_it_or_not_at_all() {
    let place = Place::new();
    let store = place.open().await;
    let id = place.insert(&store, "a").await;
    let execution = ExecutionId::random();
    let begin = || Event::Start {
        at: Timestamp::UNIX_EPOCH,
    };
    let planned = Alongside::Execution(execution.clone());
    let before = place.commits();
    store.apply(id, begin(), &planned).await.unwrap();
    let refused = store.apply(id, begin(), &planned).await.unwrap().unwrap();
    assert_eq!(refused, Err(Refused::AlreadyStarted));
    let last = Box::new(recorded(&episode(id, 1, &execution), "print()"));
    let last = Alongside::Episode(last);
    for expected in [Ok("SUCCESS"), Err(Refused::AlreadyEnded)] {
        let answer = store.apply(id, finish(Ending::Success), &last).await;
        let answer = answer.unwrap().unwrap();
        assert_eq!(answer.map(|run| run.state.status()), expected);
    }
    assert_eq!(place.commits() - before, 2);
    assert_eq!(store.open_executions().await.unwrap(), []);
    assert_eq!(store.episodes(id).await.unwrap().len(), 1);
    assert!(store.receipt(id, None).await.unwrap().is_some());

    // A start whose execution cannot be planned is no start.
    let other = place.insert(&store, "a").await;
    assert!(store.apply(other, begin(), &planned).await.is_err());
    assert_eq!(ids(&store).await, [other]);
}

/// Something that a service asks of its store, about one of the first runs.
#[derive(Debug, Clone)]
enum Step {
    Insert { key: Option<u8>, most: u32 },
    Start(usize),
    Cancel(usize),
    Finish(usize),
    Plan(usize),
    Episode(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let run = || 0usize..4;
    prop_oneof![
        4 => (prop::option::of(0u8..3), 1u32..6).prop_map(|(key, most)| Step::Insert { key, most }),
        3 => run().prop_map(Step::Start),
        1 => run().prop_map(Step::Cancel),
        2 => run().prop_map(Step::Finish),
        1 => run().prop_map(Step::Plan),
        2 => run().prop_map(Step::Episode),
    ]
}

/// What the steps work with: the same for every store that they are tried on.
struct Cast {
    runs: Vec<NewRun>,
    execution: ExecutionId,
}

impl Cast {
    fn perform<'s>(&'s self, store: &'s SqliteStore, number: usize, step: &Step) -> Answer<'s> {
        let at = Timestamp::UNIX_EPOCH;
        let id = |run: &usize| self.runs[*run].id;
        let apply = |id, event| -> Answer<'s> {
            Box::pin(async move { told(store.apply(id, event, &Alongside::Nothing).await) })
        };
        match step {
            Step::Insert { key: text, most } => {
                let mut run = self.runs[number].clone();
                run.idempotency = text.and_then(|text| key(&text.to_string(), &most.to_string()));
                let most = *most;
                Box::pin(async move { told(store.insert(&run, most).await) })
            }
            Step::Start(run) => apply(id(run), Event::Start { at }),
            Step::Cancel(run) => apply(id(run), Event::CancelRequested { at }),
            Step::Finish(run) => {
                let outcome = Box::new(crate::runs::service::testing::outcome(Ending::Fail));
                apply(id(run), Event::Finish { at, outcome })
            }
            Step::Plan(run) => {
                let planned = OpenExecution::first(self.execution.clone(), id(run));
                Box::pin(async move { told(store.plan_execution(&planned).await) })
            }
            Step::Episode(run) => {
                let mut episode = episode(id(run), 1, &self.execution);
                episode.episode_id = uuid::Uuid::nil();
                Box::pin(async move { told(store.add_episode(&recorded(&episode, "")).await) })
            }
        }
    }
}

async fn everything(store: &SqliteStore) -> String {
    let filter = RunFilter {
        limit: 99,
        ..RunFilter::default()
    };
    let runs = store.list(tenant(), &filter).await.unwrap();
    let mut episodes = Vec::new();
    let mut receipts = Vec::new();
    for run in &runs {
        episodes.extend(store.episodes(run.id).await.unwrap());
        receipts.push(store.receipt(run.id, None).await.unwrap());
    }
    let open = store.open_executions().await.unwrap();
    format!("{runs:?} {episodes:?} {receipts:?} {open:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_batch_does_what_its_operations_do_one_after_the_other(
        steps in prop::collection::vec(step(), 1..40),
        size in 1usize..20,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (alone, together) = runtime.block_on(async {
            let cast = Cast {
                runs: steps.iter().map(|_| new_run("a")).chain((0..4).map(|_| new_run("b"))).collect(),
                execution: ExecutionId::random(),
            };
            let (here, there) = (Place::new(), Place::new());
            let (one, other) = (here.open().await, there.open().await);
            let (mut alone, mut together) = (Vec::new(), Vec::new());
            for (number, step) in steps.iter().enumerate() {
                alone.push(cast.perform(&one, number, step).await);
            }
            let numbered: Vec<_> = steps.iter().enumerate().collect();
            for batch in numbered.chunks(size) {
                let operations = batch.iter().map(|(number, step)| cast.perform(&other, *number, step));
                together.extend(in_one_batch(&other, operations).await);
            }
            alone.push(everything(&one).await);
            together.push(everything(&other).await);
            (alone, together)
        });
        prop_assert_eq!(alone, together);
    }
}
