//! What one tenant sees and uses is no other's.

use jiff::Timestamp;

use super::*;
use crate::execution::result::ResourceUsage;
use crate::runs::tenants::{Quota, Quotas};

fn named(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn run_of(name: &str) -> NewRun {
    NewRun {
        tenant: named(name),
        ..new_run("a")
    }
}

/// Carries a run out: it uses so much CPU time and leaves so many bytes on a day.
async fn carry_out(store: &SqliteStore, id: RunId, cpu_seconds: f64, bytes: u64, end: Timestamp) {
    start(store, id).await;
    let mut last = episode(id, 1, &ExecutionId::random());
    last.execution.usage = Some(ResourceUsage {
        cpu_seconds,
        peak_memory_bytes: None,
        peak_resident_bytes: 0,
        peak_workspace_bytes: None,
    });
    last.execution.artifacts[0].size = bytes;
    last.execution.finished_at = end;
    let last = Alongside::Episode(Box::new(recorded(&last, "")));
    let ended = store.apply(id, finish(Ending::Success), &last).await;
    ended.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_run_of_another_tenant_is_as_unknown_as_none() {
    let place = Place::new();
    let store = place.open().await;
    let (hers, his) = (run_of("alice"), run_of("bob"));
    for run in [&hers, &his] {
        assert!(is_new(&store.insert(run, 9).await.unwrap()));
    }
    let found = store.find(&named("alice"), hers.id).await.unwrap().unwrap();
    assert_eq!((found.id, found.tenant), (hers.id, named("alice")));
    for (tenant, id) in [
        ("alice", his.id),
        ("bob", hers.id),
        ("default", hers.id),
        ("alice", RunId::random()),
    ] {
        assert_eq!(store.find(&named(tenant), id).await.unwrap(), None);
    }
    let filter = |status: Option<&str>, before| RunFilter {
        status: status.map(str::to_owned),
        before,
        limit: 9,
    };
    for (status, before) in [
        (None, None),
        (Some("QUEUED"), None),
        (None, Some(99)),
        (Some("QUEUED"), Some(99)),
    ] {
        let listed = store.list(&named("bob"), &filter(status, before)).await;
        let ids: Vec<_> = listed.unwrap().iter().map(|run| run.id).collect();
        assert_eq!(ids, [his.id]);
    }
    assert_eq!(store.queued().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_key_of_one_tenant_is_free_for_another() {
    let place = Place::new();
    let store = place.open().await;
    let with = |name: &str, fingerprint: &str| NewRun {
        idempotency: key("k", fingerprint),
        ..run_of(name)
    };
    let (hers, his) = (with("alice", "1"), with("bob", "2"));
    for run in [&hers, &his] {
        assert!(is_new(&store.insert(run, 9).await.unwrap()));
    }
    let again = store.insert(&with("bob", "2"), 9).await.unwrap();
    assert_eq!(again, Inserted::Repeated(his.id));
    let hers_as_his = hers.idempotency.as_ref().unwrap();
    let known = store.repeated(&named("bob"), hers_as_his).await.unwrap();
    assert_eq!(known, None);
    let known = store.repeated(&named("alice"), hers_as_his).await.unwrap();
    assert_eq!(known, Some(hers.id));
}

#[tokio::test]
async fn unfinished_runs_are_counted_for_each_tenant() {
    let place = Place::new();
    let store = place.open().await;
    let of = |name: &str| NewRun {
        quotas: Quotas {
            max_unfinished: Some(2),
            ..Quotas::default()
        },
        ..run_of(name)
    };
    let first = of("alice");
    assert!(is_new(&store.insert(&first, 99).await.unwrap()));
    assert!(is_new(&store.insert(&of("alice"), 99).await.unwrap()));
    for _ in 0..2 {
        let refused = store.insert(&of("alice"), 99).await.unwrap();
        assert_eq!(refused, Inserted::OverQuota(Quota::Waiting));
    }
    assert!(is_new(&store.insert(&of("bob"), 99).await.unwrap()));
    // The whole queue is the first thing that is full.
    let refused = store.insert(&of("alice"), 3).await.unwrap();
    assert_eq!(refused, Inserted::QueueFull);
    carry_out(&store, first.id, 0.0, 0, Timestamp::now()).await;
    assert!(is_new(&store.insert(&of("alice"), 99).await.unwrap()));
}

#[tokio::test]
async fn what_was_used_is_kept_with_the_end_of_a_run_and_survives_a_restart() {
    let place = Place::new();
    let mut store = place.open().await;
    let now = Timestamp::now();
    let yesterday = Timestamp::from_second(now.as_second() - 86_400).unwrap();
    let of = |name: &str, cpu: Option<i64>, bytes: Option<i64>| NewRun {
        quotas: Quotas {
            max_unfinished: None,
            cpu_microseconds_per_day: cpu,
            stored_bytes: bytes,
        },
        accepted_at: now,
        ..run_of(name)
    };
    for end in [now, now, yesterday] {
        let run = of("alice", None, None);
        store.insert(&run, 9).await.unwrap();
        let before = place.commits();
        carry_out(&store, run.id, 1.5, 1 << 30, end).await;
        assert_eq!(place.commits() - before, 2, "a start and an end");
    }
    for _ in 0..2 {
        for (cpu, bytes, expected) in [
            (Some(3_000_000), None, Some(Quota::CpuTime)),
            (Some(2_999_999), Some(1), Some(Quota::CpuTime)),
            (None, Some(3 << 30), Some(Quota::Storage)),
            (Some(3_000_001), Some(4 << 30), None),
        ] {
            let inserted = store.insert(&of("alice", cpu, bytes), 99).await.unwrap();
            match expected {
                Some(quota) => assert_eq!(inserted, Inserted::OverQuota(quota)),
                None => assert!(is_new(&inserted), "{inserted:?}"),
            }
        }
        let other = of("bob", Some(1), Some(1 << 20));
        assert!(is_new(&store.insert(&other, 99).await.unwrap()));
        store.close().await;
        store = place.open().await;
    }
}

/// A run of alice's that may use so much CPU time, in seconds, of a quota of ten.
fn reserving(seconds: i64) -> NewRun {
    NewRun {
        reserved_cpu_microseconds: seconds * 1_000_000,
        quotas: Quotas {
            cpu_microseconds_per_day: Some(10_000_000),
            ..Quotas::default()
        },
        ..run_of("alice")
    }
}

#[tokio::test]
async fn runs_side_by_side_go_no_further_over_the_cpu_quota_than_one_alone() {
    let place = Place::new();
    let store = place.open().await;
    let burst: Vec<NewRun> = (0..20).map(|_| reserving(4)).collect();
    let answers = burst.iter().map(|run| store.insert(run, 99));
    let answers = join_all(answers).await;
    let accepted = answers
        .iter()
        .filter(|answer| is_new(answer.as_ref().unwrap()));
    // The third may go over the quota, by less than itself.
    assert_eq!(accepted.count(), 3);
    let refused = Inserted::OverQuota(Quota::CpuReserved);
    assert_eq!(store.insert(&reserving(1), 99).await.unwrap(), refused);
    assert!(is_new(&store.insert(&run_of("bob"), 99).await.unwrap()));

    // What was not used is free again: at an end, and if it never starts.
    let running: Vec<RunId> = store
        .queued()
        .await
        .unwrap()
        .iter()
        .filter(|run| run.tenant == named("alice"))
        .map(|run| run.id)
        .collect();
    carry_out(&store, running[0], 1.0, 0, Timestamp::now()).await;
    assert!(is_new(&store.insert(&reserving(4), 99).await.unwrap()));
    assert_eq!(store.insert(&reserving(1), 99).await.unwrap(), refused);
    let cancel = Event::CancelRequested {
        at: Timestamp::now(),
    };
    let cancelled = store.apply(running[1], cancel, &Alongside::Nothing).await;
    cancelled.unwrap().unwrap().unwrap();
    assert!(is_new(&store.insert(&reserving(4), 99).await.unwrap()));
}

#[tokio::test]
async fn a_program_of_which_there_is_no_report_is_charged_with_what_it_could_have_used() {
    let place = Place::new();
    let store = place.open().await;
    // Its wall clock is 1.5 seconds, of one CPU.
    for (started_at, reserved, quota, expected) in [
        (None, 10, 1, None),
        (Some(Timestamp::now()), 10, 1_500_001, None),
        (None, 0, 1_500_000, Some(Quota::CpuTime)),
        (Some(Timestamp::now()), 1, 2_500_001, None),
        (None, 0, 2_500_000, Some(Quota::CpuTime)),
    ] {
        let run = NewRun {
            reserved_cpu_microseconds: reserved * 1_000_000,
            ..run_of("alice")
        };
        store.insert(&run, 99).await.unwrap();
        start(&store, run.id).await;
        let mut last = episode(run.id, 1, &ExecutionId::random());
        last.execution.started_at = started_at;
        last.execution.finished_at = Timestamp::now();
        store.add_episode(&recorded(&last, "")).await.unwrap();
        let end = store.apply(run.id, finish(Ending::Fail), &Alongside::Nothing);
        end.await.unwrap().unwrap().unwrap();
        let asking = NewRun {
            quotas: Quotas {
                cpu_microseconds_per_day: Some(quota),
                ..Quotas::default()
            },
            ..run_of("alice")
        };
        match (expected, store.insert(&asking, 99).await.unwrap()) {
            (Some(quota), answer) => assert_eq!(answer, Inserted::OverQuota(quota)),
            (None, answer) => assert!(is_new(&answer), "{answer:?}"),
        }
    }
}

#[tokio::test]
async fn what_a_request_and_its_result_take_counts_as_stored() {
    let place = Place::new();
    let store = place.open().await;
    let mut large = run_of("alice");
    large.quotas.stored_bytes = Some(1 << 20);
    large.request.code = Some("#".repeat(600 << 10));
    assert!(is_new(&store.insert(&large, 99).await.unwrap()));
    let again = NewRun {
        id: RunId::random(),
        ..large.clone()
    };
    assert!(is_new(&store.insert(&again, 99).await.unwrap()));
    let once_more = NewRun {
        id: RunId::random(),
        ..large.clone()
    };
    let refused = store.insert(&once_more, 99).await.unwrap();
    assert_eq!(refused, Inserted::OverQuota(Quota::Storage));

    let mut small = run_of("bob");
    small.quotas.stored_bytes = Some(1 << 20);
    assert!(is_new(&store.insert(&small, 99).await.unwrap()));
    start(&store, small.id).await;
    let mut last = episode(small.id, 1, &ExecutionId::random());
    last.execution.stdout = "x".repeat(600 << 10);
    store
        .add_episode(&recorded(&last, &"#".repeat(600 << 10)))
        .await
        .unwrap();
    let once_more = NewRun {
        id: RunId::random(),
        ..small
    };
    let refused = store.insert(&once_more, 99).await.unwrap();
    assert_eq!(refused, Inserted::OverQuota(Quota::Storage));
}
