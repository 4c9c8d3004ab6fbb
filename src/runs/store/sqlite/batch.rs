//! What an operation is given to work with: the connection in the midst of a transaction, and what
//! all operations of that transaction have in common.

use std::sync::Arc;

use rusqlite::Connection;

use super::access::Access;
use super::failure::Flushes;
use super::kept_clock::KeptClock;
use super::space::{Low, Space};
use crate::clock::HostTime;
use crate::receipt::Notary;
use crate::runs::store::StoreError;

/// What the whole store knows of itself.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) space: Space,
    pub(super) clock: KeptClock,
    pub(super) flushes: Flushes,
    pub(super) notary: Notary,
    /// This life of the host; empty if the kernel does not tell.
    pub(super) boot: String,
}

impl Surroundings {
    pub(super) fn new(space: Space, clock: KeptClock, notary: Notary) -> Self {
        Self {
            space,
            clock,
            flushes: Flushes::default(),
            notary,
            boot: HostTime::now().boot,
        }
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
    room: Option<Result<(), Low>>,
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
            room: None,
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

    /// The time by which it is reckoned how long something is kept.
    pub(super) fn clock(&self) -> &'c KeptClock {
        &self.surroundings.clock
    }

    /// This life of the host.
    pub(super) fn boot(&self) -> &'c str {
        &self.surroundings.boot
    }

    /// Refuses if the disk is nearly full.
    pub(super) fn require_space(&mut self) -> Result<(), StoreError> {
        let room = match self.room {
            Some(room) => room,
            None => {
                let measured = self.surroundings.space.require();
                let measuring = |error| self.access("measure the free space").failed(error);
                let room = measured.map_err(measuring)?;
                *self.room.insert(room)
            }
        };
        room.map_err(|Low { free, floor }| StoreError::LowSpace { free, floor })
    }
}
