//! Transactions and what their failures mean.

use std::sync::atomic::Ordering;

use sqlx::{Sqlite, Transaction};

use super::SqliteStore;
use crate::runs::store::StoreError;

impl SqliteStore {
    pub(super) async fn begin(
        &self,
        operation: &'static str,
    ) -> Result<Transaction<'static, Sqlite>, StoreError> {
        if self.unflushed.load(Ordering::Relaxed) {
            return Err(StoreError::Unflushed);
        }
        self.writer
            .begin_with("BEGIN IMMEDIATE")
            .await
            .map_err(|source| self.failed(operation, source))
    }

    pub(super) async fn commit(
        &self,
        operation: &'static str,
        transaction: Transaction<'static, Sqlite>,
    ) -> Result<(), StoreError> {
        transaction
            .commit()
            .await
            .map_err(|source| self.failed(operation, source))
    }

    pub(super) fn failed(&self, operation: &'static str, source: sqlx::Error) -> StoreError {
        // SQLITE_IOERR_FSYNC and SQLITE_IOERR_DIR_FSYNC: after a failed flush the kernel may have
        // dropped the pages, so that trying again would succeed without writing them.
        if matches!(code(&source), Some(1034 | 1290)) {
            self.unflushed.store(true, Ordering::Relaxed);
            tracing::error!("A flush to disk failed: the store writes nothing more");
        }
        match damage(&source) {
            Some(message) => StoreError::Corrupt(message),
            None => StoreError::Failed { operation, source },
        }
    }

    pub(super) fn check_space(&self) -> Result<(), StoreError> {
        let operation = "measure the free space";
        let space = rustix::fs::statvfs(&self.directory)
            .map_err(|errno| self.failed(operation, sqlx::Error::Io(errno.into())))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < self.space_floor {
            return Err(StoreError::LowSpace {
                free,
                floor: self.space_floor,
            });
        }
        Ok(())
    }
}

/// SQLite's extended result code.
fn code(error: &sqlx::Error) -> Option<i64> {
    error.as_database_error()?.code()?.parse().ok()
}

/// What SQLite says where it says that the file is damaged (`SQLITE_CORRUPT`) or none of its own
/// (`SQLITE_NOTADB`).
pub(super) fn damage(error: &sqlx::Error) -> Option<String> {
    match code(error)? & 0xff {
        11 | 26 => Some(error.as_database_error()?.message().to_owned()),
        _ => None,
    }
}
