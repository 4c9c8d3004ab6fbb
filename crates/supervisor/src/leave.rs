//! Owns the ways in which a supervisor ends as planned.

/// Why the supervisor leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The daemon has everything.
    Acknowledged,
    /// The daemon did not want it after all, was gone before the start, or has said nothing for too long
    /// before that.
    Unused,
    /// Nobody came for the result.
    HoldExpired,
    /// Nobody has told it to start a program, whatever else it was told.
    NeverStarted,
}

impl Leave {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Acknowledged | Self::Unused => 0,
            Self::HoldExpired => 75,
            Self::NeverStarted => fumehood_protocol::NEVER_STARTED,
        }
    }
}
