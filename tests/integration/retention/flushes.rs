//! What the daemon asks the kernel for, in which order (security.md 3.2, 1 to 3): flushed before it is
//! acknowledged or done, and artifacts before the row that names them.

use serde_json::json;

use super::daemon;
use super::trace::Trace;

const CALLS: &str = "trace=fsync,fdatasync,syncfs,renameat2,writev,sendto,write";

/// Where the first such call after `from` is over.
fn next(calls: &[String], from: usize, is: impl Fn(&str) -> bool, what: &str) -> usize {
    let found = calls[from..].iter().position(|call| is(call));
    let found = found.unwrap_or_else(|| panic!("no {what} after {from}:\n{}", calls.join("\n")));
    from + found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_acknowledged_and_what_is_intended_was_flushed_and_artifacts_before_their_row() {
    let daemon = daemon("").await;
    // The engine's first answers are asked for and the volume is made.
    daemon.execute("print()").await;
    let Some(trace) = Trace::of(&daemon, &["-e", CALLS]) else {
        return;
    };
    let code = "open('out/kept.txt', 'w').write('kept')";
    let id = daemon.submit(json!({ "code": code })).await;
    daemon.ended(&id).await;
    let calls = trace.end();

    let is_flush = |call: &str| call.starts_with("fdatasync(") || call.starts_with("fsync(");
    let log = |call: &str| is_flush(call) && call.contains("fumehood.db-wal>");
    let answer = |call: &str| call.contains("\"HTTP/1.1 200 OK");
    let accepted = next(&calls, 0, log, "flush of the log");
    let told = next(&calls, 0, answer, "answer");
    assert!(
        accepted < told,
        "acknowledged before it was flushed:\n{}",
        calls.join("\n")
    );

    // The intent, after the acknowledgement and before the engine is asked for anything: its name is
    // on disk by then.
    let planned = next(&calls, told, log, "flush of the intent");
    let create = |call: &str| call.contains("\"POST /") && call.contains("/containers/");
    let created = next(&calls, told, create, "creation");
    assert!(
        planned < created,
        "created before it was planned:\n{}",
        calls.join("\n")
    );

    let flushed = next(
        &calls,
        created,
        |call| call.starts_with("syncfs(") && call.contains("/models/.partial-exec_"),
        "flush of the artifacts",
    );
    let renamed = next(
        &calls,
        flushed,
        |call| call.starts_with("renameat2(") && call.contains("RENAME_NOREPLACE"),
        "publication",
    );
    let in_place = next(
        &calls,
        renamed,
        |call| call.starts_with("fsync(") && call.contains("/outputs/models>"),
        "flush of the directory",
    );
    // The row: nothing else is written between the publication and the end of the run.
    let recorded = next(&calls, in_place, log, "flush of the row");
    let early = calls[flushed..in_place].iter().filter(|call| log(call));
    assert_eq!(early.count(), 0, "{}", calls[flushed..=recorded].join("\n"));
}
