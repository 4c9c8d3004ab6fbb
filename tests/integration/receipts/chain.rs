//! One chain for each daemon, through runs, restarts and kills.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Auditor, call, public_key, receipt, statement};
use crate::support::daemon::PATIENCE;
use crate::support::engine::{containers_of, kill};
use crate::support::wait::until;
use crate::support::watch::{Flight, limited, only_container};
use crate::support::{Daemon, Settings};

const LONG: &str = "import time; print('armed\\n', end=''); time.sleep(60)";

fn number(receipt: &str) -> usize {
    let number = statement(receipt)["chain"]["number"].as_u64();
    usize::try_from(number.unwrap()).unwrap()
}

/// The receipts of these runs in order of their numbers, after checking with the program that they
/// are one chain, whole and by one key.
async fn chain(daemon: &Daemon, runs: &[String]) -> Vec<String> {
    let mut receipts = Vec::new();
    for run in runs {
        receipts.push(receipt(daemon, run).await);
    }
    receipts.sort_by_key(|receipt| number(receipt));
    let numbers: Vec<usize> = receipts.iter().map(|receipt| number(receipt)).collect();
    assert_eq!(numbers, (1..=runs.len()).collect::<Vec<_>>());
    let (auditor, key) = (Auditor::new(), public_key(daemon));
    auditor.keep("1.json", &receipts[0]);
    for (index, this) in receipts.iter().enumerate().skip(1) {
        auditor.keep("this.json", this);
        auditor.keep("before.json", &receipts[index - 1]);
        let called = auditor.verify(&["this.json", "--key", &key, "--previous", "before.json"]);
        assert_eq!(called.code, 0, "{called:?}");
        let words = format!("chain: it follows receipt {index}");
        assert!(called.stdout.contains(&words), "{called:?}");
    }
    receipts
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chain_goes_on_through_restarts_and_kills_and_names_what_was_lost() {
    let mut daemon = Daemon::start().await;
    let key = public_key(&daemon);
    let mut runs = Vec::new();
    let mut run = async |daemon: &Daemon| {
        let run = daemon.run(json!({ "code": "print('done')" })).await;
        runs.push(run["run_id"].as_str().unwrap().to_owned());
    };
    for _ in 0..2 {
        run(&daemon).await;
    }
    daemon.stop();
    daemon.launch();
    run(&daemon).await;
    let flight = Flight::start_until(&daemon, limited(LONG, 60.0), "armed").await;
    let container = only_container(&daemon).await;
    daemon.kill();
    kill(&container).await;
    daemon.launch();
    daemon.ended(&flight.id).await;
    run(&daemon).await;
    runs.push(flight.id.clone());
    assert_eq!(public_key(&daemon), key);

    let receipts = chain(&daemon, &runs).await;
    let lost = statement(&receipts[3]);
    assert_eq!(lost["execution"]["run_id"], flight.id.as_str());
    assert_eq!(lost["outcome"]["status"], "ERROR");
    assert_eq!(lost["outcome"]["cause"], "infrastructure");
    // What was read back before its start was put away for the next daemon.
    assert!(lost["isolation"].is_object(), "{lost:#}");
    // What was signed once stays as it was.
    daemon.kill();
    daemon.launch();
    assert_eq!(chain(&daemon, &runs).await, receipts);

    let auditor = Auditor::new();
    let wrong = |this: usize, before: usize| {
        auditor.keep("before.json", &receipts[before]);
        auditor.refusal(&receipts[this], &["--previous", "before.json"])
    };
    let gap = wrong(3, 1);
    assert!(
        gap.contains("chain: receipt 4 comes after receipt 3, not after receipt 2"),
        "{gap}"
    );
    assert!(
        gap.contains("chain: it was chained to the receipt with the hash"),
        "{gap}"
    );
    let backwards = wrong(1, 2);
    assert!(
        backwards.contains("chain: receipt 2 comes after receipt 1"),
        "{backwards}"
    );
    let first = wrong(0, 0);
    assert!(first.contains("chain: "), "{first}");
    // The one before was itself tampered with.
    let changed = receipts[0].replace("SUCCESS", "FAILURE");
    auditor.keep("before.json", changed);
    let reasons = auditor.refusal(&receipts[1], &["--previous", "before.json"]);
    assert!(
        reasons.contains("the receipt before: signature: "),
        "{reasons}"
    );
}

/// Every receipt of a daemon, as an operator hands them out.
fn exported(daemon: &Daemon) -> Vec<String> {
    let called = call(daemon.path(), &["receipt", "export"]);
    assert_eq!(called.code, 0, "{called:?}");
    called.stdout.lines().map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_that_end_at_once_are_one_chain_which_is_exported_and_verified_whole() {
    let daemon = Daemon::start_with(Settings {
        toml: "[app]\nmax_concurrent_runs = 4".to_owned(),
        ..Settings::default()
    })
    .await;
    // Four at a time, each until the same moment.
    let code = "import time; time.sleep(-time.time() % 1)";
    let runs = (0..8).map(|_| daemon.run(json!({ "code": code })));
    for run in join_all(runs).await {
        assert_eq!(run["status"], "SUCCESS", "{run:#}");
    }
    let whole = exported(&daemon);
    assert_eq!(whole.len(), 8);
    let key = public_key(&daemon);
    let auditor = Auditor::new();
    auditor.keep("chain", whole.join("\n") + "\n");
    auditor.keep("last.json", &whole[7]);
    let called = auditor.verify(&["chain", "--key", &key, "--kept", "last.json"]);
    assert_eq!(called.code, 0, "{called:?}");
    for words in [
        "Receipts 1 to 8",
        "each follows the one before",
        "kept is part of it",
    ] {
        assert!(called.stdout.contains(words), "{words}: {called:?}");
    }
    // What the interface serves is the same text.
    let last: Value = serde_json::from_str(&whole[7]).unwrap();
    let run = last["statement"]["execution"]["run_id"].as_str().unwrap();
    assert_eq!(receipt(&daemon, run).await, whole[7]);

    let refusal =
        |lines: Vec<&str>, arguments: &[&str]| auditor.refusal(lines.join("\n"), arguments);
    let lines = || whole.iter().map(String::as_str);
    let gap = refusal(lines().filter(|line| *line != whole[3]).collect(), &[]);
    assert!(
        gap.contains("line 4: chain: receipt 5 comes after receipt 4, not after receipt 3"),
        "{gap}"
    );
    let cut = refusal(lines().take(5).collect(), &["--kept", "last.json"]);
    assert!(
        cut.contains("chain: it ends with receipt 5, but receipt 8 was kept"),
        "{cut}"
    );
    let swapped = refusal(vec![&whole[0], &whole[2], &whole[1]], &[]);
    assert!(
        swapped.contains("line 2: chain: receipt 3 comes after"),
        "{swapped}"
    );
    let changed = whole[2].replace("SUCCESS", "FAILURE");
    let changed = refusal(vec![&whole[0], &whole[1], &changed, &whole[3]], &[]);
    assert!(
        changed.contains("line 3: signature: it does not fit"),
        "{changed}"
    );
    assert_eq!(changed.lines().count(), 1, "{changed}");
    let blank = refusal(vec![&whole[0], "", &whole[1]], &[]);
    assert!(blank.contains("line 2: form: it is no receipt"), "{blank}");
    let artifacts = auditor.verify(&["chain", "--artifacts", "."]);
    assert_eq!(artifacts.code, 2, "{artifacts:?}");
    // A piece says that it is one.
    auditor.keep("piece", whole[2..4].join("\n"));
    let piece = auditor.verify(&["piece"]);
    assert_eq!(piece.code, 0, "{piece:?}");
    for words in [
        "Receipts 3 to 4",
        "the receipt before was not given",
        "see --key",
    ] {
        assert!(piece.stdout.contains(words), "{words}: {piece:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_daemon_is_another_chain() {
    let (here, there) = (Daemon::start().await, Daemon::start().await);
    assert_ne!(public_key(&here), public_key(&there));
    let mut receipts = Vec::new();
    for daemon in [&here, &here, &there] {
        let run = daemon.run(json!({ "code": "print()" })).await;
        receipts.push(receipt(daemon, run["run_id"].as_str().unwrap()).await);
    }
    assert_eq!(number(&receipts[2]), 1);
    let auditor = Auditor::new();
    auditor.keep("before.json", &receipts[2]);
    let reasons = auditor.refusal(&receipts[1], &["--previous", "before.json"]);
    assert!(
        reasons.contains("chain: the receipt before is of the daemon "),
        "{reasons}"
    );
    assert!(reasons.contains("with another key"), "{reasons}");
}

/// Whatever the daemon was doing when it was killed: each execution has one receipt, and each receipt
/// one place.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_eight_moments_the_chain_has_neither_gap_nor_fork() {
    let mut daemon = Daemon::start_with(Settings {
        toml: "[app]\nmax_concurrent_runs = 2".to_owned(),
        ..Settings::default()
    })
    .await;
    let warm = daemon.run(json!({ "code": "print('warm')" })).await;
    let mut runs = vec![warm["run_id"].as_str().unwrap().to_owned()];
    for moment in 0..8 {
        let kill_at = std::time::Instant::now() + std::time::Duration::from_millis(60 * moment);
        for _ in 0..2 {
            let code = "open('out/predictions.csv', 'w').write('whole')";
            runs.push(daemon.submit(json!({ "code": code })).await);
        }
        until(
            PATIENCE,
            async || std::time::Instant::now(),
            |now| *now >= kill_at,
        )
        .await;
        daemon.kill();
        daemon.launch();
    }
    for run in &runs {
        daemon.ended(run).await;
    }
    let receipts = chain(&daemon, &runs).await;
    let statuses: Vec<Value> = receipts
        .iter()
        .map(|receipt| statement(receipt)["outcome"]["status"].take())
        .collect();
    assert!(statuses.contains(&json!("SUCCESS")), "{statuses:?}");
    let instance = daemon.instance();
    until(PATIENCE, || containers_of(&instance), Vec::is_empty).await;
}
