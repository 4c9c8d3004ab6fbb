//! `fumehood gc`.

use serde_json::json;

use super::{daemon, json_of, published, with_artifact};
use crate::command_line::{Bench, Called, command_in};
use crate::support::Daemon;

const KEEP_ONE: &str = "[retention]\nmax_runs = 1\nmin_age_minutes = 0\nevery_seconds = 86400\n";

fn call(daemon: &Daemon, arguments: &[&str]) -> Called {
    let output = command_in(daemon.path(), arguments).output();
    output.unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_daemon_it_tells_what_would_go_and_changes_nothing() {
    let daemon = daemon(KEEP_ONE).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(with_artifact(&daemon).await);
    }
    let told = call(&daemon, &["gc", "--dry-run", "--json"]);
    assert_eq!(told.code, 0, "{told:?}");
    let told = json_of(&told.stdout);
    assert_eq!(told["dry_run"], true);
    let going: Vec<&str> = told["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["run_id"].as_str().unwrap())
        .collect();
    assert_eq!(going, [&runs[0].0, &runs[1].0]);
    for run in told["runs"].as_array().unwrap() {
        assert_eq!(
            (&run["tenant"], &run["reason"]),
            (&json!("default"), &json!("count"))
        );
        assert!(run["bytes"].as_u64().unwrap() > 0);
    }
    let words = call(&daemon, &["gc", "--dry-run"]);
    for word in [
        runs[0].0.as_str(),
        runs[1].0.as_str(),
        "more than 1 run",
        ") would be removed",
        "1 ended run (",
    ] {
        assert!(words.stdout.contains(word), "{word}: {words:?}");
    }
    assert!(!words.stdout.contains(&runs[2].0), "{words:?}");
    // The store is the daemon's; it is said who does it then.
    let refused = call(&daemon, &["gc"]);
    assert_eq!(refused.code, 69, "{refused:?}");
    for word in ["in use", "--dry-run", "retention.every_seconds"] {
        assert!(refused.stderr.contains(word), "{word}: {refused:?}");
    }
    assert_eq!(published(&daemon).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_daemon_it_removes_and_the_chain_of_receipts_stays_whole() {
    let mut daemon = daemon(KEEP_ONE).await;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(with_artifact(&daemon).await);
    }
    let first = call(&daemon, &["receipt", "export"]);
    let first = first.stdout.lines().next().unwrap().to_owned();
    std::fs::write(daemon.path().join("kept"), first).unwrap();
    daemon.stop();
    let done = call(&daemon, &["gc", "--json"]);
    assert_eq!(done.code, 0, "{done:?}");
    let done = json_of(&done.stdout);
    assert_eq!(done["dry_run"], false);
    assert_eq!(done["total"]["runs"], 2);
    assert_eq!(done["artifacts"], json!({ "removed": 2, "left": 0 }));
    let gone = done["runs"].as_array().unwrap();
    let gone: Vec<&str> = gone
        .iter()
        .map(|run| run["run_id"].as_str().unwrap())
        .collect();
    assert_eq!(gone, [&runs[0].0, &runs[1].0]);
    assert_eq!(published(&daemon), [runs[2].1.clone()]);
    let again = call(&daemon, &["gc"]);
    assert!(
        again.stdout.contains("No run was removed: none is due"),
        "{again:?}"
    );

    let chain = call(&daemon, &["receipt", "export"]);
    assert_eq!(chain.stdout.lines().count(), 3);
    std::fs::write(daemon.path().join("chain"), chain.stdout).unwrap();
    let verified = call(&daemon, &["verify", "chain", "--kept", "kept"]);
    assert_eq!(verified.code, 0, "{verified:?}");

    daemon.launch();
    assert_eq!(daemon.get(&format!("/runs/{}", runs[0].0)).await.0, 404);
    assert_eq!(daemon.get(&format!("/runs/{}", runs[2].0)).await.0, 200);
    // The chain goes on behind it.
    let (next, _) = with_artifact(&daemon).await;
    let (_, receipt) = daemon.get(&format!("/runs/{next}/receipt")).await;
    assert_eq!(receipt["statement"]["chain"]["number"], 4);
}

#[test]
fn without_a_store_there_is_nothing_and_none_is_made() {
    let bench = Bench::new();
    for arguments in [&["gc"][..], &["gc", "--dry-run"]] {
        let called = bench.call(arguments);
        assert_eq!(called.code, 69, "{called:?}");
        assert!(called.stderr.contains("fumehood serve"), "{called:?}");
    }
    assert!(!bench.path().join(".fumehood").exists());
}
