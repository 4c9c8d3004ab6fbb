//! Sandboxes are made for runs that wait for their turn.

use bollard::query_parameters::InspectContainerOptions;
use serde_json::json;

use super::{full_pool, start, until_full};
use crate::support::Daemon;
use crate::support::daemon::PATIENCE;
use crate::support::engine::{docker, running_containers_of};
use crate::support::wait::until;
use crate::support::watch::Flight;

const UNUSUAL_MB: i64 = 333;

/// Whether a sandbox of the unusual size runs.
async fn is_made(daemon: &Daemon) -> bool {
    let docker = docker().await;
    for name in running_containers_of(&daemon.instance()).await {
        // One that is gone meanwhile is not the one.
        let name = name.trim_start_matches('/');
        let seen = docker.inspect_container(name, None::<InspectContainerOptions>);
        let memory = seen.await.ok().and_then(|seen| seen.host_config?.memory);
        if memory == Some(UNUSUAL_MB << 20) {
            return true;
        }
    }
    false
}

/// Nothing like it was ever used before, and the pool's only place was another's.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_to_wait_finds_its_sandbox_ready() {
    let daemon = full_pool(1, &["json"], "[app]\nmax_concurrent_runs = 1").await;
    let gate = daemon.data().join("gate");
    std::fs::create_dir(&gate).unwrap();
    let waits = "
import os, time
print('waits', flush=True)
while not os.path.exists('/data/open'): time.sleep(0.02)";
    let first = json!({"code": waits, "dataset_path": "data/gate"});
    let first = Flight::start_until(&daemon, first, "waits").await;
    until_full(&daemon, 1).await;
    assert!(!is_made(&daemon).await);
    let unusual = json!({"code": "print('next')", "options": {"memory_mb": UNUSUAL_MB}});
    let second = Flight::start(&daemon, unusual).await;
    until(PATIENCE, || is_made(&daemon), |made| *made).await;
    until_full(&daemon, 1).await;
    std::fs::write(gate.join("open"), "").unwrap();
    first.end(&daemon).await;
    let second = second.end(&daemon).await;
    assert_eq!(start(&second["result"]), "preloaded", "{second:#}");
    assert_eq!(second["result"]["stdout"], "next\n");
}
