//! Artifacts: what a program left, brought to the host.
//!
//! Owns the names ([`path`]), the directory they are gathered in ([`staging`]) and the stream they
//! arrive on ([`collect`]). Everything that arrives is hostile. No path that a sandbox could name is
//! ever opened (invariant 5): files are created relative to descriptors that the daemon holds.

pub mod path;

pub mod staging;

mod removal;

pub mod collect;

pub mod summary;

pub use collect::{Collected, Collector};
pub use staging::{OutputRoot, OutputRootError, Staging};
