//! Receipts: for each execution one signed document that lets a third party check what was isolated,
//! offline (contract section 5).
//!
//! Owns the document ([`document`], from what is known: [`evidence`]), its one spelling
//! ([`canonical`]), the key ([`key`]), the seal and the chain ([`chain`]), and the check of all that
//! ([`verify`], [`audit`], [`artifacts`]; what can come of it: [`problem`]). Everything is pure but [`key`] and [`artifacts`], which read files.
//! Decides nothing about runs, knows neither HTTP, engine nor store: the store gives each receipt its
//! number, in the transaction that records the end of its execution.

pub mod evidence;

pub mod canonical;

pub mod document;

pub mod key;

pub mod chain;

pub mod problem;

pub mod verify;

pub mod audit;

pub mod artifacts;

#[cfg(test)]
pub(crate) mod testing;

pub use chain::{Draft, Head, Notary, Sealed};
pub use document::Account;
pub use evidence::Evidence;
pub use verify::Receipt;
