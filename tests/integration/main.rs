//! Black-box tests against a real engine, one binary, one module per area.
//!
//! Needs Docker Engine and the sandbox image; `tests/run.sh` sees to both. Each test has a daemon
//! of its own in a directory of its own, and its end checks that nothing is left.

mod support;

mod example;
mod rules;

mod flood;

mod timeouts;
mod environment;
mod limits;

mod faults;

mod load;

mod restarts;
mod interface;
mod artifacts;
mod dataset_paths;
mod command_line;
mod unavailable;
mod isolation;
mod bugs;

mod collection;
