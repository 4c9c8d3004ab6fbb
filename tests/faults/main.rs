//! The fault bench: a daemon that is killed at every state of a run, an engine that is killed,
//! frozen, full or garbles what it says, disks that are full, clocks that are wrong.
//!
//! Needs root, Docker Engine and the sandbox image, which `tests/faults/run.sh` sees to, and a debug
//! build: no other has fault points. What is promised stands in [`matrix`], one row for each fault; the
//! engine that suffers is one of the bench's own ([`bench::engine`]).

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, helpers included, and reads its own environment"
)]

#[allow(
    dead_code,
    unused_imports,
    reason = "shared with the integration tests, which use all of it"
)]
#[path = "../integration/support"]
mod support {
    pub(crate) mod daemon;
    pub(crate) mod data;
    pub(crate) mod engine;
    pub(crate) mod model;
    pub(crate) mod proxy;
    pub(crate) mod wait;
    pub(crate) mod watch;

    pub(crate) use daemon::{Daemon, Settings};
}

mod bench;

mod matrix;

mod kills;
mod engine_down;
mod engine_odd;
mod disks;
mod store;
mod clock;
mod doors;
mod loops;
mod model;

mod release;

mod soak;
