//! Limits count from the start of the program, not from the making of its sandbox.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::{full_pool, start};
use crate::support::Daemon;
use crate::support::daemon::PATIENCE;
use crate::support::engine::{inspect, running_containers_of};
use crate::support::wait::until;

/// Waits until every sandbox of the pool has waited for so long.
async fn waited_for(daemon: &Daemon, age: Duration) {
    let ask = || async {
        let mut ages = Vec::new();
        for name in running_containers_of(&daemon.instance()).await {
            let started = inspect(&name).await.state.unwrap().started_at.unwrap();
            let started: jiff::Timestamp = started.parse().unwrap();
            let age = SystemTime::now().duration_since(started.into());
            ages.push(age.unwrap_or_default());
        }
        ages
    };
    until(PATIENCE, ask, |ages| {
        ages.iter().all(|waited| *waited > age)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_that_a_sandbox_has_waited_is_not_the_program_s() {
    let daemon = full_pool(1, &["decimal"], "").await;
    waited_for(&daemon, Duration::from_secs(3)).await;
    let code = "import time; time.sleep(0.2); print('in time')";
    let body = json!({"code": code, "options": {"timeout_seconds": 2}});
    let result = daemon.result(body).await;
    assert_eq!(start(&result), "preloaded");
    assert_eq!(result["stdout"], "in time\n", "{result:#}");
    let duration = result["duration_seconds"].as_f64().unwrap();
    assert!((0.2..2.0).contains(&duration), "{duration}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_in_a_waiting_sandbox_ends_at_its_limit_with_all_its_processes() {
    let daemon = full_pool(1, &[], "").await;
    let code = "
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)
if os.fork() == 0: os.setsid()
else: print('armed', flush=True)
while True: time.sleep(1)
";
    let body = json!({"code": code, "options": {"timeout_seconds": 4}});
    let result = daemon.result(body).await;
    assert_eq!(start(&result), "warm");
    assert_eq!(result["status"], "TIMEOUT", "{result:#}");
    assert_eq!(result["limit"], "time");
    assert_eq!(result["stdout"], "armed\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_and_cpu_time_of_a_preloaded_program_are_its_own() {
    let limits = "[execution]\nmemory_mb = 700\n[app]\nmax_concurrent_runs = 1";
    let daemon = full_pool(1, &["pandas", "sklearn.linear_model"], limits).await;
    let result = daemon.execute("print('nothing')").await;
    assert_eq!(start(&result), "preloaded");
    // Importing pandas and scikit-learn takes several times as much.
    let cpu = result["usage"]["cpu_seconds"].as_f64().unwrap();
    assert!(cpu < 0.5, "{cpu}");

    super::until_full(&daemon, 1).await;
    let greedy = "keep = []\nwhile True: keep.append(bytearray(1 << 20))";
    let result = daemon.execute(greedy).await;
    assert_eq!(start(&result), "preloaded");
    assert_eq!(result["limit"], "memory", "{result:#}");
    assert_eq!(result["status"], "FAILURE");
    assert_ne!(result["usage"], Value::Null);
}
