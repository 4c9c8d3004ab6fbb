//! What is kept, for how long, and on how full a disk (security.md 3.2 and F13 to F16).

mod command;
mod engine;
mod faults;
mod floor;
mod flushes;
mod many;
mod trace;

use serde_json::{Value, json};

use crate::support::daemon::PATIENCE;
use crate::support::wait::until;
use crate::support::{Daemon, Settings};

/// Keeps two runs, looks every second.
const TWO: &str = "[retention]\nmax_runs = 2\nmin_age_minutes = 0\nevery_seconds = 1\n";

async fn daemon(toml: &str) -> Daemon {
    Daemon::start_with(Settings {
        toml: toml.to_owned(),
        ..Settings::default()
    })
    .await
}

/// A run with an artifact; its id and its execution's.
async fn with_artifact(daemon: &Daemon) -> (String, String) {
    let code = "open('out/kept.txt', 'w').write('kept')";
    let run = daemon.run(json!({ "code": code })).await;
    let execution = run["result"]["execution_id"].as_str().unwrap().to_owned();
    (run["run_id"].as_str().unwrap().to_owned(), execution)
}

/// What is published. What is half-done has another name: of a run that goes on, or of one whose
/// removal is under way.
fn published(daemon: &Daemon) -> Vec<String> {
    let models = std::fs::read_dir(daemon.path().join("outputs/models")).unwrap();
    let names = models.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("exec_")).collect();
    names.sort();
    names
}

async fn kept(daemon: &Daemon) -> usize {
    let (status, list) = daemon.get("/runs?limit=100").await;
    assert_eq!(status, 200, "{list}");
    list["runs"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_nothing_goes() {
    let daemon = daemon("[retention]\nevery_seconds = 1\nmin_age_minutes = 0\n").await;
    let (id, execution) = with_artifact(&daemon).await;
    // Of a pass there is nothing to be seen, but a restart begins with one.
    let mut daemon = daemon;
    daemon.stop();
    daemon.launch();
    assert_eq!(daemon.get(&format!("/runs/{id}")).await.0, 200);
    assert_eq!(published(&daemon), [execution]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_runs_go_whole_in_the_background_and_what_goes_on_stays() {
    let daemon = daemon(&format!("{TWO}[app]\nmax_concurrent_runs = 2\n")).await;
    let set = daemon.data().join("set");
    std::fs::create_dir(&set).unwrap();
    let waits = "import os, time\nwhile not os.path.exists('/data/go'): time.sleep(0.05)\n";
    let oldest = daemon
        .submit(json!({ "dataset_path": "data/set", "code": waits }))
        .await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(with_artifact(&daemon).await);
    }
    until(PATIENCE, async || kept(&daemon).await, |count| *count == 3).await;
    // The one that goes on is the oldest of all, and stays.
    let (status, run) = daemon.get(&format!("/runs/{oldest}")).await;
    assert_eq!((status, &run["status"]), (200, &json!("RUNNING")));
    for (id, _) in &runs[..2] {
        for path in ["", "/episodes", "/artifacts", "/receipt"] {
            let (status, answer) = daemon.get(&format!("/runs/{id}{path}")).await;
            assert_eq!(status, 404, "{path}: {answer}");
        }
    }
    let mut expected: Vec<String> = runs[2..].iter().map(|(_, e)| e.clone()).collect();
    expected.sort();
    let models = async || published(&daemon);
    until(PATIENCE, models, |names: &Vec<String>| names.len() == 2).await;
    assert_eq!(published(&daemon), expected);
    std::fs::write(set.join("go"), "").unwrap();
    assert_eq!(daemon.ended(&oldest).await["status"], "SUCCESS");
}

/// Killed at any moment of its clearing up, it ends with the same as if it had not been.
#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_clears_up_it_leaves_no_half_of_a_run() {
    let mut daemon = daemon("[retention]\nmin_age_minutes = 0\nevery_seconds = 1\n").await;
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(with_artifact(&daemon).await);
    }
    for most in [5, 4, 3, 2] {
        daemon.stop();
        daemon.set_toml(&format!(
            "[retention]\nmax_runs = {most}\nmin_age_minutes = 0\nevery_seconds = 1\n"
        ));
        daemon.launch();
        daemon.kill();
        daemon.launch();
        until(
            PATIENCE,
            async || kept(&daemon).await,
            |count| *count == most,
        )
        .await;
        let models = async || published(&daemon);
        until(PATIENCE, models, |names: &Vec<String>| names.len() == most).await;
        let mut expected: Vec<String> = runs[6 - most..].iter().map(|(_, e)| e.clone()).collect();
        expected.sort();
        assert_eq!(published(&daemon), expected);
    }
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"))
}
