//! A store on a small disk that others fill: a file system in memory, mounted where that is allowed.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::daemon;
use crate::support::Daemon;
use crate::support::daemon::PATIENCE;
use crate::support::wait::until;
use crate::support::watch::printed;

const WAITS: &str = "import os, time\nprint('armed', flush=True)\n\
    while not os.path.exists('/data/go'): time.sleep(0.05)\n";

/// A disk of 96 MiB at a path of its own; dropping it unmounts it.
struct Disk {
    directory: tempfile::TempDir,
}

impl Disk {
    /// Nothing where mounting is not allowed: then there is nothing to be tested either.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: a small disk needs root to be mounted");
            return None;
        }
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=96m", "tmpfs"])
            .arg(directory.path())
            .output()
            .unwrap();
        if !mounted.status.success() {
            eprintln!("SKIPPED: a small disk cannot be mounted here: {mounted:?}");
            return None;
        }
        Some(Self { directory })
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn reserve(&self) -> PathBuf {
        self.path().join("fumehood.db.reserve")
    }

    fn filler(&self) -> PathBuf {
        self.path().join("others")
    }

    fn free(&self) -> u64 {
        let space = rustix::fs::statvfs(self.path()).unwrap();
        space.f_bavail * space.f_frsize
    }

    /// Has others write until so much is left; 0 is until there is no room.
    fn fill_to(&self, left: u64) {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.filler())
            .unwrap();
        let piece = vec![0xa5; 1 << 16];
        while self.free() > left {
            if file.write_all(&piece).is_err() {
                break;
            }
        }
    }

    fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    /// A floor of 48 MiB and a reserve of 24.
    async fn daemon(&self) -> Daemon {
        let path = self.path().join("fumehood.db");
        let toml = format!(
            "[store]\npath = '{}'\nmin_free_mb = 48\nreserve_mb = 24\n[app]\nmax_concurrent_runs = 1\n",
            path.display()
        );
        daemon(&toml).await
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let gone = Command::new("umount")
            .arg("--lazy")
            .arg(self.path())
            .status();
        assert!(gone.unwrap().success() || std::thread::panicking());
    }
}

/// One run going on and one waiting, both until they may end.
async fn accepted(daemon: &Daemon) -> [String; 2] {
    let set = daemon.data().join("set");
    std::fs::create_dir(&set).unwrap();
    let body = json!({ "dataset_path": "data/set", "code": WAITS });
    let running = daemon.submit(body.clone()).await;
    let waiting = daemon.submit(body).await;
    printed(daemon, &running, "armed").await;
    [running, waiting]
}

async fn post(daemon: &Daemon) -> reqwest::Response {
    let request = daemon.request(reqwest::Method::POST, "/runs");
    request
        .json(&json!({ "code": "print()" }))
        .send()
        .await
        .unwrap()
}

/// What the metrics say.
async fn accepting(daemon: &Daemon) -> String {
    let request = daemon.request(reqwest::Method::GET, "/metrics");
    let text = request.send().await.unwrap().text().await.unwrap();
    let name = "fumehood_accepting_runs ";
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name));
    value.unwrap_or("missing").to_owned()
}

async fn assert_refused(daemon: &Daemon) {
    let refused = post(daemon).await;
    assert_eq!(refused.status(), 507);
    assert!(refused.headers().contains_key("Retry-After"));
    let answer: serde_json::Value = refused.json().await.unwrap();
    let text = answer["detail"].as_str().unwrap();
    assert!(
        text.contains("disk is nearly full") && text.contains("free some space"),
        "{text}"
    );
    assert!(!text.contains('/'), "no path: {text}");
    // Whoever asks before hears the same.
    let (status, ready) = daemon.get("/ready").await;
    assert_eq!(status, 503, "{ready}");
    assert!(ready["reasons"].to_string().contains("disk"), "{ready}");
    assert_eq!(accepting(daemon).await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn below_the_floor_new_runs_are_refused_and_accepted_ones_finish() {
    let Some(disk) = Disk::new() else { return };
    let daemon = disk.daemon().await;
    let accepted = accepted(&daemon).await;
    disk.fill_to(40 << 20);
    assert_refused(&daemon).await;
    assert!(disk.reserve().exists(), "not needed yet");
    std::fs::write(daemon.data().join("set/go"), "").unwrap();
    for id in &accepted {
        assert_eq!(daemon.ended(id).await["status"], "SUCCESS");
    }
    disk.make_room();
    assert_eq!(daemon.get("/ready").await.0, 200);
    assert_eq!(accepting(&daemon).await, "1");
    assert_eq!(post(&daemon).await.status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_accepted_runs_are_recorded_in_the_reserve() {
    let Some(disk) = Disk::new() else { return };
    let daemon = disk.daemon().await;
    let accepted = accepted(&daemon).await;
    disk.fill_to(0);
    assert_refused(&daemon).await;
    std::fs::write(daemon.data().join("set/go"), "").unwrap();
    for id in &accepted {
        assert_eq!(daemon.ended(id).await["status"], "SUCCESS");
    }
    assert!(!disk.reserve().exists(), "the room was given to them");
    assert_refused(&daemon).await;
    disk.make_room();
    assert_eq!(post(&daemon).await.status(), 200);
    assert!(disk.reserve().exists(), "it is held again");
}

/// The daemon starts on such a disk, carries out what it had accepted, and accepts again later.
#[tokio::test(flavor = "multi_thread")]
async fn started_on_a_nearly_full_disk_it_goes_on_with_what_it_had_accepted() {
    let Some(disk) = Disk::new() else { return };
    let mut daemon = disk.daemon().await;
    let [_, waiting] = accepted(&daemon).await;
    daemon.kill();
    disk.fill_to(40 << 20);
    std::fs::write(daemon.data().join("set/go"), "").unwrap();
    daemon.launch();
    assert_eq!(daemon.ended(&waiting).await["status"], "SUCCESS");
    assert_refused(&daemon).await;
    disk.make_room();
    let answer = async || post(&daemon).await.status().as_u16();
    until(PATIENCE, answer, |status| *status == 200).await;
}
