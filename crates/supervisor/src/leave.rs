//! Owns the ways in which a supervisor ends as planned.

/// Why the supervisor leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The daemon has everything.
    Acknowledged,
    /// The daemon did not want it after all, or was gone before the start.
    Unused,
    /// Nobody came for the result.
    HoldExpired,
    /// Nobody has said anything for too long before the start.
    Forgotten,
}

impl Leave {
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Acknowledged | Self::Unused => 0,
            Self::HoldExpired | Self::Forgotten => 75,
        }
    }
}
