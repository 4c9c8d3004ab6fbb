//! What failures of the database mean, and whether anything may still be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

use crate::runs::store::{Fault, StoreError};

/// Whether flushes to disk can be relied on.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    failed: CancellationToken,
    full: AtomicBool,
}

impl Flushes {
    /// Refuses to write after a failed flush.
    pub(super) fn require(&self) -> Result<(), StoreError> {
        if self.failed.is_cancelled() {
            return Err(StoreError::Unflushed);
        }
        Ok(())
    }

    /// From now on nothing is written.
    pub(super) fn give_up(&self) {
        if !self.failed.is_cancelled() {
            tracing::error!(
                "The store writes nothing more until the daemon is started again: a flush to disk failed \
                 or did not end, or its writer died; check the disk first"
            );
        }
        self.failed.cancel();
    }

    /// Cancelled once nothing is written any more.
    pub(super) fn broken(&self) -> CancellationToken {
        self.failed.clone()
    }

    /// Whether anything has met a full disk since this was asked last.
    pub(super) fn take_full(&self) -> bool {
        self.full.swap(false, Ordering::Relaxed)
    }

    /// What a failure means for the operation that met it.
    pub(super) fn failed(
        &self,
        operation: &'static str,
        source: impl Into<Arc<Fault>>,
    ) -> StoreError {
        let source = source.into();
        self.note(&source);
        match damage(&source) {
            Some(message) => StoreError::Corrupt(message),
            None => StoreError::Failed { operation, source },
        }
    }

    /// Takes notice of a failed flush and of a full disk.
    pub(super) fn note(&self, source: &Fault) {
        // SQLITE_IOERR_FSYNC and SQLITE_IOERR_DIR_FSYNC: after a failed flush the kernel may have
        // dropped the pages, so that trying again would succeed without writing them.
        if matches!(code(source), Some(1034 | 1290)) {
            self.give_up();
        }
        // SQLITE_FULL.
        if code(source).is_some_and(|code| code & 0xff == 13) {
            self.full.store(true, Ordering::Relaxed);
        }
    }
}

/// SQLite's extended result code.
fn code(fault: &Fault) -> Option<i32> {
    match fault {
        Fault::Database(error) => error.sqlite_extended_error_code(),
        Fault::File(_) | Fault::Gone | Fault::Closed | Fault::Slow(_) | Fault::Died => None,
    }
}

/// What SQLite says where it says that the file is damaged (`SQLITE_CORRUPT`) or none of its own
/// (`SQLITE_NOTADB`).
pub(super) fn damage(fault: &Fault) -> Option<String> {
    match (code(fault)? & 0xff, fault) {
        (11 | 26, Fault::Database(error)) => Some(error.to_string()),
        _ => None,
    }
}
