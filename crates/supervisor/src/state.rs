//! Owns the state of the conversation with the daemon.

use crate::error::Fatal;
use crate::preparing::Preparing;
use crate::run::Run;
use crate::walk::Walk;

/// Where the conversation is.
#[derive(Debug)]
pub(crate) enum State {
    /// Input files are written, an interpreter may be made to wait; waits for `Start`.
    Preparing(Preparing),
    /// The program runs.
    Running(Box<Run>),
    /// The program is over; waits for `Collect`.
    Holding,
    /// The artifacts are on their way.
    Collecting(Box<Walk>),
    /// Nothing else will be said; leaves when this frame is acknowledged.
    Finished { last: u64, collected: bool },
}

impl State {
    /// What a message is about that has a meaning before `Start` only; `None` if it was sent before
    /// the daemon could know that an earlier one had failed.
    pub(crate) fn preparing(&mut self, message: &str) -> Result<Option<&mut Preparing>, Fatal> {
        match self {
            Self::Preparing(preparing) => Ok(Some(preparing)),
            Self::Finished {
                collected: false, ..
            } => Ok(None),
            Self::Running(_) | Self::Holding | Self::Collecting(_) | Self::Finished { .. } => {
                Err(Fatal::Protocol(format!("{message} after Start")))
            }
        }
    }
}
