//! Writes and flushes of the store that fail (security.md 3.2, 2, and F13): made to, by strace.

use serde_json::{Value, json};

use super::daemon;
use super::trace::Trace;
use crate::support::Daemon;
use crate::support::daemon::PATIENCE;
use crate::support::wait::until;

/// Status of an answer, if there is one: a daemon that ends may not come to it.
async fn post(daemon: &Daemon, body: &Value) -> Option<u16> {
    let request = daemon.request(reqwest::Method::POST, "/runs");
    let answer = request.json(body).send().await.ok()?;
    Some(answer.status().as_u16())
}

async fn listed(daemon: &Daemon) -> usize {
    let (status, list) = daemon.get("/runs?limit=100").await;
    assert_eq!(status, 200, "{list}");
    list["runs"].as_array().unwrap().len()
}

/// Has calls on a file of the store fail: `what` as strace has it after `inject=`.
fn inject(daemon: &Daemon, file: &str, what: &str) -> Option<Trace> {
    let path = daemon.path().join("state").join(file);
    let path = path.canonicalize().unwrap();
    let inject = format!("inject={what}");
    Trace::of(daemon, &["-P", path.to_str().unwrap(), "-e", &inject])
}

/// It was not tried again, not in the end either.
fn assert_one_flush(calls: &[String]) {
    let flushes = calls.iter().filter(|call| call.contains("sync("));
    assert_eq!(flushes.count(), 1, "{}", calls.join("\n"));
    assert!(calls.iter().any(|call| call.contains("(INJECTED)")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_written_is_refused_whole_and_later_it_can() {
    let daemon = daemon("").await;
    daemon.execute("print()").await;
    let body = json!({ "code": "print()" });
    let mut accepted = 1;
    // A full disk, one that fails, one that was made read-only: from one write on, all of them.
    for (errno, expected) in [("ENOSPC", 503), ("EIO", 503), ("EROFS", 503)] {
        for first in 1..=4 {
            let what = format!("pwrite64:error={errno}:when={first}+");
            let Some(trace) = inject(&daemon, "fumehood.db-wal", &what) else {
                return;
            };
            assert_eq!(post(&daemon, &body).await, Some(expected), "{what}");
            let calls = trace.end();
            let failed = calls.iter().filter(|call| call.contains("(INJECTED)"));
            assert!(failed.count() > 0, "{what}: {}", calls.join("\n"));
            assert_eq!(listed(&daemon).await, accepted, "{what}");
            // Without a restart.
            daemon.execute("print()").await;
            accepted += 1;
            assert_eq!(listed(&daemon).await, accepted, "{what}");
        }
    }
}

/// Nobody knows what is on disk after that: it is not tried again, the daemon ends, and the next one
/// reads what is there.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_flush_that_failed_nothing_is_acknowledged_and_the_daemon_ends() {
    let mut daemon = daemon("").await;
    daemon.execute("print()").await;
    let body = json!({ "code": "print()" });
    // Only the first: a second try would seem to succeed.
    let Some(trace) = inject(
        &daemon,
        "fumehood.db-wal",
        "fdatasync,fsync:error=EIO:when=1",
    ) else {
        return;
    };
    let answer = post(&daemon, &body).await;
    assert_ne!(answer, Some(200));
    assert_eq!(daemon.ended_by_itself(), Some(69), "{}", daemon.log());
    assert!(
        daemon.log().contains("could not be flushed to disk"),
        "{}",
        daemon.log()
    );
    assert_one_flush(&trace.end());

    daemon.launch();
    daemon.execute("print('again')").await;
    // What was not acknowledged may be there or not; what was is.
    assert!((2..=3).contains(&listed(&daemon).await));
}

/// The flush of the database itself, when the log is copied into it: nothing that was acknowledged is
/// lost, because the log still has it.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_flush_of_the_database_that_failed_the_log_still_has_everything() {
    let mut daemon = daemon("[app]\nmax_concurrent_runs = 1\n").await;
    let waits = json!({ "code": "import time; time.sleep(600)" });
    let waits = daemon.submit(waits).await;
    let Some(trace) = inject(&daemon, "fumehood.db", "fdatasync,fsync:error=EIO:when=1") else {
        return;
    };
    // The log is copied after 16 MiB.
    let large = json!({ "code": format!("#{}\nprint('large')", "x".repeat(9 << 20)) });
    let mut accepted = Vec::new();
    for _ in 0..2 {
        accepted.push(daemon.submit(large.clone()).await);
    }
    assert_eq!(daemon.ended_by_itself(), Some(69), "{}", daemon.log());
    assert_one_flush(&trace.end());

    daemon.launch();
    // It was going on, and goes on: it has the only place.
    let (_, run) = daemon.get(&format!("/runs/{waits}")).await;
    assert_eq!(run["status"], "RUNNING", "{run}");
    let path = format!("/runs/{waits}/cancel");
    assert_eq!(daemon.post(&path, &json!({})).await.0, 200);
    for id in &accepted {
        let run = until(
            PATIENCE,
            async || daemon.get(&format!("/runs/{id}")).await,
            |(status, run)| *status == 200 && run["status"] == "SUCCESS",
        );
        run.await;
    }
}
