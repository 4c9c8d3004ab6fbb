//! x
pub mod docker;
