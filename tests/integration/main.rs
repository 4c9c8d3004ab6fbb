//! Black-box tests against a real engine, one binary, one module per area.
//!
//! Needs Docker Engine and the sandbox image; `tests/run.sh` sees to both. Each test has a daemon
//! of its own in a directory of its own, and its end checks that nothing is left.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, helpers included, and reads its own environment"
)]

mod support;

mod example;
mod generated;
mod rules;

mod flood;

mod timeouts;
mod environment;
mod limits;

mod collection;

mod faults;

mod engine;

mod endings;

mod load;

mod pool;
mod adoption;
mod restarts;
mod retention;
mod receipts;
mod interface;
mod tenants;
mod artifacts;
mod dataset_paths;
mod command_line;
mod unavailable;
mod isolation;
mod hostile;
mod doctor;
mod process;
mod service_unit;
mod bugs;
