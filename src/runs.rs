//! Runs: the core of the daemon.
//!
//! Owns what a run is, its states, the durable record of it, the fair queue and the service that
//! moves runs from one state to the next. Knows neither HTTP nor containers: how a run is carried
//! out is behind [`service::Orchestrator`], where it is kept is behind [`store::Store`].

pub mod request;

pub mod admission;

pub mod tenants;

pub mod dataset_path;

pub mod dataset_contents;

pub mod dataset_listing;

pub mod record;

pub mod task;

pub mod state;

pub mod store;

pub mod queue;

pub mod events;

pub mod gate;

pub mod service;

pub mod recovery;

pub mod retention;

pub use record::{Episode, RunOutcome, RunRecord};
pub use request::RunRequest;
pub use service::RunService;
