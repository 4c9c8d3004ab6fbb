//! What can stand in the way of an operation of a store. Owns the causes that errors of the store
//! carry; what follows from one is [`StoreError`](super::StoreError)'s affair.

use std::io;

/// Why an operation of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The database said no.
    #[error("the database refused")]
    Database(#[from] rusqlite::Error),
    /// A file or directory cannot be used.
    #[error("a file of the store cannot be used")]
    File(#[from] io::Error),
    /// The row that was to be changed is not what it was a moment ago.
    #[error("the row is not there any more")]
    Gone,
    /// The store is closed, or about to be.
    #[error("the store is closed")]
    Closed,
    /// Its turn did not come, or did not end, within the bound.
    #[error("it took longer than {0} seconds: check the load and health of the disk")]
    Slow(u64),
    /// What carried it out panicked.
    #[error("what carried it out has died, which is a fault of fumehood: restart it and report it")]
    Died,
}
