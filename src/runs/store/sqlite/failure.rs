//! What failures of the database mean, and whether anything may still be written.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::runs::store::{Fault, StoreError};

/// Whether flushes to disk can be relied on.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    failed: AtomicBool,
}

impl Flushes {
    /// Refuses to write after a failed flush.
    pub(super) fn require(&self) -> Result<(), StoreError> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(StoreError::Unflushed);
        }
        Ok(())
    }

    /// From now on nothing is written.
    pub(super) fn give_up(&self) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "A flush to disk failed, or did not end: the store writes nothing more until the \
                 daemon is started again; check the disk first"
            );
        }
    }

    /// What a failure means for the operation that met it.
    pub(super) fn failed(
        &self,
        operation: &'static str,
        source: impl Into<Arc<Fault>>,
    ) -> StoreError {
        let source = source.into();
        // SQLITE_IOERR_FSYNC and SQLITE_IOERR_DIR_FSYNC: after a failed flush the kernel may have
        // dropped the pages, so that trying again would succeed without writing them.
        if matches!(code(&source), Some(1034 | 1290)) {
            self.give_up();
        }
        match damage(&source) {
            Some(message) => StoreError::Corrupt(message),
            None => StoreError::Failed { operation, source },
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
