//! Output without an end: flat memory here, nothing on the engine's disk (bug case BR-10).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bollard::query_parameters::InspectContainerOptions;
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::engine::docker;
use crate::support::watch::{Flight, only_container};
use crate::support::{Daemon, Settings};

const CAP: usize = 102_400;
const MARKER: &str = "\n...[TRUNCATED]";
const TAIL: usize = 8 << 10;
const MIB: u64 = 1 << 20;

/// Writes `count` MiB to each stream without a line end, then an end that can be told apart.
fn flood(streams: &str, count: u64) -> Value {
    let code = format!(
        "import sys\nprint('started', end='', flush=True)\nline = 'z' * (1 << 20)\n\
         for _ in range({count}):\n    for stream in ({streams},):\n        stream.write(line)\n\
         for stream in ({streams},):\n    stream.write('the end')\n"
    );
    json!({ "code": code, "options": { "timeout_seconds": 100 } })
}

fn assert_cut(result: &Value, stream: &str, begin: &str, count: u64) {
    let zs = |count: usize| "z".repeat(count);
    let text = result[stream].as_str().unwrap();
    let head = format!("{begin}{}{MARKER}", zs(CAP - begin.len()));
    assert!(text == head, "the head of {stream} is not as written");
    let written = begin.len() as u64 + count * MIB + "the end".len() as u64;
    assert_eq!(result[format!("{stream}_bytes")], written);
    let tail = result[format!("{stream}_tail")].as_str().unwrap();
    assert!(
        tail == format!("{}the end", zs(TAIL - "the end".len())),
        "the tail of {stream} is not as written"
    );
}

/// The most memory that a daemon had resident while something was done.
async fn peak_during<T>(daemon: &Daemon, work: impl Future<Output = T>) -> (T, u64) {
    let (peak, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let sampling = async {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        while !done.load(Ordering::Relaxed) {
            peak.fetch_max(daemon.resident_bytes(), Ordering::Relaxed);
            tick.tick().await;
        }
    };
    let working = async {
        let result = work.await;
        done.store(true, Ordering::Relaxed);
        result
    };
    let (result, ()) = tokio::join!(working, sampling);
    (result, peak.load(Ordering::Relaxed))
}

/// Where the engine would keep the output, and how much disk the container has.
async fn disk_of(name: &str) -> (String, i64) {
    let options = InspectContainerOptions { size: true };
    let inspected = docker()
        .await
        .inspect_container(name, Some(options))
        .await
        .unwrap();
    (
        inspected.log_path.unwrap_or_default(),
        inspected.size_rw.unwrap_or_default(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn three_gigabytes_without_a_line_end_cost_neither_memory_nor_disk() {
    let daemon = Daemon::start().await;
    daemon.execute("print('warm')").await;
    let before = daemon.resident_bytes();
    let work = async {
        let flight = Flight::start_until(&daemon, flood("sys.stdout", 3000), "zzzz").await;
        let (log, size) = disk_of(&only_container(&daemon).await).await;
        assert_eq!(log, "", "the engine keeps a log");
        assert!(size < 1 << 20, "the container has {size} bytes on disk");
        flight.end(&daemon).await["result"].take()
    };
    let (result, peak) = peak_during(&daemon, work).await;
    assert_eq!(result["status"], "SUCCESS", "{}", result["cause"]);
    assert_eq!(result["return_code"], 0);
    assert_eq!(result["stderr"], "");
    assert_cut(&result, "stdout", "started", 3000);
    let grown = peak.saturating_sub(before);
    assert!(grown < 16 << 20, "resident memory grew by {grown} bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_streams_at_once_are_cut_each_at_its_own_cap() {
    let daemon = Daemon::start().await;
    let result = daemon.result(flood("sys.stdout, sys.stderr", 200)).await;
    assert_eq!(result["status"], "SUCCESS", "{}", result["cause"]);
    assert_cut(&result, "stdout", "started", 200);
    assert_cut(&result, "stderr", "", 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn four_floods_at_once_cost_a_few_caps() {
    let daemon = Daemon::start_with(Settings {
        toml: "[app]\nmax_concurrent_runs = 4".to_owned(),
        ..Settings::default()
    })
    .await;
    daemon.execute("print('warm')").await;
    let before = daemon.resident_bytes();
    let floods = join_all((0..4).map(|_| daemon.result(flood("sys.stdout, sys.stderr", 150))));
    let (results, peak) = peak_during(&daemon, floods).await;
    for result in results {
        assert_eq!(result["status"], "SUCCESS", "{}", result["cause"]);
        assert_cut(&result, "stdout", "started", 150);
        assert_cut(&result, "stderr", "", 150);
    }
    let grown = peak.saturating_sub(before);
    assert!(grown < 16 << 20, "resident memory grew by {grown} bytes");
}
