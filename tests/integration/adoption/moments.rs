//! Killed again and again, at moments that nobody chose, while runs are accepted, prepared, executed,
//! collected and recorded: the same holds after each.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::CreateContainerOptions;
use rand::Rng as _;
use serde_json::{Value, json};

use super::daemon_with;
use crate::support::Daemon;
use crate::support::daemon::PATIENCE;
use crate::support::engine::{Starts, containers_of, docker, inspect};
use crate::support::wait::until;
use crate::support::watch::{Flight, limited, nothing_left, only_container};

/// Kills; `FUMEHOOD_TEST_KILLS` asks for another number.
const KILLS: usize = 20;

/// From the start of a daemon to its death, at most.
const LIFE: Duration = Duration::from_millis(2500);

/// A program of each kind: over at once, over after more than one daemon, and with something to
/// collect.
fn programs(number: usize) -> Value {
    let code = match number % 3 {
        0 => "print('over')".to_owned(),
        1 => "import time\nfor n in range(40):\n    print(f'line {n}')\n    time.sleep(0.1)\n\
              print('over')"
            .to_owned(),
        _ => "open('out/big', 'wb').write(b'x' * (40 << 20)); print('over')".to_owned(),
    };
    json!({ "code": code, "options": { "timeout_seconds": 60.0 } })
}

fn kills() -> usize {
    let asked = std::env::var("FUMEHOOD_TEST_KILLS").ok();
    asked.map_or(KILLS, |number| number.parse().unwrap())
}

/// What clients see of a run.
async fn seen(daemon: &Daemon, id: &str) -> [Value; 3] {
    let mut all = [Value::Null, Value::Null, Value::Null];
    for (seen, part) in all.iter_mut().zip(["", "/episodes", "/artifacts"]) {
        let (status, value) = daemon.get(&format!("/runs/{id}{part}")).await;
        assert_eq!(status, 200, "{value}");
        *seen = value;
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn no_run_is_lost_none_runs_twice_and_no_end_changes() {
    let mut daemon = daemon_with("[app]\nmax_concurrent_runs = 3\n[pool]\nsize = 1").await;
    let starts = Starts::watch(&daemon.instance()).await;
    let mut ids: Vec<String> = Vec::new();
    let mut ended: BTreeMap<String, [Value; 3]> = BTreeMap::new();
    // How often the container of each execution had been started when it was first known to be one
    // whose program was told to start.
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..kills() {
        let dies = Instant::now() + LIFE.mul_f64(rand::rng().random());
        for _ in 0..2 {
            let body = programs(ids.len());
            ids.push(daemon.submit(body).await);
        }
        until(PATIENCE, async || Instant::now(), |now| *now >= dies).await;
        daemon.kill();
        for execution in daemon.handoffs() {
            let count = starts.of(&execution);
            told.entry(execution).or_insert(count);
        }
        daemon.launch();
        for (id, earlier) in &ended {
            assert_eq!(&seen(&daemon, id).await, earlier, "an end has changed");
        }
        for id in &ids {
            let now = seen(&daemon, id).await;
            if !["QUEUED", "RUNNING"].contains(&now[0]["status"].as_str().unwrap()) {
                ended.insert(id.clone(), now);
            }
        }
    }
    for (number, id) in ids.iter().enumerate() {
        let run = daemon.ended(id).await;
        assert_eq!(run["status"], "SUCCESS", "{number}: {run}");
        let [_, episodes, artifacts] = seen(&daemon, id).await;
        let episodes = episodes["episodes"].as_array().unwrap();
        assert_eq!(episodes.len(), 1, "{number}");
        let printed = &episodes[0]["execution_result_summary"]["stdout_excerpt"];
        assert!(printed.as_str().unwrap().ends_with("over\n"), "{printed}");
        let sizes: Vec<u64> = artifacts["artifacts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|artifact| artifact["size"].as_u64().unwrap())
            .collect();
        let expected: &[u64] = if number % 3 == 2 { &[40 << 20] } else { &[] };
        assert_eq!(sizes, expected, "{number}");
    }
    for (execution, count) in &told {
        // One that is not seen yet was started before anybody watched, or is about to be seen.
        let now = starts.of(execution);
        // The container of a program that certainly was not told to start is followed by another one.
        let log = daemon.log();
        let afresh = log.lines().filter(|line| {
            line.contains(execution.as_str()) && line.contains("is carried out afresh")
        });
        let allowed = (*count).max(1) + afresh.count();
        assert!(now <= allowed, "{execution} was started again");
    }
    assert_eq!(daemon.handoffs(), Vec::<String>::new());
    // With the daemon goes what waited for runs.
    daemon.stop();
    nothing_left(&daemon, Duration::from_secs(20)).await;
    let store = daemon.path().join("state/fumehood.db");
    let store = rusqlite::Connection::open(store).unwrap();
    let check: String = store
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
    let open: i64 = store
        .query_row(
            "SELECT count(*) FROM executions WHERE state = 'OPEN'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(open, 0);
}

/// What a dead daemon had asked for and the engine makes only now.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_appears_after_the_start_is_removed_and_no_other() {
    let mut daemon = daemon_with("[app]\nmax_concurrent_runs = 2").await;
    let endless = limited("import time\nprint('armed')\ntime.sleep(600)", 600.0);
    let flight = Flight::start_until(&daemon, endless.clone(), "armed").await;
    let adopted = only_container(&daemon).await;
    daemon.kill();
    daemon.launch();
    let made = Flight::start_until(&daemon, endless, "armed").await;
    let instance = daemon.instance();
    let before = containers_of(&instance).await;
    let is_adopted = |name: &String| name.trim_start_matches('/') == adopted;
    assert!(
        before.len() == 2 && before.iter().any(is_adopted),
        "{before:?} {adopted}"
    );
    let labels = [
        ("fumehood.instance", instance.as_str()),
        ("fumehood.execution", "exec_00000000"),
    ];
    let body = ContainerCreateBody {
        image: inspect(&adopted).await.image,
        cmd: Some(vec!["true".to_owned()]),
        labels: Some(
            labels
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        ),
        ..Default::default()
    };
    let late = CreateContainerOptions {
        name: Some(format!("fumehood-{instance}-exec_00000000")),
        ..Default::default()
    };
    docker()
        .await
        .create_container(Some(late), body)
        .await
        .unwrap();
    assert_eq!(containers_of(&instance).await.len(), 3);
    let there = async || containers_of(&instance).await.len();
    until(PATIENCE, there, |count| *count < 3).await;
    let mut after = containers_of(&instance).await;
    after.sort();
    let mut expected = before;
    expected.sort();
    assert_eq!(after, expected);
    for flight in [flight, made] {
        let cancelling = format!("/runs/{}/cancel", flight.id);
        daemon.post(&cancelling, &json!({})).await;
        assert_eq!(flight.end(&daemon).await["status"], "CANCELLED");
    }
    nothing_left(&daemon, Duration::from_secs(10)).await;
}
