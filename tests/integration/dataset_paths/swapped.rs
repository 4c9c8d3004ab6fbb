//! What happens to a data set between the check and its use (BR-27).

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use super::{LIST, make};
use crate::support::daemon::PATIENCE;
use crate::support::wait::until;
use crate::support::{Daemon, Settings};

/// A change to the data root at the time when a run waits for its turn.
struct Swap {
    name: &'static str,
    dataset: &'static str,
    act: fn(&Path),
}

const SWAPS: [Swap; 6] = [
    Swap {
        name: "a link to a directory outside",
        dataset: "data/ds",
        act: |top| {
            std::fs::remove_dir_all(top.join("data/ds")).unwrap();
            symlink("../outside", top.join("data/ds")).unwrap();
        },
    },
    Swap {
        name: "deleted",
        dataset: "data/ds",
        act: |top| std::fs::remove_dir_all(top.join("data/ds")).unwrap(),
    },
    Swap {
        name: "its parent a link to outside",
        dataset: "data/parent/ds",
        act: |top| {
            make(&top.join("outside/ds"), "CANARY.txt");
            std::fs::rename(top.join("data/parent"), top.join("data/moved")).unwrap();
            symlink("../outside", top.join("data/parent")).unwrap();
        },
    },
    Swap {
        name: "another directory moved into its place",
        dataset: "data/ds",
        act: |top| {
            std::fs::rename(top.join("data/ds"), top.join("data/old")).unwrap();
            std::fs::rename(top.join("outside"), top.join("data/ds")).unwrap();
        },
    },
    Swap {
        name: "a file",
        dataset: "data/ds",
        act: |top| {
            std::fs::remove_dir_all(top.join("data/ds")).unwrap();
            std::fs::write(top.join("data/ds"), "CANARY.txt").unwrap();
        },
    },
    Swap {
        name: "a link to the very same directory",
        dataset: "data/ds",
        act: |top| {
            std::fs::rename(top.join("data/ds"), top.join("outside/ds")).unwrap();
            symlink("../outside/ds", top.join("data/ds")).unwrap();
        },
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn a_data_set_that_changed_while_the_run_waited_is_an_error_and_never_another_directory() {
    for swap in SWAPS {
        let toml = "[app]\nmax_concurrent_runs = 1".to_owned();
        let daemon = Daemon::start_with(Settings {
            toml,
            ..Settings::default()
        })
        .await;
        make(&daemon.data().join("ds"), "right.csv");
        make(&daemon.data().join("parent/ds"), "right.csv");
        make(&daemon.path().join("outside"), "CANARY.txt");
        let endless = json!({ "code": "while True: __import__('time').sleep(1)" });
        let blocker = daemon.submit(endless).await;
        let ask = || async { daemon.get(&format!("/runs/{blocker}")).await.1 };
        until(PATIENCE, ask, |run| run["status"] == "RUNNING").await;
        let id = daemon
            .submit(json!({ "dataset_path": swap.dataset, "code": LIST }))
            .await;
        assert_eq!(
            daemon.get(&format!("/runs/{id}")).await.1["status"],
            "QUEUED"
        );

        (swap.act)(daemon.path());
        let cancelling = format!("/runs/{blocker}/cancel");
        assert_eq!(daemon.post(&cancelling, &json!({})).await.0, 200);
        let run = daemon.ended(&id).await;
        let (_, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
        let name = swap.name;
        assert_eq!(run["status"], "FAIL", "{name}: {run:#}");
        let why = run["final_error"].as_str().unwrap();
        assert!(
            why.contains("data set changed or is missing"),
            "{name}: {why}"
        );
        let episode = &episodes["episodes"][0];
        assert_eq!(episode["execution_status"], "ERROR", "{name}");
        let shown = format!("{run}{episodes}");
        assert!(!shown.contains("CANARY"), "{name}: {shown}");
        assert!(
            !shown.contains(daemon.path().to_str().unwrap()),
            "{name}: {shown}"
        );
        if name == "deleted" {
            let made = daemon.data().join("ds").symlink_metadata();
            assert!(made.is_err(), "the directory was made on the host");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_change_inside_the_data_set_are_no_change_of_the_data_set() {
    let daemon = Daemon::start().await;
    make(&daemon.data().join("ds"), "a.csv");
    let body = json!({ "dataset_path": "data/ds", "code": LIST });
    assert_eq!(daemon.result(body.clone()).await["stdout"], "[\"a.csv\"]\n");
    make(&daemon.data().join("ds"), "b.csv");
    assert_eq!(
        daemon.result(body).await["stdout"],
        "[\"a.csv\", \"b.csv\"]\n"
    );
}
