//! What happens in a run while it happens: state changes and live output.

use fumehood_protocol::message::Stream;

use crate::ids::ExecutionId;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// The run has this status now, as the interface writes it.
    Status(&'static str),
    /// A program was started.
    ExecutionStarted(ExecutionId),
    /// A program wrote something that is kept.
    Output {
        /// Where.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
    /// A program is over, with this status.
    ExecutionEnded(ExecutionId, &'static str),
}
