//! The disk of the host, which is one for all: after every program it has to be as it was.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use super::always::SETTLED;
use super::expectations::{Runtime, programs};
use super::{AT_ONCE, body, hostile_daemon};
use crate::support::Daemon;
use crate::support::engine::root_directory;
use crate::support::wait::within;
use crate::support::watch::nothing_left;

/// Difference in free space that is nobody's.
const SLACK: u64 = 1 << 20;

/// How often the programs are run before missing space is called their doing: what others write on
/// this host at the same time does not recur with them.
const ROUNDS: usize = 2;

/// How long it may take until what was removed is free.
const FREED: Duration = Duration::from_secs(5);

/// How long a host is watched while nothing runs, to tell whether others use its disk.
const IDLE: Duration = Duration::from_secs(5);

/// Programs that write, leave much behind, or die of it: the others do nothing to a disk.
const WRITERS: &[&str] = &[
    "03_memory_hoard",
    "05_memory_everywhere",
    "06_disk_fill",
    "07_file_size",
    "08_inodes",
    "09_sparse",
    "11_endless_line",
    "15_orphans",
    "26_hard_links",
    "29_names",
    "30_bombs_in_files",
    "39_crash_loop",
    "hole_copy_race",
    "hole_planted_helper",
];

/// Free bytes where the engine keeps everything, and those that the daemon keeps.
async fn free_and_kept(daemon: &Daemon) -> (u64, u64) {
    let system = rustix::fs::statvfs(&root_directory().await).unwrap();
    (system.f_bfree * system.f_frsize, usage(daemon.path()))
}

/// Bytes on the disk below a directory.
fn usage(directory: &Path) -> u64 {
    let mut total = 0;
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        // What the daemon removes meanwhile is not there any more.
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.path().symlink_metadata() else {
                continue;
            };
            total += metadata.blocks() * 512;
            if metadata.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    total
}

/// How many bytes are missing since then beyond what the daemon keeps; 0 if they are back.
async fn missing(daemon: &Daemon, before: (u64, u64)) -> u64 {
    let look = || async {
        let (free, kept) = free_and_kept(daemon).await;
        before
            .0
            .saturating_sub(free + kept.saturating_sub(before.1))
    };
    let settled = within(FREED, look, |bytes| *bytes <= SLACK).await;
    settled.err().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_of_the_host_is_as_it_was_after_the_programs_that_write() {
    let daemon = hostile_daemon(Runtime::Runc, AT_ONCE).await;
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        let before = free_and_kept(&daemon).await;
        stream::iter(WRITERS)
            .map(|name| daemon.run(body(name, &programs()[*name], &daemon)))
            .buffer_unordered(2)
            .for_each(|run| {
                assert_ne!(run["result"]["status"], "ERROR", "{run:#}");
                std::future::ready(())
            })
            .await;
        nothing_left(&daemon, SETTLED).await;
        bytes = missing(&daemon, before).await;
        if bytes == 0 {
            return;
        }
    }
    // Is it them, or is it others?
    let before = free_and_kept(&daemon).await;
    tokio::time::sleep(IDLE).await;
    let (free, _) = free_and_kept(&daemon).await;
    let drift = before.0.abs_diff(free);
    assert!(drift > SLACK, "{bytes} bytes of the disk are missing");
    eprintln!("SKIPPED: others use this host's disk: {drift} bytes while nothing ran here");
}
