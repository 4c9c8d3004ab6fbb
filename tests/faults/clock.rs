//! The wall clock is wrong, and jumps (security.md 3.4, F16). It is the injected one of the daemon: the
//! host's is left alone.

use serde_json::{Value, json};

use crate::bench::stand::{SOON, Stand};
use crate::support::watch::{Flight, limited};

const HOUR: i64 = 3600;
const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;

#[tokio::test(flavor = "multi_thread")]
async fn f16_a_clock_that_jumps_changes_no_deadline_and_no_order() {
    let mut stand = Stand::new().await;
    stand.assert_heals().await;
    let first = stand.runs().await[0]["run_id"].clone();
    let mut newest_first: Vec<Value> = vec![first];
    for ahead in [HOUR, -HOUR, TEN_YEARS, -TEN_YEARS] {
        // One goes on over the jump and ends by itself, one meets its limit.
        let code = "import time\nprint('armed', flush=True)\ntime.sleep(2)\nprint('over')\n";
        let ends = Flight::start_until(&stand.daemon, limited(code, 20.0), "armed").await;
        let late = "import time\nprint('armed', flush=True)\ntime.sleep(60)\n";
        let late = Flight::start_until(&stand.daemon, limited(late, 4.0), "armed").await;
        stand.set_clock(ahead);
        let run = ends.end(&stand.daemon).await;
        assert_eq!(run["status"], "SUCCESS", "{ahead}: {run:#}");
        let took = run["result"]["duration_seconds"].as_f64().unwrap();
        assert!((1.9..8.0).contains(&took), "{ahead}: {took}");
        let run = late.end(&stand.daemon).await;
        assert_eq!(run["result"]["status"], "TIMEOUT", "{ahead}: {run:#}");
        let took = run["result"]["duration_seconds"].as_f64().unwrap();
        assert!((3.9..9.0).contains(&took), "{ahead}: {took}");
        newest_first.insert(0, json!(ends.id));
        newest_first.insert(0, json!(late.id));
        let listed: Vec<Value> = stand
            .runs()
            .await
            .into_iter()
            .map(|run| run["run_id"].clone())
            .collect();
        assert_eq!(listed, newest_first, "{ahead}");
        // A daemon that starts while the clock is wrong finds everything as it was.
        stand.daemon.kill();
        stand.daemon.launch();
        assert_eq!(stand.daemon.ended(&ends.id).await["status"], "SUCCESS");
    }
    stand.set_clock(0);
    stand.engine.is_empty(SOON).await;
    stand.assert_heals().await;
}

/// Without this the test above would pass with a clock that nobody listens to.
#[tokio::test(flavor = "multi_thread")]
async fn the_injected_clock_is_the_one_that_the_daemon_shows() {
    let stand = Stand::new().await;
    stand.set_clock(TEN_YEARS);
    let run = stand.daemon.run(json!({ "code": "print()" })).await;
    let shown: jiff::Timestamp = run["result"]["started_at"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let ahead = shown.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((ahead - TEN_YEARS).abs() < HOUR, "{ahead}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for retention"]
async fn f16_retention_never_deletes_a_fresh_run_when_the_clock_jumps() {
    let keep_a_day = "[retention]\nmax_age_days = 1";
    let stand = Stand::with(Default::default(), keep_a_day).await;
    let run = stand
        .daemon
        .run(json!({ "code": "open('out/kept', 'w').write('kept')" }))
        .await;
    let directory = run["result"]["workspace_dir"].as_str().unwrap();
    let kept = stand.daemon.path().join(directory).join("kept");
    assert!(kept.exists());
    stand.set_clock(TEN_YEARS);
    // A run that ends now is fresh however wrong the clock is; so is one that ended before a jump.
    stand.assert_heals().await;
    assert!(kept.exists(), "a jump deleted a fresh run");
}
