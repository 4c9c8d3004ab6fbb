//! What every area uses: a daemon, a client, the engine's view, and real data sets.

pub(crate) mod daemon;

pub(crate) mod data;

pub(crate) mod direct;

pub(crate) mod engine;

pub(crate) mod leaks;

pub(crate) mod model;

pub(crate) mod program;

#[allow(
    dead_code,
    reason = "shared with the fault bench, which needs more of it"
)]
pub(crate) mod proxy;

pub(crate) mod wait;

pub(crate) mod watch;

pub(crate) use daemon::{Daemon, Settings};
