//! The fumehood daemon: runs model-written code in single-use, hardened containers.
//!
//! The binary in `main.rs` is a thin shell over this library. `docs/architecture.md` tells how the
//! parts belong together; each module starts with what it owns.

pub mod clock;

pub mod fault_point;

pub mod ids;

pub mod digest;

pub mod durable;

pub mod secret;

pub mod telemetry;

pub mod auth;

pub mod execution;

pub mod receipt;

pub mod config;

pub mod runs;

pub mod sandbox;

pub mod artifacts;

pub mod orchestrator;

pub mod doctor;

pub mod app;

pub mod cli;

pub mod api;
