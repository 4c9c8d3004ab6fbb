//! What an operation is given to work with: the connection in the midst of a transaction, and what
//! all operations of that transaction have in common.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;

use super::access::Access;
use super::failure::Flushes;
use crate::receipt::Notary;
use crate::runs::store::StoreError;

/// Free space below which no new run is accepted, so that accepted ones can still be recorded.
const SPACE_FLOOR: u64 = 64 << 20;

/// What the whole store knows of itself.
#[derive(Debug)]
pub(super) struct Surroundings {
    directory: PathBuf,
    space_floor: AtomicU64,
    pub(super) flushes: Flushes,
    pub(super) notary: Notary,
}

impl Surroundings {
    pub(super) fn new(directory: PathBuf, notary: Notary) -> Self {
        Self {
            directory,
            space_floor: AtomicU64::new(SPACE_FLOOR),
            flushes: Flushes::default(),
            notary,
        }
    }

    #[cfg(test)]
    pub(super) fn set_space_floor(&self, floor: u64) {
        self.space_floor.store(floor, Ordering::Relaxed);
    }
}

/// A transaction under way.
pub(super) struct Batch<'c> {
    pub(super) connection: &'c Connection,
    surroundings: &'c Arc<Surroundings>,
    /// Runs waiting or going on. Counted along, because counting them anew for each one that is
    /// accepted would take the longer the more of them wait. The writer takes it back with an
    /// operation or a transaction that comes to nothing.
    pub(super) unfinished: i64,
    /// Measured once for all.
    free: Option<u64>,
}

impl<'c> Batch<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        surroundings: &'c Arc<Surroundings>,
        unfinished: i64,
    ) -> Self {
        Self {
            connection,
            surroundings,
            unfinished,
            free: None,
        }
    }

    /// The connection, for `operation`.
    pub(super) fn access(&self, operation: &'static str) -> Access<'c> {
        Access::new(self.connection, &self.surroundings.flushes, operation)
    }

    /// Who makes receipts.
    pub(super) fn notary(&self) -> &'c Notary {
        &self.surroundings.notary
    }

    /// Refuses if the disk is nearly full.
    pub(super) fn require_space(&mut self) -> Result<(), StoreError> {
        let free = match self.free {
            Some(free) => free,
            None => {
                let space = rustix::fs::statvfs(&self.surroundings.directory).map_err(|errno| {
                    let measuring = self.access("measure the free space");
                    measuring.failed(io::Error::from(errno))
                })?;
                *self
                    .free
                    .insert(space.f_bavail.saturating_mul(space.f_frsize))
            }
        };
        let floor = self.surroundings.space_floor.load(Ordering::Relaxed);
        if free < floor {
            return Err(StoreError::LowSpace { free, floor });
        }
        Ok(())
    }
}
