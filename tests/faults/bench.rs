//! What every fault needs: an engine to spoil, a daemon behind a proxy in front of it, small disks,
//! and what is true afterwards whatever happened.

pub(crate) mod engine;

mod processes;

pub(crate) mod disk;

pub(crate) mod stand;

pub(crate) mod starts;

pub(crate) mod invariants;
