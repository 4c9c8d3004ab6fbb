//! The wall clock is wrong, and jumps (security.md 3.4, F16). It is the injected one of the daemon: the
//! host's is left alone.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bench::stand::{SOON, Stand};
use crate::support::daemon::PATIENCE;
use crate::support::wait::until;
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

/// A run with a file; its id, and where the file is.
async fn with_file(stand: &Stand) -> (Value, PathBuf) {
    let code = "open('out/kept', 'w').write('kept')";
    let run = stand.daemon.run(json!({ "code": code })).await;
    let execution = run["result"]["execution_id"].as_str().unwrap();
    let file = stand.daemon.artifacts(execution).join("kept");
    assert!(file.exists(), "{run:#}");
    (run["run_id"].clone(), file)
}

/// What a program has left when another daemon follows it is not asked of the wall clock.
#[tokio::test(flavor = "multi_thread")]
async fn f16_a_clock_that_jumps_between_two_daemons_leaves_a_program_its_time() {
    let mut stand = Stand::new().await;
    for ahead in [TEN_YEARS, -TEN_YEARS] {
        stand.set_clock(0);
        let code = "import time\nprint('armed', flush=True)\ntime.sleep(16)\nprint('over')\n";
        let ends = Flight::start_until(&stand.daemon, limited(code, 40.0), "armed").await;
        let late = "import time\nprint('armed', flush=True)\ntime.sleep(60)\n";
        let late = Flight::start_until(&stand.daemon, limited(late, 5.0), "armed").await;
        stand.daemon.kill();
        stand.set_clock(ahead);
        stand.daemon.launch();
        let run = late.end(&stand.daemon).await;
        assert_eq!(run["result"]["status"], "TIMEOUT", "{ahead}: {run:#}");
        let took = run["result"]["duration_seconds"].as_f64().unwrap();
        assert!((4.9..12.0).contains(&took), "{ahead}: {took}");
        let run = ends.end(&stand.daemon).await;
        assert_eq!(run["status"], "SUCCESS", "{ahead}: {run:#}");
        assert_eq!(run["result"]["stdout"], "armed\nover\n");
        let took = run["result"]["duration_seconds"].as_f64().unwrap();
        assert!((15.9..30.0).contains(&took), "{ahead}: {took}");
    }
    stand.engine.is_empty(SOON).await;
}

/// What was there before a jump and what ends after it is fresh, and so is what is on the engine. That
/// retention is at work all the while shows in the oldest run, which goes by number: by a clock that
/// listens to the wall's all would go.
#[tokio::test(flavor = "multi_thread")]
async fn f16_retention_never_deletes_a_fresh_run_when_the_clock_jumps() {
    let keep = "[retention]\nmax_age_days = 1\nengine_volume_days = 1\nmax_runs = 2\n\
                min_age_minutes = 0\nevery_seconds = 1";
    let mut stand = Stand::with(Default::default(), keep).await;
    let volume = stand.engine.volume_of_another_version().await;
    let mut kept = vec![with_file(&stand).await, with_file(&stand).await];
    for (ahead, is_down) in [
        (HOUR, false),
        (TEN_YEARS, false),
        (-TEN_YEARS, false),
        (TEN_YEARS, true),
        (0, true),
        (2 * TEN_YEARS, true),
    ] {
        if is_down {
            stand.daemon.kill();
        }
        stand.set_clock(ahead);
        if is_down {
            stand.daemon.launch();
        }
        kept.push(with_file(&stand).await);
        kept.remove(0);
        let newest_first: Vec<Value> = kept.iter().rev().map(|(id, _)| id.clone()).collect();
        until(PATIENCE, || listed(&stand), |ids| *ids == newest_first).await;
        for (id, file) in &kept {
            assert!(file.exists(), "a jump to {ahead} s deleted {id}");
        }
        let volumes = stand.engine.volumes().await;
        assert!(volumes.contains(&volume), "a jump to {ahead} s deleted it");
    }
    // Time that has been seen to pass counts.
    stand.daemon.stop();
    let store = stand.daemon.path().join("state/fumehood.db");
    let store = rusqlite::Connection::open(store).unwrap();
    let days = "UPDATE kept_clock SET kept = kept + 2 * 86400000000";
    store.execute(days, []).unwrap();
    store.close().unwrap();
    stand.daemon.launch();
    until(PATIENCE, || listed(&stand), Vec::is_empty).await;
    let volumes = || stand.engine.volumes();
    until(PATIENCE, volumes, |names| !names.contains(&volume)).await;
    stand.engine.is_empty(SOON).await;
}

/// The ids of its runs, newest first.
async fn listed(stand: &Stand) -> Vec<Value> {
    let runs = stand.runs().await;
    runs.iter().map(|run| run["run_id"].clone()).collect()
}
