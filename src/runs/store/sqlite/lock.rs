//! The lock that keeps a second daemon away.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::runs::store::StoreError;

/// An exclusive lock on a file, held until it is dropped. The kernel lets go of it when the process
/// ends, however it ends, so that there is no stale lock to clear.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
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
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse {
                path: path.display().to_string(),
            }),
            Err(TryLockError::Error(error)) => Err(super::open::cannot_open(path, error)),
        }
    }
}

/// Open flags that refuse a symbolic link in the last component.
pub(super) fn no_follow() -> i32 {
    rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()
}
