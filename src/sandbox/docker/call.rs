//! What an engine is asked for, by name: its words, its bound, and whether it may be asked twice.

use std::time::Duration;

use crate::sandbox::health::{CallBounds, CallKind};

/// What an engine is asked for; each kind has its bound (invariant 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Connecting and agreeing on a version.
    Connect,
    /// Whether it is there.
    Ping,
    /// Version and host facts.
    Describe,
    /// Looking an image up.
    InspectImage,
    /// Looking a volume up.
    InspectVolume,
    /// Making a volume.
    CreateVolume,
    /// Making a container.
    Create,
    /// Reading a container's settings or state.
    Inspect,
    /// Reading what the engine has noted of a container.
    Events,
    /// Listing containers.
    List,
    /// Opening a container's streams.
    Attach,
    /// Starting a container.
    Start,
    /// Changing a container's share of the CPU.
    Update,
    /// Ending what runs in a container.
    Kill,
    /// Ending and removing a container.
    Remove,
    /// Writing the supervisor into its volume, or reading it.
    CopySupervisor,
    /// Listing what is of other versions.
    ListEarlier,
    /// Removing what is of another version.
    RemoveEarlier,
}

impl Call {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Connect => "agree on a version",
            Self::Ping => "answer",
            Self::Describe => "describe itself",
            Self::InspectImage => "look an image up",
            Self::InspectVolume => "look the supervisor's volume up",
            Self::CreateVolume => "make the supervisor's volume",
            Self::Create => "create a sandbox",
            Self::Inspect => "read a sandbox's settings",
            Self::Events => "tell what happened to a sandbox",
            Self::List => "list sandboxes",
            Self::Attach => "open a sandbox's streams",
            Self::Start => "start a sandbox",
            Self::Update => "change a sandbox",
            Self::Kill => "end a sandbox",
            Self::Remove => "remove a sandbox",
            Self::CopySupervisor => "copy the supervisor",
            Self::ListEarlier => "list volumes and images",
            Self::RemoveEarlier => "remove a volume or an image",
        }
    }

    /// What it needs of the engine.
    #[must_use]
    pub fn kind(self) -> CallKind {
        match self {
            Self::Connect | Self::Ping => CallKind::Ping,
            Self::Describe
            | Self::InspectImage
            | Self::InspectVolume
            | Self::Inspect
            | Self::Events
            | Self::List
            | Self::ListEarlier => CallKind::Ask,
            Self::CreateVolume | Self::Create | Self::CopySupervisor => CallKind::Create,
            Self::Attach => CallKind::Attach,
            Self::Start => CallKind::Start,
            // Made for the end only, so that what ends a sandbox gets its turn.
            Self::Update | Self::Kill => CallKind::Kill,
            Self::Remove | Self::RemoveEarlier => CallKind::Remove,
        }
    }

    /// How long the answer may take, every attempt included.
    #[must_use]
    pub fn deadline(self, bounds: &CallBounds) -> Duration {
        let deadline = bounds.deadline(self.kind());
        match self {
            // The engine needs little for it but itself.
            Self::Describe => deadline / 2,
            Self::Connect
            | Self::Ping
            | Self::InspectImage
            | Self::InspectVolume
            | Self::Inspect
            | Self::Events
            | Self::List
            | Self::CreateVolume
            | Self::Create
            | Self::CopySupervisor
            | Self::Attach
            | Self::Start
            | Self::Update
            | Self::Kill
            | Self::Remove
            | Self::ListEarlier
            | Self::RemoveEarlier => deadline,
        }
    }

    /// Whether it may be made a second time by somebody who does not know what became of the first.
    /// A creation may: the name that it gives follows from the execution, and the engine gives a
    /// name once. So may a start, which starts the supervisor: the program is started by a message
    /// to that one, and by nothing here.
    pub(super) fn is_safe_to_repeat(self) -> bool {
        match self {
            Self::Connect
            | Self::Ping
            | Self::Describe
            | Self::InspectImage
            | Self::InspectVolume
            | Self::Inspect
            | Self::Events
            | Self::List
            | Self::CreateVolume
            | Self::Create
            | Self::Start
            | Self::Update
            | Self::Kill
            | Self::Remove
            | Self::ListEarlier
            | Self::RemoveEarlier => true,
            // A second stream would share the supervisor with the first; and a half-written archive
            // is for its caller to look at.
            Self::Attach | Self::CopySupervisor => false,
        }
    }
}
