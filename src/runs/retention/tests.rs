//! Retention on a real store, killed in the middle.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use futures_util::poll;
use tokio::sync::Notify;

use super::*;
use crate::ids::RunId;
use crate::receipt::Receipt;
use crate::receipt::audit::{Audit, Known};
use crate::runs::record::Ending;
use crate::runs::service::testing::{Place, episode, finish, new_run, recorded, start, tenant};
use crate::runs::store::sqlite::{SqliteStore, export};
use crate::runs::store::{Alongside, IdempotencyKey, Inserted, NewRun, OpenExecution, Store};
use crate::runs::tenants::{Quota, Quotas};

mod ages;

/// What it is told to be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Sound,
    /// Never comes to an end, before or after it has removed.
    HangsBefore,
    HangsAfter,
    /// Cannot remove this many.
    Fails,
}

/// Directories that are only names.
#[derive(Debug)]
struct Shelf {
    there: Mutex<BTreeSet<ExecutionId>>,
    manner: Manner,
    begun: Notify,
}

impl Shelf {
    fn with(there: impl IntoIterator<Item = ExecutionId>, manner: Manner) -> Arc<Self> {
        Arc::new(Self {
            there: Mutex::new(there.into_iter().collect()),
            manner,
            begun: Notify::new(),
        })
    }

    fn there(&self) -> BTreeSet<ExecutionId> {
        let there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        there.clone()
    }
}

#[async_trait]
impl Remover for Shelf {
    async fn remove(&self, execution: &ExecutionId) -> io::Result<()> {
        match self.manner {
            Manner::Sound => {}
            Manner::Fails => return Err(io::ErrorKind::PermissionDenied.into()),
            Manner::HangsBefore => {
                self.begun.notify_one();
                std::future::pending::<()>().await;
            }
            Manner::HangsAfter => {
                self.there.lock().unwrap().remove(execution);
                self.begun.notify_one();
                std::future::pending::<()>().await;
            }
        }
        self.there.lock().unwrap().remove(execution);
        Ok(())
    }
}

/// A run that is over, with one execution.
async fn ended(store: &SqliteStore, run: &NewRun) -> ExecutionId {
    store.insert(run, 1000).await.unwrap();
    start(store, run.id).await;
    let execution = ExecutionId::random();
    let planned = OpenExecution::first(execution.clone(), run.id);
    store.plan_execution(&planned).await.unwrap();
    let last = Box::new(recorded(&episode(run.id, 1, &execution), "print()"));
    let last = Alongside::Episode(last);
    let end = store.apply(run.id, finish(Ending::Success), &last);
    end.await.unwrap().unwrap().unwrap();
    execution
}

async fn several(store: &SqliteStore, count: usize) -> Vec<(RunId, ExecutionId)> {
    let mut all = Vec::new();
    for _ in 0..count {
        let run = new_run("a");
        let execution = ended(store, &run).await;
        all.push((run.id, execution));
    }
    all
}

fn at_most(runs: u64) -> Rules {
    Rules {
        all: Bounds {
            runs: Some(runs),
            ..Bounds::default()
        },
        own: HashMap::new(),
    }
}

fn retention(store: &Arc<SqliteStore>, shelf: &Arc<Shelf>, rules: Rules) -> Retention {
    Retention::new(Arc::clone(store) as _, Arc::clone(shelf) as _, rules).without_pauses()
}

async fn pass(retention: &Retention) -> Done {
    let stop = CancellationToken::new();
    retention.pass(&stop, &mut |_| {}).await.unwrap()
}

async fn known(store: &SqliteStore, runs: &[(RunId, ExecutionId)]) -> Vec<bool> {
    let mut known = Vec::new();
    for (run, _) in runs {
        known.push(store.get(*run).await.unwrap().is_some());
    }
    known
}

fn shelf_of(runs: &[(RunId, ExecutionId)], manner: Manner) -> Arc<Shelf> {
    Shelf::with(runs.iter().map(|(_, execution)| execution.clone()), manner)
}

#[tokio::test]
async fn the_oldest_go_with_all_that_is_theirs_and_their_receipts_stay() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let runs = several(&store, 40).await;
    let shelf = shelf_of(&runs, Manner::Sound);
    let (stop, mut told) = (CancellationToken::new(), Vec::new());
    let done = retention(&store, &shelf, at_most(3));
    let done = done.pass(&stop, &mut |gone| told.push(gone)).await.unwrap();
    assert_eq!((done.runs, done.executions, done.left), (37, 37, 0));
    assert!(done.bytes > 0);
    // Each is told of once, in order, with the reason.
    let names: Vec<RunId> = told.iter().map(|gone| gone.run.run).collect();
    assert!(names.iter().eq(runs[..37].iter().map(|(run, _)| run)));
    assert!(told.iter().all(|gone| gone.reason == Reason::Count));
    let expected: Vec<bool> = (0..40).map(|index| index >= 37).collect();
    assert_eq!(known(&store, &runs).await, expected);
    let kept: BTreeSet<ExecutionId> = runs[37..].iter().map(|(_, e)| e.clone()).collect();
    assert_eq!(shelf.there(), kept);
    assert_eq!(store.episodes(runs[0].0).await.unwrap(), []);
    assert_eq!(store.removals(None, 9).await.unwrap(), []);
    // Another pass finds nothing.
    let again = pass(&retention(&store, &shelf, at_most(3))).await;
    assert_eq!(again, Done::default());

    let (mut audit, mut count) = (Audit::new(Known::default()), 0);
    export::receipts(&place.file(), 1, |text| {
        assert_eq!(audit.add(text.as_bytes()), []);
        assert_eq!(Receipt::open(text.as_bytes()).unwrap().number(), count + 1);
        count += 1;
        true
    })
    .unwrap();
    assert_eq!((count, audit.end()), (40, None));
}

#[tokio::test]
async fn what_waits_goes_on_or_may_have_a_sandbox_is_never_removed() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let waiting = place.insert(&store, "a").await;
    let running = place.insert(&store, "a").await;
    start(store.as_ref(), running).await;
    // Over, but its execution is still open.
    let unclear = place.insert(&store, "a").await;
    start(store.as_ref(), unclear).await;
    let open = OpenExecution::first(ExecutionId::random(), unclear);
    store.plan_execution(&open).await.unwrap();
    let end = store.apply(unclear, finish(Ending::Fail), &Alongside::Nothing);
    end.await.unwrap().unwrap().unwrap();

    // Whatever the plan: the store itself refuses.
    assert_eq!(store.remove(vec![1, 2, 3, 4]).await.unwrap(), []);
    let shelf = Shelf::with([], Manner::Sound);
    let done = pass(&retention(&store, &shelf, at_most(0))).await;
    assert_eq!(done, Done::default());
    for id in [waiting, running, unclear] {
        assert!(store.get(id).await.unwrap().is_some());
    }
    store.abandon_execution(&open.id).await.unwrap();
    assert_eq!(store.remove(vec![1, 2, 3]).await.unwrap(), [unclear]);
}

/// The rows are gone and the artifacts are not; or both, and only the note of it is left.
#[tokio::test]
async fn killed_in_the_middle_the_next_pass_goes_on() {
    for manner in [Manner::HangsBefore, Manner::HangsAfter] {
        let place = Place::new();
        let store = Arc::new(place.open().await);
        let runs = several(&store, 3).await;
        let shelf = shelf_of(&runs, manner);
        let dying = retention(&store, &shelf, at_most(1));
        {
            let stop = CancellationToken::new();
            let mut tell = |_| {};
            let mut passing = Box::pin(dying.pass(&stop, &mut tell));
            tokio::select! {
                _ = &mut passing => panic!("it did not hang"),
                () = shelf.begun.notified() => {}
            }
            assert!(poll!(&mut passing).is_pending());
        }
        // Nobody sees half of a run.
        assert_eq!(known(&store, &runs).await, [false, false, true]);
        store.close().await;
        drop(dying);

        let store = Arc::new(place.open().await);
        assert_eq!(store.removals(None, 9).await.unwrap().len(), 2);
        let shelf = Shelf::with(shelf.there(), Manner::Sound);
        let done = pass(&retention(&store, &shelf, Rules::default())).await;
        assert_eq!((done.runs, done.executions), (0, 2), "{manner:?}");
        assert_eq!(shelf.there(), BTreeSet::from([runs[2].1.clone()]));
        assert_eq!(store.removals(None, 9).await.unwrap(), []);
    }
}

/// The negative control of the test above: without the note nothing would be removed.
#[tokio::test]
async fn what_is_not_noted_is_not_removed() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let runs = several(&store, 2).await;
    let shelf = shelf_of(&runs, Manner::Sound);
    let gone = store.remove(vec![1]).await.unwrap();
    assert_eq!(gone, [runs[0].0]);
    store.removed(vec![runs[0].1.clone()]).await.unwrap();
    pass(&retention(&store, &shelf, Rules::default())).await;
    assert_eq!(shelf.there().len(), 2);
}

#[tokio::test]
async fn artifacts_that_cannot_be_removed_hold_nothing_up_and_are_tried_again() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let runs = several(&store, 100).await;
    let stuck = shelf_of(&runs, Manner::Fails);
    let done = pass(&retention(&store, &stuck, at_most(0))).await;
    assert_eq!((done.runs, done.executions, done.left), (100, 0, 100));
    let shelf = shelf_of(&runs, Manner::Sound);
    let done = pass(&retention(&store, &shelf, at_most(0))).await;
    assert_eq!((done.executions, done.left), (100, 0));
    assert!(shelf.there().is_empty());
}

#[tokio::test]
async fn what_is_fresh_stays_and_age_counts_from_the_end() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let runs = several(&store, 3).await;
    let shelf = shelf_of(&runs, Manner::Sound);
    let mut rules = at_most(0);
    rules.all.age = Some(Duration::ZERO);
    rules.all.fresh = Duration::from_secs(3600);
    assert_eq!(
        pass(&retention(&store, &shelf, rules.clone())).await.runs,
        0
    );
    rules.all = Bounds {
        age: Some(Duration::from_secs(60)),
        ..Bounds::default()
    };
    assert_eq!(
        pass(&retention(&store, &shelf, rules.clone())).await.runs,
        0
    );
    rules.all.age = Some(Duration::ZERO);
    assert_eq!(pass(&retention(&store, &shelf, rules)).await.runs, 3);
}

#[tokio::test]
async fn each_tenant_has_its_own_bounds_and_gets_its_room_back() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let alice = TenantId::parse("alice").unwrap();
    let of_alice = || NewRun {
        tenant: alice.clone(),
        quotas: Quotas {
            stored_bytes: Some(1),
            ..Quotas::default()
        },
        ..new_run("b")
    };
    several(&store, 3).await;
    let first = of_alice();
    ended(&store, &first).await;
    let full = store.insert(&of_alice(), 1000).await.unwrap();
    assert_eq!(full, Inserted::OverQuota(Quota::Storage));

    let shelf = Shelf::with([], Manner::Sound);
    let mut rules = at_most(2);
    let none = Bounds {
        bytes: Some(0),
        ..Bounds::default()
    };
    rules.own.insert(alice.clone(), none);
    assert_eq!(pass(&retention(&store, &shelf, rules)).await.runs, 2);
    assert_eq!(store.find(&alice, first.id).await.unwrap(), None);
    assert_eq!(store.kept_totals(tenant()).await.unwrap().runs, 2);
    assert_eq!(store.kept_oldest(tenant(), 9).await.unwrap().len(), 2);
    let room = store.insert(&of_alice(), 1000).await.unwrap();
    assert!(matches!(room, Inserted::New { .. }), "{room:?}");
}

#[tokio::test]
async fn a_key_goes_with_its_run() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let run = NewRun {
        idempotency: Some(IdempotencyKey {
            scope: crate::ids::ClientKey(String::new()),
            key: "k".to_owned(),
            fingerprint: "1".to_owned(),
        }),
        ..new_run("a")
    };
    ended(&store, &run).await;
    let again = NewRun {
        id: RunId::random(),
        ..run.clone()
    };
    let before = store.insert(&again, 1000).await.unwrap();
    assert_eq!(before, Inserted::Repeated(run.id));
    store.remove(vec![1]).await.unwrap();
    let after = store.insert(&again, 1000).await.unwrap();
    assert!(matches!(after, Inserted::New { .. }), "{after:?}");
}

/// One that cannot go is kept besides those that are to be kept.
#[tokio::test]
async fn one_that_has_to_stay_holds_nothing_up() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let stuck = place.insert(&store, "a").await;
    start(store.as_ref(), stuck).await;
    let open = OpenExecution::first(ExecutionId::random(), stuck);
    store.plan_execution(&open).await.unwrap();
    let end = store.apply(stuck, finish(Ending::Fail), &Alongside::Nothing);
    end.await.unwrap().unwrap().unwrap();
    let runs = several(&store, 50).await;
    let shelf = shelf_of(&runs, Manner::Sound);
    let done = pass(&retention(&store, &shelf, at_most(3))).await;
    assert_eq!((done.runs, done.left), (47, 0));
    assert!(store.get(stuck).await.unwrap().is_some());
    assert_eq!(known(&store, &runs[46..]).await, [false, true, true, true]);
}

#[tokio::test]
async fn a_pass_that_is_stopped_ends_between_two_steps() {
    let place = Place::new();
    let store = Arc::new(place.open().await);
    let runs = several(&store, 2).await;
    let shelf = shelf_of(&runs, Manner::Sound);
    let stop = CancellationToken::new();
    stop.cancel();
    let stopped = retention(&store, &shelf, at_most(0));
    let done = stopped.pass(&stop, &mut |_| {}).await;
    assert_eq!(done.unwrap(), Done::default());
}
