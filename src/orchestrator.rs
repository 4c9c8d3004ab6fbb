//! Carrying out runs: one given program today, the loop of writing and judging programs later.
//!
//! Owns the way from a run to its outcome: [`executor`] runs one program in a sandbox of its own,
//! `conversation` is the talk with its supervisor, [`takeover`] goes on with what an earlier daemon
//! left, [`given`] turns one execution into a run's
//! outcome. [`sandboxes`] knows where a sandbox comes from. Knows engines only through `sandbox`'s traits, and no HTTP.

pub mod executor;

mod conversation;

mod course;

mod following;

mod resuming;

mod collection;

mod ending;

mod conclusion;

mod stopping;

mod evidence;

pub mod host_paths;

pub mod sandboxes;

pub mod handoff;

pub mod takeover;

mod retry;

mod trouble;

pub mod given;

pub use executor::Executor;
pub use given::GivenProgram;
pub use handoff::Handoffs;
pub use host_paths::HostPaths;
pub use sandboxes::Sandboxes;
pub use takeover::{LeftExecution, Takeover};
