//! The lock that keeps a second daemon away, and remembers that there was a store beside it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use tracing::warn;

use crate::runs::store::StoreError;

/// An exclusive lock on a file, held until it is dropped. The kernel lets go of it when the process
/// ends, however it ends, so that there is no stale lock to clear.
#[derive(Debug)]
pub struct FileLock {
    file: File,
}

impl FileLock {
    /// Takes the lock on the file at `path`, which is created if it is not there.
    ///
    /// # Errors
    ///
    /// [`StoreError::InUse`] if somebody has it, [`StoreError::Open`] if the file cannot be opened
    /// or locked.
    pub fn take(path: &Path) -> Result<Self, StoreError> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(no_follow())
            .open(path)
            .map_err(|error| super::open::cannot_open(path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse {
                path: path.display().to_string(),
            }),
            Err(TryLockError::Error(error)) => Err(super::open::cannot_open(path, error)),
        }
    }

    /// Whether the store beside it was opened before: then it cannot be empty.
    pub(super) fn is_marked(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.len() > 0)
    }

    /// Remembers, durably, that the store beside it was opened.
    pub(super) fn mark(&self) -> io::Result<()> {
        if self.is_marked()? {
            return Ok(());
        }
        (&self.file).write_all(b"There is a store beside this file.\n")?;
        self.file.sync_all()
    }
}

impl Drop for FileLock {
    /// Said, and not left to the closing of the file: a child that is just being started has the file
    /// open, too, until it executes its program, and would keep the lock for as long.
    fn drop(&mut self) {
        if let Err(error) = self.file.unlock() {
            warn!(%error, "a lock could not be given back; it is gone when this process is");
        }
    }
}

/// Open flags that refuse a symbolic link in the last component.
pub(super) fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_free_once_it_is_given_back_whoever_else_has_the_file_open() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock");
        let lock = FileLock::take(&path).unwrap();
        assert!(matches!(
            FileLock::take(&path),
            Err(StoreError::InUse { .. })
        ));
        // What a child has between its making and its program.
        let with_the_child = lock.file.try_clone().unwrap();
        drop(lock);
        FileLock::take(&path).unwrap();
        drop(with_the_child);
    }
}
