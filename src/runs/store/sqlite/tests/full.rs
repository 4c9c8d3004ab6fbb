//! A disk that is full at any moment (security.md F13): a file system in memory that has room for so many
//! pages and not for one more, for every number that makes a difference. Mounted where that is allowed.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use rustix::fs::FallocateFlags;

use super::migrations::of_version;
use super::*;
use crate::runs::store::retained::Retained as _;

const PAGE: u64 = 4096;

/// A small disk; dropping it unmounts it.
struct Disk {
    directory: tempfile::TempDir,
}

impl Disk {
    /// Nothing where mounting is not allowed: then there is nothing to be tested either.
    fn new(size: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: a small disk needs root to be mounted");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(directory.path())
            .output()
            .unwrap();
        if !mounted.status.success() {
            eprintln!("SKIPPED: a small disk cannot be mounted here: {mounted:?}");
            return None;
        }
        Some(Self { directory })
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("fumehood.db")
    }

    async fn open(&self) -> Result<SqliteStore, StoreError> {
        let settings = StoreSettings {
            space: SpaceSettings {
                floor: 0,
                reserve: 0,
            },
            ..StoreSettings::default()
        };
        SqliteStore::open_with(&self.database(), notary(), settings).await
    }

    fn free(&self) -> u64 {
        let space = rustix::fs::statvfs(self.directory.path()).unwrap();
        space.f_bavail * space.f_frsize
    }

    /// Has others leave room for so many pages. A child of another test that is just being started has
    /// this one's files open until it executes its program, and with them the room of removed ones.
    fn leave(&self, pages: u64) {
        let asked = std::time::Instant::now();
        while asked.elapsed() < Duration::from_secs(10) {
            let file = File::create(self.others()).unwrap();
            let excess = self.free() - pages * PAGE;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, excess).unwrap();
            if self.free() == pages * PAGE {
                return;
            }
            self.make_room();
            std::thread::yield_now();
        }
        panic!("the room on the disk does not come to rest");
    }

    fn make_room(&self) {
        std::fs::remove_file(self.others()).unwrap();
    }

    fn others(&self) -> PathBuf {
        self.directory.path().join("others")
    }

    fn empty(&self) {
        for entry in std::fs::read_dir(self.directory.path()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let gone = Command::new("umount")
            .arg("--lazy")
            .arg(self.directory.path())
            .status();
        assert!(gone.unwrap().success() || std::thread::panicking());
    }
}

/// How often something failed and how often it did not.
#[derive(Debug, Default)]
struct Seen {
    failed: u32,
    done: u32,
}

impl Seen {
    fn note<T>(&mut self, answer: &Result<T, StoreError>, pages: u64) -> bool {
        match answer {
            Ok(_) => self.done += 1,
            Err(error) => {
                assert!(
                    matches!(error, StoreError::Failed { .. } | StoreError::Open { .. }),
                    "{pages} pages: {error:?}"
                );
                self.failed += 1;
            }
        }
        answer.is_ok()
    }

    /// Without both, the disk was never full, or always.
    fn assert_both(&self) {
        assert!(self.failed > 3 && self.done > 3, "{self:?}");
    }
}

#[tokio::test]
async fn a_start_that_the_disk_has_no_room_for_can_be_made_again() {
    let Some(disk) = Disk::new("8m") else { return };
    let mut seen = Seen::default();
    for pages in 0..90 {
        disk.leave(pages);
        let opened = disk.open().await;
        if seen.note(&opened, pages) {
            opened.unwrap().close().await;
        }
        disk.make_room();
        let store = disk.open().await.unwrap();
        store.insert(&new_run("a"), 9).await.unwrap();
        assert_eq!(store.queued().await.unwrap().len(), 1, "{pages} pages");
        store.close().await;
        disk.empty();
    }
    seen.assert_both();
}

/// A file of an earlier version is brought up to date whole or not at all.
#[tokio::test]
async fn an_upgrade_that_the_disk_has_no_room_for_can_be_made_again() {
    let Some(disk) = Disk::new("8m") else { return };
    let present = Place::new();
    let store = present.open().await;
    let id = present.insert(&store, "a").await;
    store.close().await;
    let earlier = of_version(3, &present);
    let mut seen = Seen::default();
    for pages in (0..80).step_by(2) {
        std::fs::copy(earlier.file(), disk.database()).unwrap();
        disk.leave(pages);
        let opened = disk.open().await;
        if seen.note(&opened, pages) {
            opened.unwrap().close().await;
        } else {
            disk.make_room();
            let version = Connection::open(disk.database()).unwrap();
            let version: i64 = version
                .query_row("PRAGMA user_version", [], |row| row.get(0))
                .unwrap();
            assert_eq!(version, 3, "{pages} pages");
            disk.leave(pages);
        }
        disk.make_room();
        let store = disk.open().await.unwrap();
        assert_eq!(store.queued().await.unwrap()[0].id, id, "{pages} pages");
        store.close().await;
        disk.empty();
    }
    seen.assert_both();
}

/// The run is accepted or it is not; afterwards it can be.
#[tokio::test]
async fn a_run_is_accepted_whole_or_not_at_all() {
    let Some(disk) = Disk::new("8m") else { return };
    let mut seen = Seen::default();
    for pages in 0..40 {
        let store = disk.open().await.unwrap();
        let mut run = new_run("a");
        run.request.code = Some("x".repeat(1 << 16));
        run.idempotency = key("k", "1");
        disk.leave(pages);
        let inserted = store.insert(&run, 9).await;
        let accepted = seen.note(&inserted, pages);
        disk.make_room();
        store.close().await;
        let store = disk.open().await.unwrap();
        let found = store.get_complete(run.id).await.unwrap();
        assert_eq!(found.is_some(), accepted, "{pages} pages");
        let again = store.insert(&run, 9).await.unwrap();
        if accepted {
            assert_eq!(found.unwrap().request, run.request);
            assert_eq!(again, Inserted::Repeated(run.id));
        } else {
            assert!(is_new(&again), "{again:?}");
        }
        store.close().await;
        disk.empty();
    }
    seen.assert_both();
}

/// The end of a run with its episode, receipt and account: all of it or nothing, and once.
#[tokio::test]
async fn an_end_is_recorded_whole_or_not_at_all() {
    let Some(disk) = Disk::new("8m") else { return };
    let mut seen = Seen::default();
    for pages in 0..40 {
        let store = disk.open().await.unwrap();
        let run = new_run("a");
        store.insert(&run, 9).await.unwrap();
        start(&store, run.id).await;
        let planned = OpenExecution::first(ExecutionId::random(), run.id);
        store.plan_execution(&planned).await.unwrap();
        let mut last = recorded(&episode(run.id, 1, &planned.id), "");
        last.code = "x".repeat(1 << 16);
        let last = Alongside::Episode(Box::new(last));
        disk.leave(pages);
        let ended = store.apply(run.id, finish(Ending::Success), &last).await;
        let done = seen.note(&ended, pages);
        disk.make_room();
        // With the same daemon and with the next.
        for reopened in [false, true] {
            let store = if reopened {
                store.close().await;
                &disk.open().await.unwrap()
            } else {
                &store
            };
            let status = store.get(run.id).await.unwrap().unwrap().state.status();
            let expected = if done || reopened {
                "SUCCESS"
            } else {
                "RUNNING"
            };
            assert_eq!(status, expected, "{pages} pages");
            let is_over = done || reopened;
            let episodes = store.episodes(run.id).await.unwrap().len();
            let open = store.open_executions().await.unwrap().len();
            let receipt = store.receipt(run.id, None).await.unwrap().is_some();
            let expected = if is_over { (1, 0, true) } else { (0, 1, false) };
            assert_eq!((episodes, open, receipt), expected, "{pages} pages");
            let again = store.apply(run.id, finish(Ending::Success), &last).await;
            assert_eq!(again.unwrap().unwrap().is_ok(), !is_over, "{pages} pages");
            if reopened {
                store.close().await;
            }
        }
        disk.empty();
    }
    seen.assert_both();
}

/// Removing needs room, too, and is whole or not at all.
#[tokio::test]
async fn a_run_is_removed_whole_or_not_at_all() {
    let Some(disk) = Disk::new("8m") else { return };
    let mut seen = Seen::default();
    for pages in 0..30 {
        let store = disk.open().await.unwrap();
        let run = new_run("a");
        store.insert(&run, 9).await.unwrap();
        start(&store, run.id).await;
        let last = recorded(&episode(run.id, 1, &ExecutionId::random()), "print()");
        let last = Alongside::Episode(Box::new(last));
        let end = store.apply(run.id, finish(Ending::Success), &last).await;
        end.unwrap().unwrap().unwrap();
        disk.leave(pages);
        let removed = store.remove(vec![1]).await;
        let gone = seen.note(&removed, pages);
        disk.make_room();
        store.close().await;
        let store = disk.open().await.unwrap();
        let episodes = store.episodes(run.id).await.unwrap().len();
        let left = (store.get(run.id).await.unwrap().is_some(), episodes);
        assert_eq!(
            left,
            if gone { (false, 0) } else { (true, 1) },
            "{pages} pages"
        );
        store.close().await;
        disk.empty();
    }
    seen.assert_both();
}

/// The log is copied into the database when it has become long; there may be no room for that.
#[tokio::test]
async fn a_log_that_there_is_no_room_to_copy_loses_nothing_and_is_copied_later() {
    let Some(disk) = Disk::new("48m") else { return };
    let store = disk.open().await.unwrap();
    let mut ids = Vec::new();
    let insert = async |mebibytes: usize| {
        let mut run = new_run("a");
        run.request.code = Some("x".repeat(mebibytes << 20));
        let inserted = store.insert(&run, 99).await;
        assert!(inserted.is_ok(), "with {} bytes: {inserted:?}", disk.free());
        // It is copied after the answer, and before the next operation.
        let next = testing::Pragma("user_version");
        store.writer.run(next).await.unwrap();
        run.id
    };
    for _ in 0..13 {
        ids.push(insert(1).await);
    }
    let size = || std::fs::metadata(disk.database()).unwrap().len();
    let before = size();
    assert!(before < 1 << 20, "it was copied early");
    // Enough for one more in the log, which is long after that, and not for all in the database.
    disk.leave(1000);
    ids.push(insert(3).await);
    assert!(size() < before + (2 << 20), "there was room");
    for id in &ids {
        assert!(store.get_complete(*id).await.unwrap().is_some());
    }
    disk.make_room();
    ids.push(insert(1).await);
    assert!(size() > before + (16 << 20), "{}", size());
    let found = store.queued().await.unwrap();
    assert_eq!(found.iter().map(|run| run.id).collect::<Vec<_>>(), ids);
    store.close().await;
    let store = disk.open().await.unwrap();
    assert_eq!(store.queued().await.unwrap().len(), ids.len());
}
