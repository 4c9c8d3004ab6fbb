//! Sandboxes: containers used for one execution and destroyed.
//!
//! Owns the seam to container engines ([`engine`]), the hardening as data ([`policy`]), what is
//! fixed when a container is made ([`template`]) the conversation with the supervisor in it
//! ([`session`]), the way to one that waits for a program ([`preparation`]) and those that are made
//! ahead of use ([`pool`]). Knows neither runs nor HTTP. Adding an engine is one folder beside [`docker`].

pub mod engine;

pub mod template;

pub mod policy;

pub mod check;

pub mod session;

pub mod survey;

pub mod slots;

pub mod circuit;

pub mod health;

pub mod program;

pub mod preparation;

pub mod pool;

pub mod docker;

pub use engine::{Engine, EngineError, Sandbox};
pub use template::{Image, Template};
