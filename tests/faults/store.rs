//! The store is damaged, of another version, or taken (security.md 3.4, F15): the daemon refuses to start,
//! says why, and leaves the files as they are.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::Daemon;
use crate::support::watch::{Flight, limited};

/// What a damaged page, and every so manieth one of them, is tried with.
const FLIPS: usize = 24;

/// What became of a start.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// It takes runs; it was killed again.
    Serves,
    /// It said why not, and ended.
    Refused { code: Option<i32>, why: String },
}

/// Starts the daemon of a directory, as far as it comes.
fn start(directory: &Path) -> Start {
    let mut child = Command::new("timeout")
        .args(["--signal=KILL", "60", env!("CARGO_BIN_EXE_fumehood")])
        .args(["serve", "--log", "error"])
        .current_dir(directory)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(child.stderr.take().unwrap());
    let mut why = String::new();
    let serves = loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap() == 0 {
            break false;
        }
        if line.contains("fumehood listens on ") {
            break true;
        }
        why.push_str(&line);
    };
    if serves {
        // `timeout` passes the request on.
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    }
    let code = child.wait().unwrap().code();
    if serves {
        return Start::Serves;
    }
    Start::Refused { code, why }
}

/// A daemon that was killed with records in its store; gives the store's file.
async fn with_records() -> (Daemon, PathBuf) {
    let mut daemon = Daemon::start().await;
    for number in 0..6 {
        let code = format!("print({number})");
        daemon.execute(&code).await;
    }
    // Everything is in the file and nothing in its log.
    daemon.stop();
    let path = daemon.path().join("state/fumehood.db");
    assert!(!path.with_extension("db-wal").exists());
    (daemon, path)
}

/// Damages the store, expects a start that is as wanted, and restores it.
#[track_caller]
fn refused(daemon: &Daemon, path: &Path, damaged: &[u8]) -> (Option<i32>, String) {
    let whole = fs::read(path).unwrap();
    fs::write(path, damaged).unwrap();
    let start = start(daemon.path());
    let after = fs::read(path).unwrap();
    remove_logs(path);
    fs::write(path, whole).unwrap();
    match start {
        Start::Serves => panic!("it serves from a damaged store"),
        Start::Refused { code, why } => {
            assert_eq!(after, damaged, "the damaged file was touched: {why}");
            (code, why)
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f15_a_damaged_store_is_noticed_at_the_start_and_left_as_it_is() {
    let (mut daemon, path) = with_records().await;
    let whole = fs::read(&path).unwrap();
    let page = 4096;
    let middle = whole.len() / page / 2 * page;

    let mut zeroed = whole.clone();
    zeroed[middle..middle + page].fill(0);
    let cut = &whole[..whole.len() - page - 512];
    let nonsense = vec![0x5a; whole.len()];
    let mut headless = whole.clone();
    headless[..16].fill(0);
    for (what, damaged) in [
        ("a page of zeros", &zeroed[..]),
        ("cut off", cut),
        ("nonsense", &nonsense),
        ("no header", &headless),
    ] {
        let (code, why) = refused(&daemon, &path, damaged);
        assert!(
            code.is_some_and(|code| code != 0),
            "{what}: {code:?}: {why}"
        );
        assert!(why.contains("store"), "{what}: {why}");
        assert!(!why.contains("panicked"), "{what}: {why}");
    }

    // Any single byte: it is noticed, or it does no harm to the start.
    let step = (whole.len() / FLIPS / 512).max(1) * 512;
    for offset in (0..whole.len()).step_by(step) {
        let mut flipped = whole.clone();
        flipped[offset + 256 % step.min(512)] ^= 0xff;
        fs::write(&path, &flipped).unwrap();
        if let Start::Refused { code, why } = start(daemon.path()) {
            assert!(code.is_some_and(|code| code != 0), "{offset}: {why}");
            assert!(!why.contains("panicked"), "{offset}: {why}");
            assert_eq!(fs::read(&path).unwrap(), flipped, "{offset}: touched");
        }
        remove_logs(&path);
        fs::write(&path, &whole).unwrap();
    }
    daemon.launch();
    assert_eq!(daemon.execute("print('works')").await["stdout"], "works\n");
}

fn remove_logs(path: &Path) {
    for ending in ["-wal", "-shm"] {
        let mut log = path.as_os_str().to_owned();
        log.push(ending);
        let _ = fs::remove_file(log);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f15_a_torn_end_of_the_log_costs_what_was_not_acknowledged_and_nothing_else() {
    let mut daemon = Daemon::start().await;
    let mut ids = Vec::new();
    for number in 0..4 {
        let code = format!("print({number})");
        let run = daemon.run(json!({ "code": code })).await;
        ids.push(run["run_id"].as_str().unwrap().to_owned());
    }
    daemon.kill();
    let log = daemon.path().join("state/fumehood.db-wal");
    let whole = fs::read(&log).unwrap();
    assert!(!whole.is_empty(), "nothing is in the log");
    // As a commit that the kill caught half-way: bytes after the last whole one.
    let torn = [&whole[..], &vec![0x5a; 3000]].concat();
    fs::write(&log, torn).unwrap();
    daemon.launch();
    for id in &ids {
        assert_eq!(daemon.ended(id).await["status"], "SUCCESS");
    }
    assert_eq!(daemon.execute("print('works')").await["stdout"], "works\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn f15_a_store_of_a_newer_version_is_refused_and_left_as_it_is() {
    let (mut daemon, path) = with_records().await;
    let store = rusqlite::Connection::open(&path).unwrap();
    let known: i64 = store
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    store
        .pragma_update(None, "user_version", known + 1)
        .unwrap();
    drop(store);
    let newer = fs::read(&path).unwrap();
    let Start::Refused { code, why } = start(daemon.path()) else {
        panic!("it serves from a newer store");
    };
    assert!(code.is_some_and(|code| code != 0), "{why}");
    assert!(why.contains("upgrade fumehood"), "{why}");
    assert_eq!(fs::read(&path).unwrap(), newer);
    let store = rusqlite::Connection::open(&path).unwrap();
    store.pragma_update(None, "user_version", known).unwrap();
    drop(store);
    daemon.launch();
}

#[tokio::test(flavor = "multi_thread")]
async fn f15_a_second_daemon_on_the_same_directory_is_refused_and_the_first_notices_nothing() {
    let daemon = Daemon::start().await;
    let code = "import time\nprint('armed', flush=True)\ntime.sleep(3)\nprint('over')\n";
    let flight = Flight::start_until(&daemon, limited(code, 30.0), "armed").await;
    let Start::Refused { code, why } = start(daemon.path()) else {
        panic!("two daemons on one directory");
    };
    assert!(code.is_some_and(|code| code != 0), "{why}");
    assert!(why.contains("in use by another fumehood"), "{why}");
    let run = flight.end(&daemon).await;
    assert_eq!(run["result"]["stdout"], "armed\nover\n", "{run:#}");
}

/// A store with a page of zeros in its middle.
fn zeroed(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 8192 * 4096;
    bytes[middle..middle + 4096].fill(0);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn f15_damage_in_the_middle_is_told_as_such_with_the_remedy() {
    let (mut daemon, path) = with_records().await;
    let (_, why) = refused(&daemon, &path, &zeroed(&path));
    for word in ["damaged", "nothing was changed", "restore it from a backup"] {
        assert!(why.contains(word), "{word}: {why}");
    }
    daemon.launch();
}

/// The code after which no supervisor starts the daemon again.
#[tokio::test(flavor = "multi_thread")]
async fn f15_damage_in_the_middle_ends_with_a_code_of_its_own() {
    let (mut daemon, path) = with_records().await;
    let (code, why) = refused(&daemon, &path, &zeroed(&path));
    assert_eq!(code, Some(78), "{why}");
    daemon.launch();
}
