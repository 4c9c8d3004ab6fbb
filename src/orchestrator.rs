//! Carrying out runs: one given program, or the loop that writes, runs, judges and repairs programs.
//!
//! Owns the way from a run to its outcome: [`executor`] runs one program in a sandbox of its own,
//! `conversation` is the talk with its supervisor, [`takeover`] goes on with what an earlier daemon
//! left, [`given`] turns one execution into a run's outcome. [`generated`] is the loop: [`step`] decides
//! what is done next, [`perception`] what the run is about, and [`coder`], [`judge`] and [`analysis`] are
//! asked on the way; behind them is either [`mock`], or [`crew`] with a model behind [`llm`].
//! [`sandboxes`] knows where a sandbox comes from. Knows engines only through `sandbox`'s traits, and no HTTP.

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

mod attempts;

mod trouble;

pub mod given;

pub mod runner;

pub mod generated;

pub mod every_run;

pub mod step;

pub mod perception;

pub mod coder;

pub mod judge;

pub mod analysis;

pub mod mock;

pub mod crew;

pub mod prompt;

pub mod llm;

#[cfg(test)]
mod testing;

pub use every_run::EveryRun;
pub use executor::Executor;
pub use generated::Generated;
pub use given::GivenProgram;
pub use handoff::Handoffs;
pub use host_paths::HostPaths;
pub use sandboxes::Sandboxes;
pub use takeover::{LeftExecution, Takeover};
