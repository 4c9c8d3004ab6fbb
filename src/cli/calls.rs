//! Who else is at work with the same state directory: all calls of `run` make sandboxes under one
//! identity, and only the last one to end can tell what nobody needs any more.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

const LOCK_NAME: &str = "cli-lock";

/// Membership in the calls that are at work, until it is dropped; the kernel ends it with the
/// process.
#[derive(Debug)]
pub(super) struct Calls {
    path: PathBuf,
    lock: File,
}

impl Calls {
    /// Joins the calls at work with this state directory; waits while one of them tidies up.
    /// `None` where files cannot be locked.
    pub(super) async fn join(state_dir: &Path) -> Option<Self> {
        let path = state_dir.join(LOCK_NAME);
        let joined = spawn_blocking(move || {
            let lock = open(&path)?;
            lock.lock_shared().ok()?;
            Some(Self { path, lock })
        });
        joined.await.ok().flatten()
    }

    /// Leaves; if no other call is at work, none can begin until the answer is dropped.
    pub(super) fn alone(self) -> Option<File> {
        let Self { path, lock } = self;
        drop(lock);
        let lock = open(&path)?;
        lock.try_lock().ok()?;
        Some(lock)
    }
}

fn open(path: &Path) -> Option<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_last_call_is_alone() {
        let directory = tempfile::tempdir().unwrap();
        let join = || Calls::join(directory.path());
        let (first, second) = (join().await.unwrap(), join().await.unwrap());
        assert!(first.alone().is_none(), "the second is at work");
        let alone = second.alone();
        assert!(alone.is_some());
        drop(alone);
        assert!(join().await.unwrap().alone().is_some());
        assert!(Calls::join(Path::new("/nowhere")).await.is_none());
    }
}
