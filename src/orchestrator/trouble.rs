//! What keeps a program from running, or ends it, without being its fault.

use super::handoff::HandoffError;
use crate::artifacts::OutputRootError;
use crate::execution::cause::Verdict;
use crate::runs::dataset_contents::UnsafeContents;
use crate::runs::dataset_path::DatasetChanged;
use crate::sandbox::EngineError;
use crate::sandbox::preparation::PreparationError;
use crate::sandbox::session::SessionError;

/// Infrastructure at fault. `Display` is for clients: it names the thing and the remedy, never a
/// path; sources go to the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// A request ended the run before its program was started.
    #[error("Execution was cancelled.")]
    Cancelled,
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Preparation(#[from] PreparationError),
    #[error("the data set changed or is missing since the run was accepted")]
    Dataset(#[source] DatasetChanged),
    #[error(transparent)]
    DatasetContents(#[from] UnsafeContents),
    #[error(transparent)]
    Output(#[from] OutputRootError),
    #[error("the sandbox could not be prepared")]
    Session(#[from] SessionError),
    #[error("the program could not be started: {step} failed ({message})")]
    NotStarted { step: String, message: String },
    #[error(
        "the sandbox was lost while it was told to start the program: whether anything of it ran is \
         not known, so it is not started again by itself; submit the run again"
    )]
    LostAtStart(#[source] SessionError),
    #[error(
        "the sandbox did not say within {seconds} s that it has started the program: whether \
         anything of it ran is not known, so it is not started again by itself; submit the run again"
    )]
    SilentAtStart { seconds: u64 },
    #[error(transparent)]
    Handoff(#[from] HandoffError),
    #[error("an internal task of the daemon failed")]
    Task(#[from] tokio::task::JoinError),
}

impl Trouble {
    /// Whether the engine was not there or did not answer, so that the same may work another time.
    pub(super) fn is_absence_of_the_engine(&self) -> bool {
        match self {
            Self::Engine(error) | Self::Preparation(PreparationError::Engine(error)) => {
                error.is_absence()
            }
            Self::Preparation(
                PreparationError::Refused(_)
                | PreparationError::Session(_)
                | PreparationError::NotReady { .. }
                | PreparationError::NotStarted { .. },
            )
            | Self::Cancelled
            | Self::Dataset(_)
            | Self::DatasetContents(_)
            | Self::Output(_)
            | Self::Session(_)
            | Self::NotStarted { .. }
            | Self::LostAtStart(_)
            | Self::SilentAtStart { .. }
            | Self::Handoff(_)
            | Self::Task(_) => false,
        }
    }

    /// Whether the stream to a supervisor broke, or it said nothing, before it had a program.
    pub(super) fn is_silence(&self) -> bool {
        matches!(
            self,
            Self::Preparation(PreparationError::Session(_) | PreparationError::NotReady { .. })
        )
    }

    /// The verdict on an execution that met it.
    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Self::Cancelled => Verdict::cancelled("the program was not started"),
            Self::Engine(_)
            | Self::Preparation(_)
            | Self::Dataset(_)
            | Self::DatasetContents(_)
            | Self::Output(_)
            | Self::Session(_)
            | Self::NotStarted { .. }
            | Self::Handoff(_)
            | Self::Task(_) => Verdict::infrastructure(
                self.to_string(),
                vec!["the program was not started".to_owned()],
            ),
            Self::LostAtStart(_) | Self::SilentAtStart { .. } => Verdict::infrastructure(
                self.to_string(),
                vec!["the sandbox was told to start the program and did not answer".to_owned()],
            ),
        }
    }
}
