//! Drives the real binary as PID 1 of a sandbox made with `unshare`: its own process and mount
//! namespace, an unprivileged user, a small workspace. Needs root and util-linux.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, and clippy takes the helpers of an integration test for code"
)]

mod harness;
mod interpreter;
mod running;
mod output;
mod preparing;
mod preloading;
mod waiting;
mod fidelity;
mod artifacts;
mod resuming;
mod isolation;
