//! Quotas and shares.

use futures_util::future::join_all;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn one_run_more_than_the_pace_is_refused_and_the_other_tenant_is_not() {
    const PACE: usize = 6;
    let daemon = daemon_with(&format!("[tenants.alice]\nruns_per_minute = {PACE}")).await;
    let alice = token(&daemon, "alice", "submit").await;
    let bob = token(&daemon, "bob", "submit").await;
    let burst = join_all((0..=PACE).map(|_| submit(&daemon, &alice, QUICK)));
    let others = join_all((0..=PACE).map(|_| submit(&daemon, &bob, QUICK)));
    let (burst, others) = tokio::join!(burst, others);
    let (refused, accepted): (Vec<_>, Vec<_>) =
        burst.into_iter().partition(|seen| seen.status == 429);
    assert_eq!((refused.len(), accepted.len()), (1, PACE));
    let refused = &refused[0];
    let policy = format!("\"default\";q={PACE};w=60");
    assert_eq!(refused.header("ratelimit-policy"), Some(policy.as_str()));
    let standing = refused.header("ratelimit").unwrap();
    let left = standing.strip_prefix("\"default\";r=0;t=").unwrap();
    assert_eq!(refused.header("retry-after"), Some(left));
    assert!((1..=60).contains(&left.parse::<u32>().unwrap()));
    assert_eq!(refused.json()["detail"], "Too many runs per minute");
    for seen in &accepted {
        assert_eq!(seen.header("ratelimit-policy"), Some(policy.as_str()));
    }
    for (token, all) in [(&alice, &accepted), (&bob, &others)] {
        for seen in all {
            ended(&daemon, token, &seen.run_id()).await;
        }
    }
}

/// Repetitions of one run, and runs for which there is no room, are no runs: however many of them are under
/// way at a time, the pace is not used up.
#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_no_run_does_not_use_up_the_pace() {
    let toml = "[app]\nmax_concurrent_runs = 1\n\
        [tenants.alice]\nruns_per_minute = 4\nmax_queued_runs = 1";
    let daemon = daemon_with(toml).await;
    let alice = token(&daemon, "alice", "submit").await;
    let with_key = async || {
        let request = daemon.request(Method::POST, "/runs").bearer_auth(&alice);
        let request = request.header("Idempotency-Key", "the-same");
        sent(request.json(&json!({ "code": ENDLESS }))).await
    };
    let repeated = join_all((0..20).map(|_| with_key())).await;
    let id = repeated[0].run_id();
    for seen in &repeated {
        assert_eq!(seen.run_id(), id);
    }
    let burst = join_all((0..20).map(|_| submit(&daemon, &alice, ENDLESS))).await;
    let (accepted, refused): (Vec<_>, Vec<_>) =
        burst.into_iter().partition(|seen| seen.status == 200);
    assert_eq!(accepted.len(), 1);
    for seen in refused {
        let detail = "Too many runs of this tenant are waiting";
        assert_eq!(seen.json()["detail"], detail, "{}", seen.text);
    }
    for id in [&id, &accepted[0].run_id()] {
        let cancel = daemon.request(Method::POST, &format!("/runs/{id}/cancel"));
        assert_eq!(sent(cancel.bearer_auth(&alice)).await.status, 200);
        ended(&daemon, &alice, id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenants_waiting_runs_and_places_are_bounded_for_it_alone() {
    let toml = "[app]\nmax_concurrent_runs = 3\n\
        [tenants.alice]\nmax_concurrent_runs = 1\nmax_queued_runs = 2";
    let daemon = daemon_with(toml).await;
    let alice = token(&daemon, "alice", "submit").await;
    let bob = token(&daemon, "bob", "submit").await;
    let mut hers = Vec::new();
    for _ in 0..3 {
        hers.push(submit(&daemon, &alice, ENDLESS).await.run_id());
    }
    let refused = submit(&daemon, &alice, QUICK).await;
    assert_eq!(refused.status, 429, "{}", refused.text);
    assert_eq!(
        refused.header("ratelimit-policy"),
        Some("\"queued-runs\";q=2")
    );
    assert!(refused.header("retry-after").is_some());
    let his = submit(&daemon, &bob, QUICK).await.run_id();
    assert_eq!(ended(&daemon, &bob, &his).await["status"], "SUCCESS");
    let listed = ask(&daemon, Method::GET, "/runs?status=RUNNING", Some(&alice)).await;
    assert_eq!(listed.json()["runs"].as_array().unwrap().len(), 1);
    for id in hers.iter().rev() {
        cancelled(&daemon, &alice, id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_time_and_storage_are_counted_and_stay_counted() {
    let toml = "[tenants.alice]\ncpu_seconds_per_day = 1\n[tenants.bob]\nmax_stored_mb = 1";
    let mut daemon = daemon_with(toml).await;
    let alice = token(&daemon, "alice", "submit").await;
    let bob = token(&daemon, "bob", "submit").await;
    let busy = "import time\nwhile time.process_time() < 1.2: pass\nprint('done')";
    let id = submit(&daemon, &alice, busy).await.run_id();
    assert_eq!(ended(&daemon, &alice, &id).await["status"], "SUCCESS");
    let large = "open('out/x', 'wb').write(b'x' * (1 << 20))";
    let id = submit(&daemon, &bob, large).await.run_id();
    assert_eq!(ended(&daemon, &bob, &id).await["status"], "SUCCESS");
    for restarted in [false, true] {
        if restarted {
            daemon.stop();
            daemon.launch();
        }
        for (token, policy) in [
            (&alice, "\"cpu-seconds\";q=1;w=86400"),
            (&bob, "\"stored-bytes\";q=1048576"),
        ] {
            let refused = submit(&daemon, token, QUICK).await;
            assert_eq!(refused.status, 429, "{}", refused.text);
            assert_eq!(refused.header("ratelimit-policy"), Some(policy));
            assert!(refused.header("retry-after").is_some());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_side_by_side_reserve_cpu_time_and_give_back_what_they_did_not_use() {
    let toml = "[execution]\ntimeout_seconds = 100\ncpus = 1.0\n\
        [tenants.alice]\ncpu_seconds_per_day = 250";
    let daemon = daemon_with(toml).await;
    let alice = token(&daemon, "alice", "submit").await;
    let bob = token(&daemon, "bob", "submit").await;
    let burst = join_all((0..10).map(|_| submit(&daemon, &alice, ENDLESS))).await;
    let (refused, accepted): (Vec<_>, Vec<_>) =
        burst.into_iter().partition(|seen| seen.status == 429);
    // The third may go over the quota, by less than itself.
    assert_eq!((accepted.len(), refused.len()), (3, 7));
    for seen in &refused {
        let policy = "\"cpu-seconds\";q=250;w=86400";
        assert_eq!(seen.header("ratelimit-policy"), Some(policy));
        assert_eq!(seen.header("retry-after"), Some("5"));
    }
    for seen in &accepted {
        cancelled(&daemon, &alice, &seen.run_id()).await;
    }
    for token in [&alice, &bob] {
        let id = submit(&daemon, token, QUICK).await.run_id();
        assert_eq!(ended(&daemon, token, &id).await["status"], "SUCCESS");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_without_a_bound_cannot_fill_the_queue_for_the_others() {
    // Nine places for alice, bob, and the tenant that is always there.
    let toml = "[app]\nmax_concurrent_runs = 1\nmax_queued_runs = 8";
    let daemon = daemon_with(toml).await;
    let alice = token(&daemon, "alice", "submit").await;
    let bob = token(&daemon, "bob", "submit").await;
    let burst = join_all((0..9).map(|_| submit(&daemon, &alice, ENDLESS))).await;
    let (refused, hers): (Vec<_>, Vec<_>) = burst.into_iter().partition(|seen| seen.status == 429);
    assert_eq!((hers.len(), refused.len()), (3, 6));
    let policy = refused[0].header("ratelimit-policy");
    assert_eq!(policy, Some("\"queued-runs\";q=3"));
    let his = join_all((0..3).map(|_| submit(&daemon, &bob, QUICK))).await;
    let his: Vec<String> = his.iter().map(Seen::run_id).collect();
    for seen in hers.iter().rev() {
        cancelled(&daemon, &alice, &seen.run_id()).await;
    }
    for id in &his {
        assert_eq!(ended(&daemon, &bob, id).await["status"], "SUCCESS");
    }
}

/// Of the runs that were started while both had some waiting, how many were alice's.
async fn share_of_alice(weights: (u32, u32), each: usize, looked_at: usize) -> usize {
    let toml = format!(
        "[app]\nmax_concurrent_runs = 1\n[tenants.alice]\nweight = {}\n[tenants.bob]\nweight = {}",
        weights.0, weights.1
    );
    let daemon = daemon_with(&toml).await;
    let alice = token(&daemon, "alice", "submit").await;
    let bob = token(&daemon, "bob", "submit").await;
    // Nothing else starts before everything waits.
    let first = submit(&daemon, &alice, ENDLESS).await.run_id();
    let mut all = Vec::new();
    for token in [&alice, &bob] {
        let burst = join_all((0..each).map(|_| submit(&daemon, token, QUICK))).await;
        all.extend(burst.iter().map(|seen| (token, seen.run_id())));
    }
    cancelled(&daemon, &alice, &first).await;
    let mut starts = Vec::new();
    for (token, id) in &all {
        ended(&daemon, token, id).await;
        let path = format!("/runs/{id}/episodes");
        let episodes = ask(&daemon, Method::GET, &path, Some(token)).await.json();
        let start: jiff::Timestamp = episodes["start_time"].as_str().unwrap().parse().unwrap();
        starts.push((start, **token == alice));
    }
    starts.sort();
    starts[..looked_at].iter().filter(|(_, hers)| *hers).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tenants_under_a_burst_get_their_shares() {
    for (weights, expected) in [((1, 1), 10), ((1, 3), 5)] {
        let hers = share_of_alice(weights, 20, 20).await;
        // Ten per cent of twenty.
        assert!(hers.abs_diff(expected) <= 2, "{weights:?}: {hers} of 20");
    }
}
