//! What is true after any kill: of every run that was acknowledged, of the receipts, of the store,
//! of the disk and of the engine.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::stand::{SOON, Stand};
use crate::support::Daemon;

/// A run that was asked for, and what it has to come to.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) id: String,
    pub(crate) nonce: String,
    pub(crate) program: Program,
}

/// What a program does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// Prints and leaves a small file.
    Short,
    /// The same, and takes a while.
    Long,
    /// Leaves a large file, so that collecting takes a while.
    Large,
    /// Ends with an exit code of its own.
    Failing,
}

/// Bytes of the large file.
const LARGE: usize = 6 << 20;

impl Program {
    /// In this order, again and again.
    pub(crate) const ALL: [Self; 4] = [Self::Short, Self::Long, Self::Large, Self::Failing];

    /// Its text.
    pub(crate) fn text(self, nonce: &str) -> String {
        let middle = match self {
            Self::Short => "",
            Self::Long => "import time; time.sleep(1.5)\n",
            Self::Large => "open('out/large', 'wb').write(nonce.encode()[:32] * (6 << 15))\n",
            Self::Failing => "import sys\nprint('end', nonce)\nsys.exit(7)\n",
        };
        format!(
            "nonce = '{nonce}'\nprint('begin', nonce, flush=True)\n\
             open('out/predictions.csv', 'w').write(nonce)\n{middle}print('end', nonce)\n"
        )
    }

    fn status(self) -> &'static str {
        match self {
            Self::Short | Self::Long | Self::Large => "SUCCESS",
            Self::Failing => "FAIL",
        }
    }

    /// Names and sizes of its files.
    fn files(self) -> &'static [(&'static str, usize)] {
        match self {
            Self::Large => &[("large", LARGE), ("predictions.csv", 38)],
            Self::Short | Self::Long | Self::Failing => &[("predictions.csv", 38)],
        }
    }
}

/// How many runs had to be gone on with by another daemon than the one that started them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Their programs may have been running: they were attached to again.
    pub(crate) adopted: usize,
    /// Their programs had not been started: they were prepared afresh, and no more than that.
    pub(crate) afresh: usize,
    /// Their daemon died in the moment in which it told their program to start: that cannot be told from a
    /// start, so they were not started and ended as the infrastructure's fault. All others ended as
    /// their programs meant to, or the check would have failed.
    pub(crate) given_up: usize,
}

/// What such a run says.
const GIVEN_UP: &str = "The program is not at fault";

impl Tally {
    /// As the daemons of a directory logged it, and with so many that were given up.
    fn of(log: &str, given_up: usize) -> Self {
        let mut attached = BTreeSet::new();
        let mut afresh = BTreeSet::new();
        for line in log.lines().filter(|line| line.contains(TAKEN_OVER)) {
            let (_, rest) = line.split_once("execution.id=").unwrap();
            let id = rest.split(' ').next().unwrap();
            if line.contains("step=Attach") {
                attached.insert(id);
            } else if line.contains("step=Afresh") {
                afresh.insert(id);
            }
        }
        // One that is prepared afresh can be attached to later.
        Self {
            adopted: attached.len(),
            afresh: afresh.difference(&attached).count(),
            given_up,
        }
    }
}

/// What the daemon logs of each execution that it goes on with, with the step that it takes.
const TAKEN_OVER: &str = "an execution of an earlier daemon is taken over";

/// Everything that clients see of a run.
pub(crate) async fn seen(daemon: &Daemon, id: &str) -> Value {
    let mut all = Vec::new();
    for what in ["", "/episodes", "/artifacts"] {
        let (status, answer) = daemon.get(&format!("/runs/{id}{what}")).await;
        assert_eq!(status, 200, "an acknowledged run is lost: {id}: {answer}");
        all.push(answer);
    }
    Value::Array(all)
}

/// Whether what was seen is the end of a run.
pub(crate) fn is_over(seen: &Value) -> bool {
    !["QUEUED", "RUNNING"].contains(&seen[0]["status"].as_str().unwrap())
}

/// Checks everything once all runs are over; stops the daemon for it. Tells how they came there.
pub(crate) async fn check(stand: &mut Stand, asked: &[Asked]) -> Tally {
    let mut given_up = 0;
    for run in asked {
        let ended = stand.daemon.ended(&run.id).await;
        let seen = seen(&stand.daemon, &run.id).await;
        let started = stand.starts.of(&run.nonce);
        let why = ended["final_error"].as_str().unwrap_or_default();
        if started == 0 && ended["status"] == "FAIL" && why.contains(GIVEN_UP) {
            given_up += 1;
        } else {
            assert_eq!(started, 1, "started {started} times: {ended:#}");
            assert_whole(&stand.daemon, run, &seen);
        }
    }
    assert_no_run_but(stand, asked).await;
    stand.engine.is_empty(SOON).await;
    let volumes = stand.engine.volumes().await;
    let ours = |name: &&String| !name.starts_with("fumehood-supervisor-");
    assert_eq!(volumes.iter().filter(ours).count(), 0, "{volumes:?}");
    stand.daemon.stop();
    let executions = assert_one_chain(&stand.daemon, asked);
    assert_no_orphans(&stand.daemon.artifacts(""), &executions);
    assert_nothing_half_done(&stand.daemon.path().join("state"));
    assert_store_is_sound(&stand.daemon.path().join("state/fumehood.db"));
    let tally = Tally::of(&stand.daemon.log(), given_up);
    stand.daemon.launch();
    tally
}

/// What a program meant to leave is there, once and unchanged.
#[track_caller]
fn assert_whole(daemon: &Daemon, run: &Asked, seen: &Value) {
    let (ended, nonce) = (&seen[0], &run.nonce);
    assert_eq!(ended["status"], run.program.status(), "{seen:#}");
    let episodes = seen[1]["episodes"].as_array().unwrap();
    assert_eq!(episodes.len(), 1, "{seen:#}");
    let shown = &episodes[0]["execution_result_summary"]["stdout_excerpt"];
    assert_eq!(*shown, format!("begin {nonce}\nend {nonce}\n"), "{seen:#}");
    let reference = seen[2]["prediction_artifact_reference"].as_str().unwrap();
    let directory = daemon.artifacts(reference.split('/').next().unwrap());
    let listed = seen[2]["artifacts"].as_array().unwrap();
    let mut files: Vec<(&str, usize)> = Vec::new();
    for artifact in listed {
        let name = artifact["path"].as_str().unwrap();
        let bytes = fs::read(directory.join(name)).unwrap();
        let size = usize::try_from(artifact["size"].as_u64().unwrap()).unwrap();
        assert_eq!(bytes.len(), size, "{name}");
        assert_eq!(artifact["sha256"], hex::encode(Sha256::digest(&bytes)));
        files.push((name, size));
    }
    assert_eq!(files, run.program.files());
    let predictions = fs::read_to_string(directory.join("predictions.csv")).unwrap();
    assert_eq!(&predictions, nonce);
}

/// Nobody made a run that was not asked for, or one of them twice.
async fn assert_no_run_but(stand: &Stand, asked: &[Asked]) {
    let mut listed = Vec::new();
    let mut path = "/runs?limit=100".to_owned();
    loop {
        let (status, page) = stand.daemon.get(&path).await;
        assert_eq!(status, 200, "{page}");
        let ids = page["runs"].as_array().unwrap().iter();
        listed.extend(ids.map(|run| run["run_id"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/runs?limit=100&cursor={cursor}");
    }
    listed.sort();
    let mut expected: Vec<_> = asked.iter().map(|run| run.id.clone()).collect();
    expected.sort();
    assert_eq!(listed, expected);
}

/// One receipt for each run, in one chain by one key, as the program itself verifies it. Gives the
/// executions.
fn assert_one_chain(daemon: &Daemon, asked: &[Asked]) -> BTreeSet<String> {
    let exported = call(daemon.path(), &["receipt", "export"]);
    let key = call(daemon.path(), &["receipt", "key"]);
    fs::write(daemon.path().join("receipts.jsonl"), &exported).unwrap();
    call(
        daemon.path(),
        &["verify", "receipts.jsonl", "--key", key.trim_end()],
    );
    let mut runs = Vec::new();
    let mut executions = BTreeSet::new();
    for (line, number) in exported.lines().zip(1..) {
        let receipt: Value = serde_json::from_str(line).unwrap();
        let statement = &receipt["statement"];
        assert_eq!(statement["chain"]["number"], number, "a gap or a fork");
        let execution = &statement["execution"];
        runs.push(execution["run_id"].as_str().unwrap().to_owned());
        let id = execution["id"].as_str().unwrap().to_owned();
        assert_ne!(statement["outcome"]["status"], "LOST", "{receipt}");
        assert!(executions.insert(id), "two receipts of one");
    }
    runs.sort();
    let mut expected: Vec<_> = asked.iter().map(|run| run.id.clone()).collect();
    expected.sort();
    assert_eq!(runs, expected, "each run has one receipt");
    executions
}

/// Every published directory is of an execution that is on record; and nothing is half-done.
#[track_caller]
fn assert_no_orphans(models: &Path, executions: &BTreeSet<String>) {
    for name in names_in(models) {
        assert!(executions.contains(&name), "an orphan: {name}");
    }
}

/// The daemon leaves no temporary file among its own.
#[track_caller]
fn assert_nothing_half_done(state: &Path) {
    for name in names_in(state) {
        let is_odd = name.contains("tmp") || name.contains("partial");
        assert!(!is_odd, "half-done: {name}");
    }
}

fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

fn assert_store_is_sound(path: &Path) {
    let store = rusqlite::Connection::open(path).unwrap();
    let answer: String = store
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(answer, "ok");
}

/// Calls the program in a daemon's directory; gives what it prints.
fn call(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_fumehood"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_directory_of_an_execution_on_record_is_no_orphan() {
    let models = tempfile::tempdir().unwrap();
    fs::create_dir(models.path().join("exec_aaaaaaaa")).unwrap();
    let executions = BTreeSet::from(["exec_aaaaaaaa".to_owned()]);
    assert_no_orphans(models.path(), &executions);
}

#[test]
#[should_panic(expected = "an orphan: exec_bbbbbbbb")]
fn a_directory_without_an_execution_on_record_is_noticed() {
    let models = tempfile::tempdir().unwrap();
    fs::create_dir(models.path().join("exec_bbbbbbbb")).unwrap();
    assert_no_orphans(models.path(), &BTreeSet::new());
}

#[test]
#[should_panic(expected = "an orphan: .partial-exec_cccccccc")]
fn a_half_done_directory_is_noticed() {
    let models = tempfile::tempdir().unwrap();
    fs::create_dir(models.path().join(".partial-exec_cccccccc")).unwrap();
    assert_no_orphans(models.path(), &BTreeSet::new());
}

#[test]
fn what_was_gone_on_with_is_told_by_the_log_of_all_daemons() {
    let log = format!(
        "INFO {TAKEN_OVER} execution.id=exec_a step=Afresh\n\
         INFO {TAKEN_OVER} execution.id=exec_b step=Afresh\n\
         INFO A run has ended run.id=b\n\
         INFO {TAKEN_OVER} execution.id=exec_b step=Attach\n\
         INFO {TAKEN_OVER} execution.id=exec_b step=Attach\n\
         INFO {TAKEN_OVER} execution.id=exec_c step=Attach\n"
    );
    let tally = Tally {
        adopted: 2,
        afresh: 1,
        given_up: 3,
    };
    assert_eq!(Tally::of(&log, 3), tally);
}
