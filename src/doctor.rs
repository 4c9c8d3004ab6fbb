//! The doctor: probes that attack this host's own sandboxes, and the score card.
//!
//! Nothing is promised because it was asked for, only because it was seen: a program of ours
//! (`images/doctor`) looks at a real sandbox of each runtime from inside, the engine is asked about
//! it from outside, and host and engine tell about themselves ([`facts`]). What that is worth is
//! decided by tables of pure functions ([`controls`]), put together by [`examine`], and shown by
//! [`report`]. [`watch`] keeps runs back until what is mandatory was seen.
//!
//! Knows engines only through `sandbox`'s traits, and no HTTP. The only I/O is in `host`, `bench`,
//! `probe` and `visit`.

pub mod facts;

pub mod versions;

pub mod controls;

pub mod evaluation;

pub mod host;

mod bench;

mod probe;

mod visit;

pub mod examine;

pub mod report;

pub mod watch;

use self::controls::harmless;
use crate::sandbox::EngineError;
use crate::sandbox::session::SessionError;

pub use examine::{Depth, Examiner};
pub use report::Card;

/// Why sandboxes could not be examined: not a verdict on them. `Display` holds no path; sources go
/// to the log.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The files for the sandboxes could not be made.
    #[error(
        "the doctor cannot write its files: make the state directory writable or set app.state_dir"
    )]
    Bench(#[source] std::io::Error),
    /// The engine has no such runtime.
    #[error("the engine has no runtime {name}; it has {known}")]
    NoSuchRuntime {
        /// As asked for.
        name: String,
        /// What it has.
        known: String,
    },
    /// The engine tells of none.
    #[error("the engine tells of no runtime: name one with --runtime or execution.runtime")]
    NoRuntime,
    /// The talk with a supervisor broke off.
    #[error("the doctor's {program} program could not be followed")]
    Talk {
        /// Which one.
        program: &'static str,
        /// Why.
        #[source]
        source: SessionError,
    },
    /// A program of the doctor did not do what it should.
    #[error(
        "the doctor's {program} program failed; does the image have python3 of at least version 3.9?"
    )]
    Probe {
        /// Which one.
        program: &'static str,
        /// What is known of it.
        #[source]
        complaint: Complaint,
    },
    /// It took too long.
    #[error(
        "the examination did not end within {seconds} s: is the host or its engine overloaded?"
    )]
    TimedOut {
        /// The bound.
        seconds: u64,
    },
    /// A task was lost.
    #[error("an internal task failed")]
    Task(#[from] tokio::task::JoinError),
}

/// What is known of a program that failed: partly words of a sandbox, for the operator alone.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Complaint(String);

impl Complaint {
    fn new(words: &str) -> Self {
        Self(harmless(words))
    }
}

impl DoctorError {
    fn failed(program: &'static str, words: &str) -> Self {
        Self::Probe {
            program,
            complaint: Complaint::new(words),
        }
    }

    fn talk(program: &'static str, source: SessionError) -> Self {
        Self::Talk { program, source }
    }
}
