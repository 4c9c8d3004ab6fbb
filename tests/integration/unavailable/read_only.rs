//! An output root on a file system that is read-only for everybody, the superuser included: from
//! the start, from some run on, and in the middle of a run.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::is_infrastructure;
use crate::command_line::{Bench, Called, command_in};
use crate::support::daemon::PATIENCE;
use crate::support::watch::{Flight, nothing_left};
use crate::support::{Daemon, Settings};

const OURS: [&str; 2] = ["output directory", "app.output_root"];

/// Writes a file, says so, and ends when it is told to.
const WRITES_AND_WAITS: &str = "import os, time\n\
    open('out/mine.txt', 'w').write('kept')\n\
    print('armed', flush=True)\n\
    while not os.path.exists('/data/go'): time.sleep(0.05)\n";

/// A file system of its own at a path of its own; dropping it unmounts it.
pub(super) struct Mounted {
    directory: tempfile::TempDir,
}

impl Mounted {
    /// Nothing where mounting is not allowed: then there is nothing to be tested either.
    pub(super) fn new() -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: a read-only file system needs root to be mounted");
            return None;
        }
        mount(&["-t", "tmpfs", "-o", "size=8m", "tmpfs"], directory.path());
        Some(Self { directory })
    }

    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn read_only(&self, read_only: bool) {
        let option = if read_only {
            "remount,ro"
        } else {
            "remount,rw"
        };
        mount(&["-o", option], self.path());
    }

    /// No further file or directory can be made.
    pub(super) fn use_up(&self) {
        mount(&["-o", "remount,nr_inodes=20"], self.path());
        let filler = self.path().join("others");
        std::fs::create_dir(&filler).ok();
        let made = (0..).map(|number| std::fs::write(filler.join(number.to_string()), ""));
        assert!(made.take(100).any(|made| made.is_err()));
    }

    pub(super) fn make_room(&self) {
        mount(&["-o", "remount,nr_inodes=10000"], self.path());
    }

    pub(super) fn root(&self) -> PathBuf {
        self.path().join("outputs")
    }

    /// Names in the place of artifacts, half-done ones included.
    pub(super) fn models(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.root().join("models"));
        let entries = entries.into_iter().flatten().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    }

    pub(super) async fn daemon(&self) -> Daemon {
        Daemon::start_with(Settings {
            toml: format!("[app]\noutput_root = '{}'", self.root().display()),
            ..Settings::default()
        })
        .await
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let gone = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
        assert!(gone.unwrap().success() || std::thread::panicking());
    }
}

fn mount(arguments: &[&str], at: &Path) {
    let done = Command::new("mount")
        .args(arguments)
        .arg(at)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_read_only_output_root_keeps_the_daemon_and_the_command_line_from_starting() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    mounted.read_only(true);
    let bench = Bench::new();
    bench.write("script.py", "print()");
    let root = mounted.root();
    for arguments in [
        &["serve", "--listen", "127.0.0.1:0"][..],
        &["run", "script.py"],
    ] {
        let mut command = bench.command(arguments);
        command.env("FUMEHOOD_APP__OUTPUT_ROOT", &root);
        let called = Called::from(command.output().unwrap());
        assert_eq!(called.code, 69, "{called:?}");
        for word in OURS {
            assert!(called.stderr.contains(word), "{word}: {called:?}");
        }
        assert!(!called.stderr.contains("listens on"), "{called:?}");
        assert_eq!(called.stdout, "");
    }
}

/// The store, too: nothing of it is changed, and it goes on when it may be written to again.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_store_keeps_the_daemon_from_starting_and_stays_as_it_is() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let file = mounted.path().join("fumehood.db");
    let mut daemon = Daemon::start_with(Settings {
        toml: format!(
            "[store]\npath = '{}'\nmin_free_mb = 1\nreserve_mb = 0",
            file.display()
        ),
        ..Settings::default()
    })
    .await;
    let id = daemon.submit(json!({ "code": "print()" })).await;
    daemon.ended(&id).await;
    daemon.stop();
    let before = std::fs::read(&file).unwrap();
    mounted.read_only(true);
    let output = command_in(daemon.path(), &["serve", "--listen", "127.0.0.1:0"]).output();
    let called = Called::from(output.unwrap());
    assert_eq!(called.code, 69, "{called:?}");
    for word in ["store", "writable"] {
        assert!(called.stderr.contains(word), "{word}: {called:?}");
    }
    assert!(!called.stderr.contains("listens on"), "{called:?}");
    mounted.read_only(false);
    assert_eq!(std::fs::read(&file).unwrap(), before);
    daemon.launch();
    assert_eq!(daemon.ended(&id).await["status"], "SUCCESS");
    daemon.execute("print()").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_for_which_the_output_root_is_read_only_is_kept_and_says_so_and_starts_nothing() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let daemon = mounted.daemon().await;
    mounted.read_only(true);
    let writes = json!({ "code": "open('out/a', 'w').write('1')" });
    let run = daemon.run(writes.clone()).await;
    is_infrastructure(&run, &OURS);
    assert_eq!(run["result"]["started_at"], json!(null), "{run:#}");
    let host = mounted.path().to_str().unwrap();
    assert!(!run.to_string().contains(host), "{run:#}");
    nothing_left(&daemon, PATIENCE).await;
    assert_eq!(mounted.models(), Vec::<String>::new());

    mounted.read_only(false);
    let result = daemon.result(writes).await;
    assert_eq!(result["output_files"], json!(["a"]), "{result:#}");
    let id = result["execution_id"].as_str().unwrap();
    assert_eq!(mounted.models(), [id]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_whose_output_root_becomes_read_only_keeps_its_result_and_is_not_to_blame() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let mut daemon = mounted.daemon().await;
    for expected in [json!([]), json!(["mine.txt"])] {
        let set = daemon.data().join("set");
        std::fs::create_dir(&set).unwrap();
        let body = json!({
            "dataset_path": "data/set", "code": WRITES_AND_WAITS, "expected_output_files": expected,
        });
        let flight = Flight::start_until(&daemon, body, "armed").await;
        mounted.read_only(true);
        std::fs::write(set.join("go"), "").unwrap();
        let run = flight.end(&daemon).await;
        let result = &run["result"];
        if expected == json!([]) {
            assert_eq!(result["status"], "SUCCESS", "{run:#}");
        } else {
            assert_eq!(result["cause"]["kind"], "infrastructure", "{run:#}");
            assert_eq!(run["status"], "FAIL", "{run:#}");
        }
        assert_eq!(result["stdout"], "armed\n", "{run:#}");
        assert_eq!(result["output_files"], json!([]), "{run:#}");
        assert_eq!(result["artifacts"], json!([]), "{run:#}");
        let warnings = result["warnings"].to_string();
        for word in OURS {
            assert!(warnings.contains(word), "{word}: {run:#}");
        }
        let host = mounted.path().to_str().unwrap();
        assert!(!run.to_string().contains(host), "{run:#}");
        let (status, artifacts) = daemon.get(&format!("/runs/{}/artifacts", flight.id)).await;
        assert_eq!((status, &artifacts["artifacts"]), (200, &json!([])));
        mounted.read_only(false);
        std::fs::remove_dir_all(&set).unwrap();
    }
    // What could not be removed while nothing could be is removed by the next start.
    daemon.stop();
    daemon.launch();
    assert_eq!(mounted.models(), Vec::<String>::new());
}
