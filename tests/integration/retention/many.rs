//! Very many accepted runs that wait when the daemon is killed: all are there afterwards, each once.
//!
//! How many is `FUMEHOOD_TEST_QUEUED`; `tests/queued.sh` has 100,000 of them, in an optimised build.

use std::collections::HashSet;
use std::time::Instant;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::daemon;
use crate::support::Daemon;
use crate::support::watch::printed;

/// Enough for many transactions of the store, many pages of the list and several copies of its log.
const USUAL: usize = 2000;

/// Clients at the same time.
const WIDTH: usize = 64;

fn number() -> usize {
    let given = std::env::var("FUMEHOOD_TEST_QUEUED");
    given.map_or(USUAL, |text| text.parse().unwrap())
}

/// Every run, oldest first.
async fn all(daemon: &Daemon) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, page) = daemon.get(&format!("/runs?limit=100{cursor}")).await;
        assert_eq!(status, 200, "{page}");
        let runs = page["runs"].as_array().unwrap();
        let names = runs.iter().map(|run| run["run_id"].as_str().unwrap());
        ids.extend(names.map(str::to_owned));
        let Value::String(next) = &page["next_cursor"] else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    ids.reverse();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_were_accepted_wait_on_after_a_kill_each_once_and_in_order() {
    let number = number();
    let toml = format!(
        "[app]\nmax_concurrent_runs = 1\nmax_queued_runs = {}\n",
        number + 10
    );
    let mut daemon = daemon(&toml).await;
    // Keeps the only place, so that all others wait.
    let hold = json!({ "code": "import time; print('armed', flush=True); time.sleep(3600)",
                       "options": { "timeout_seconds": 590 } });
    let holding = daemon.submit(hold).await;
    printed(&daemon, &holding, "armed").await;

    let begun = Instant::now();
    let body = json!({ "code": "print()" });
    let submit = |_| daemon.submit(body.clone());
    let answers = stream::iter(0..number).map(submit).buffer_unordered(WIDTH);
    let mut acknowledged: HashSet<String> = answers.collect().await;
    assert_eq!(acknowledged.len(), number);
    eprintln!("{number} accepted in {:.1?}", begun.elapsed());

    // In the midst of more of them, of which some are acknowledged.
    let more = stream::iter(0..WIDTH)
        .map(|_| post(&daemon, &body))
        .buffer_unordered(WIDTH);
    let mut more = Box::pin(more);
    if let Some(Some(id)) = more.next().await {
        acknowledged.insert(id);
    }
    kill(daemon.pid());
    while let Some(answer) = more.next().await {
        acknowledged.extend(answer);
    }
    drop(more);
    daemon.kill();

    let begun = Instant::now();
    daemon.launch();
    eprintln!("started again in {:.1?}", begun.elapsed());
    let all = all(&daemon).await;
    let found: HashSet<&String> = all.iter().collect();
    assert_eq!(found.len(), all.len(), "one is there twice");
    let lost: Vec<&String> = acknowledged
        .iter()
        .filter(|id| !found.contains(id))
        .collect();
    assert_eq!(lost, Vec::<&String>::new());
    // What was not acknowledged may be there as well, but no more than was sent.
    assert!(all.len() <= 1 + number + WIDTH, "{} are there", all.len());
    // They are carried out in order, once the one that was going on, and goes on, gives its place up.
    assert_eq!(all[0], holding);
    let path = format!("/runs/{holding}/cancel");
    assert_eq!(daemon.post(&path, &json!({})).await.0, 200);
    assert_eq!(daemon.ended(&all[1]).await["status"], "SUCCESS");
    let last = daemon.get(&format!("/runs/{}", all[all.len() - 1])).await.1;
    assert_eq!(last["status"], "QUEUED");
}

/// The id, where there was an answer.
async fn post(daemon: &Daemon, body: &Value) -> Option<String> {
    let request = daemon.request(reqwest::Method::POST, "/runs").json(body);
    let answer = request.send().await.ok()?;
    if answer.status() != 200 {
        return None;
    }
    let answer: Value = answer.json().await.ok()?;
    Some(answer["run_id"].as_str()?.to_owned())
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
