//! A small disk of its own, in memory, that a test can fill.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// More often than anything is mounted there.
const MOUNTS: usize = 8;

/// A file system of a few hundred megabytes at most. Dropping it takes it away.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    /// A disk of so many MiB. Needs root.
    pub(crate) fn new(mebibytes: u64) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("disk-")
            .tempdir_in("/tmp")
            .unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={mebibytes}m"), "small"])
            .arg(directory.path())
            .status()
            .unwrap();
        assert!(mounted.success(), "mounting needs root");
        Self { directory }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Bytes that can still be written.
    pub(crate) fn free(&self) -> u64 {
        let facts = rustix::fs::statvfs(self.path()).unwrap();
        facts.f_bavail * facts.f_frsize
    }

    /// Fills it until no more than so many bytes are free.
    pub(crate) fn fill(&self, leave: u64) {
        let mut ballast = File::options()
            .create(true)
            .append(true)
            .open(self.ballast())
            .unwrap();
        while self.free() > leave {
            let piece = (self.free() - leave).clamp(1, 1 << 20);
            let piece = vec![1; usize::try_from(piece).unwrap()];
            if ballast.write_all(&piece).is_err() {
                break;
            }
        }
    }

    /// Gives the room back.
    pub(crate) fn relieve(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // More than once: an engine that was killed has mounted it over itself.
        for _ in 0..MOUNTS {
            let mut unmount = Command::new("umount");
            unmount.arg("--lazy").arg(self.path());
            unmount.stderr(Stdio::null());
            if !unmount.status().is_ok_and(|status| status.success()) {
                break;
            }
        }
    }
}
