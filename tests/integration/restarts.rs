//! The daemon goes away and comes back (bug case BR-37).

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::daemon::PATIENCE;
use crate::support::data::tree_hash;
use crate::support::engine::containers_of;
use crate::support::proxy::{Fault, Proxy};
use crate::support::wait::until;
use crate::support::watch::{Flight, limited, nothing_left};
use crate::support::{Daemon, Settings};

/// Long enough for a daemon to die in it and another one to come.
const FOR_A_WHILE: &str = "import time; print('armed'); time.sleep(6); print('over')";

async fn two_at_once() -> Daemon {
    Daemon::start_with(Settings {
        toml: "[app]\nmax_concurrent_runs = 2".to_owned(),
        ..Settings::default()
    })
    .await
}

/// What clients see of a run, whole.
async fn seen(daemon: &Daemon, id: &str) -> [Value; 3] {
    let run = daemon.get(&format!("/runs/{id}")).await;
    let episodes = daemon.get(&format!("/runs/{id}/episodes")).await;
    let artifacts = daemon.get(&format!("/runs/{id}/artifacts")).await;
    [run, episodes, artifacts].map(|(status, value)| {
        assert_eq!(status, 200, "{value}");
        value
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_with_work_in_hand_it_goes_on_with_what_ran_runs_what_waited_and_keeps_the_rest() {
    let mut daemon = two_at_once().await;
    let done = daemon
        .run(json!({ "code": "open('out/kept.txt', 'w').write('kept'); print('done')" }))
        .await;
    let done = done["run_id"].as_str().unwrap().to_owned();
    let before = seen(&daemon, &done).await;
    let models = daemon.path().join("outputs/models");
    let files = tree_hash(&models);

    let first = Flight::start_until(&daemon, limited(FOR_A_WHILE, 60.0), "armed").await;
    let second = Flight::start_until(&daemon, limited(FOR_A_WHILE, 60.0), "armed").await;
    let mut queued = Vec::new();
    for number in 0..3 {
        let code = format!("print({number})");
        queued.push(daemon.submit(json!({ "code": code })).await);
    }
    assert_eq!(containers_of(&daemon.instance()).await.len(), 2);
    daemon.kill();
    daemon.launch();

    for flight in [&first, &second] {
        let run = flight.end(&daemon).await;
        assert_eq!(run["status"], "SUCCESS", "{run}");
        assert_eq!(run["result"]["stdout"], "armed\nover\n");
    }
    for id in &queued {
        assert_eq!(daemon.ended(id).await["status"], "SUCCESS");
    }
    nothing_left(&daemon, Duration::from_secs(5)).await;
    assert_eq!(seen(&daemon, &done).await, before);
    let published = std::fs::read_dir(&models).unwrap().count();
    assert_eq!(published, 3 + queued.len());

    let mut all = vec![first.id, second.id, done];
    all.extend(queued);
    let mut after_first = Vec::new();
    for id in &all {
        after_first.push(seen(&daemon, id).await);
    }
    let files_now = tree_hash(&models);
    assert_ne!(files_now, files);
    daemon.kill();
    daemon.launch();
    for (id, earlier) in all.iter().zip(&after_first) {
        assert_eq!(&seen(&daemon, id).await, earlier);
    }
    assert_eq!(tree_hash(&models), files_now);
    let fresh = daemon.execute("print('fresh')").await;
    assert_eq!(fresh["stdout"], "fresh\n");
}

/// Artifacts appear whole or not at all, also if the daemon dies in the middle of them: the next one
/// fetches them from the beginning.
#[tokio::test(flavor = "multi_thread")]
async fn killed_while_artifacts_are_copied_it_copies_them_from_the_beginning() {
    let mut daemon = two_at_once().await;
    let code = "import os\npiece = os.urandom(1 << 20)\n\
                with open('out/big', 'wb') as f:\n    for _ in range(700): f.write(piece)\n";
    let body = json!({ "code": code });
    let flight = Flight::start(&daemon, body).await;
    let models = daemon.path().join("outputs/models");
    let entries = || {
        let list = std::fs::read_dir(&models).into_iter().flatten().flatten();
        list.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    // So much of the big file has arrived that most of it was acknowledged, and it is not published.
    until(
        PATIENCE,
        async || {
            let big = entries().into_iter().map(|path| path.join("big"));
            big.filter_map(|file| file.metadata().ok())
                .map(|metadata| metadata.len())
                .sum::<u64>()
        },
        |bytes| *bytes > 40 << 20,
    )
    .await;
    daemon.kill();
    let names = entries();
    assert!(
        names.iter().all(|path| !path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with("exec_")),
        "the copy was over before the daemon was killed: {names:?}"
    );
    daemon.launch();
    let run = flight.end(&daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run}");
    nothing_left(&daemon, Duration::from_secs(5)).await;
    let sizes: Vec<u64> = entries()
        .into_iter()
        .map(|path| path.join("big").metadata().unwrap().len())
        .collect();
    assert_eq!(sizes, [700 << 20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn asked_to_stop_it_leaves_what_runs_and_what_waits_to_the_next_start() {
    let mut daemon = two_at_once().await;
    let first = Flight::start_until(&daemon, limited(FOR_A_WHILE, 60.0), "armed").await;
    let second = Flight::start_until(&daemon, limited(FOR_A_WHILE, 60.0), "armed").await;
    let queued = daemon.submit(json!({ "code": "print('turn')" })).await;
    let instance = daemon.instance();
    let asked = std::time::Instant::now();
    daemon.stop();
    assert!(asked.elapsed() < Duration::from_secs(10), "{asked:?}");
    assert_eq!(containers_of(&instance).await.len(), 2);
    daemon.launch();
    for flight in [&first, &second] {
        let run = flight.end(&daemon).await;
        assert_eq!(run["result"]["stdout"], "armed\nover\n", "{run}");
    }
    assert_eq!(daemon.ended(&queued).await["status"], "SUCCESS");
}

/// The order of a machine's start: the engine comes up after the daemon.
#[tokio::test(flavor = "multi_thread")]
async fn started_before_its_engine_it_goes_on_when_the_engine_is_there() {
    let proxy = Proxy::start();
    let mut daemon = Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    let flight = Flight::start_until(&daemon, limited(FOR_A_WHILE, 60.0), "armed").await;
    daemon.kill();
    proxy.leave();
    daemon.launch();
    assert_eq!(
        daemon.get(&format!("/runs/{}", flight.id)).await.1["status"],
        "RUNNING"
    );
    assert_eq!(containers_of(&daemon.instance()).await.len(), 1);
    proxy.come_back();
    let run = flight.end(&daemon).await;
    assert_eq!(run["result"]["stdout"], "armed\nover\n", "{run}");
    nothing_left(&daemon, Duration::from_secs(20)).await;
}

/// The container that fills the supervisor's volume is as temporary as any other.
#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_fills_the_supervisor_volume_it_leaves_no_container() {
    let proxy = Proxy::start();
    let mut daemon = Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    let reading = proxy.fault("GET", "/archive", Fault::Hang);
    let id = daemon.submit(json!({ "code": "print()" })).await;
    until(PATIENCE, async || reading.count(), |count| *count > 0).await;
    assert_eq!(containers_of(&daemon.instance()).await.len(), 1);
    daemon.kill();
    proxy.behave();
    daemon.launch();
    // Its program was never started: that is done now.
    assert_eq!(daemon.ended(&id).await["status"], "SUCCESS");
    nothing_left(&daemon, Duration::from_secs(5)).await;
}

/// Whatever the daemon was doing: each run that was acknowledged ends once, and nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_twelve_moments_it_loses_no_run_that_it_acknowledged() {
    let mut daemon = two_at_once().await;
    let begun = std::time::Instant::now();
    daemon.execute("print('warm')").await;
    // From before anything is made of a run to after its end, however fast the host is just now.
    let step = begun.elapsed() / 6;
    let mut ids = Vec::new();
    let mut ended: Vec<(String, [Value; 3])> = Vec::new();
    for moment in 0..12 {
        let kill_at = std::time::Instant::now() + step * moment;
        for _ in 0..2 {
            let code = "open('out/predictions.csv', 'w').write('whole')";
            ids.push(daemon.submit(json!({ "code": code })).await);
        }
        until(
            PATIENCE,
            async || std::time::Instant::now(),
            |now| *now >= kill_at,
        )
        .await;
        daemon.kill();
        daemon.launch();
        // What had ended before stays as it was.
        for (id, earlier) in &ended {
            assert_eq!(&seen(&daemon, id).await, earlier);
        }
        ended.clear();
        for id in &ids {
            let run = seen(&daemon, id).await;
            if !["QUEUED", "RUNNING"].contains(&run[0]["status"].as_str().unwrap()) {
                ended.push((id.clone(), run));
            }
        }
    }
    for id in &ids {
        let run = daemon.ended(id).await;
        assert_eq!(run["status"], "SUCCESS", "{run}");
        let reference = run["prediction_artifact_reference"].as_str().unwrap();
        let written = std::fs::read_to_string(daemon.artifacts(reference)).unwrap();
        assert_eq!(written, "whole");
    }
    nothing_left(&daemon, Duration::from_secs(5)).await;
}
