//! What tenants get of the service, and what they see of each other.

use super::*;
use crate::runs::tenants::{Quota, Quotas, Share};

fn named(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

fn submitter(name: &str, quotas: Quotas) -> Submitter {
    Submitter {
        tenant: named(name),
        client: client("one"),
        quotas,
    }
}

async fn submit_as(service: &RunService, name: &str) -> RunId {
    let submitter = submitter(name, Quotas::default());
    let submitted = service.submit(request(), submitter, None).await;
    submitted.unwrap().id
}

fn with_shares(width: usize, shares: &[(&str, u32, Option<usize>)]) -> ServiceSettings {
    let shares = shares.iter().map(|(name, weight, max_concurrent)| {
        let share = Share {
            weight: *weight,
            max_concurrent: *max_concurrent,
        };
        (named(name), share)
    });
    ServiceSettings {
        max_queued_runs: 1000,
        shares: shares.collect(),
        ..settings(width)
    }
}

#[tokio::test]
async fn tenants_under_a_burst_are_started_by_weight() {
    for (weight, expected) in [(1, 20), (3, 10)] {
        let place = Place::new();
        let (fake, mut started) = Fake::new(Manner::Obedient);
        let settings = with_shares(1, &[("alice", 1, None), ("bob", weight, None)]);
        let service = serve(Arc::new(place.open().await), &fake, settings).await;
        for _ in 0..40 {
            submit_as(&service, "alice").await;
        }
        for _ in 0..40 {
            submit_as(&service, "bob").await;
        }
        // The first one started before the others were there.
        assert_eq!(started.recv().await.unwrap().tenant, named("alice"));
        let mut of_alice = 0_usize;
        for _ in 0..40 {
            fake.let_end(1);
            let run = started.recv().await.unwrap();
            of_alice += usize::from(run.tenant == named("alice"));
        }
        assert!(of_alice.abs_diff(expected) <= 1, "{of_alice} of 40");
        service.shutdown(Duration::ZERO).await;
    }
}

#[tokio::test]
async fn a_tenant_has_no_more_runs_going_on_than_its_bound() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let settings = with_shares(4, &[("alice", 1, Some(1))]);
    let service = serve(Arc::new(place.open().await), &fake, settings).await;
    let mut hers = Vec::new();
    for _ in 0..3 {
        hers.push(submit_as(&service, "alice").await);
    }
    assert_eq!(started.recv().await.unwrap().id, hers[0]);
    // There are places, but not for her; somebody else gets one at once.
    let his = submit_as(&service, "bob").await;
    assert_eq!(started.recv().await.unwrap().id, his);
    assert_eq!(service.in_flight().running, 2);
    service.cancel(&named("alice"), hers[0]).await.unwrap();
    assert_eq!(started.recv().await.unwrap().id, hers[1]);
    service.cancel(&named("alice"), hers[1]).await.unwrap();
    assert_eq!(started.recv().await.unwrap().id, hers[2]);
    service.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_run_of_another_tenant_is_as_unknown_as_none() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    let id = submit_as(&service, "alice").await;
    started.recv().await.unwrap();
    for (tenant, id) in [("bob", id), ("alice", RunId::random())] {
        let tenant = named(tenant);
        assert_eq!(service.get(&tenant, id).await.unwrap(), None);
        assert_eq!(service.wait(&tenant, id, LONG).await.unwrap(), None);
        assert!(
            service
                .subscribe(&tenant, id, None)
                .await
                .unwrap()
                .is_none()
        );
        let answer = service.cancel(&tenant, id).await.unwrap();
        assert_eq!(answer, CancelAnswer::Unknown);
    }
    let run = service.get(&named("alice"), id).await.unwrap().unwrap();
    assert_eq!(run.state.status(), "RUNNING");
    service.shutdown(Duration::ZERO).await;
}

#[tokio::test]
async fn a_used_up_quota_refuses_its_tenant_and_nobody_else() {
    let place = Place::new();
    let (fake, mut started) = Fake::new(Manner::Obedient);
    let service = serve(Arc::new(place.open().await), &fake, settings(1)).await;
    let narrow = Quotas {
        max_unfinished: Some(1),
        ..Quotas::default()
    };
    let hers = |quotas| service.submit(request(), submitter("alice", quotas), None);
    hers(narrow).await.unwrap();
    started.recv().await.unwrap();
    let refused = hers(narrow).await;
    assert!(matches!(
        refused,
        Err(SubmitError::OverQuota(Quota::Waiting))
    ));
    submit_as(&service, "bob").await;
    service.shutdown(Duration::ZERO).await;
}
