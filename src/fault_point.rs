//! Named places at which the fault bench (`tests/faults/`) lets the daemon die.
//!
//! Only debug builds have them, armed or not, so that the bench needs no build of its own; in a release
//! build a fault point is an empty function, which `tests/faults/release.rs` and `tests/tidy.rs` check.
//! Our own and not a crate: what is needed is one action at a dozen places, armed from outside the
//! process and while it runs, and a dependency in the daemon's own code costs more than that.

#[cfg(debug_assertions)]
pub mod bench;

/// A place in the life of a run, in its order (the states of security.md 3.3 in brackets).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPoint {
    /// The request was read and checked, nothing is written yet (R0).
    BeforeAccept,
    /// The run is on disk, its client was told nothing yet (R1).
    AfterAccept,
    /// The start is on disk, nothing was done for it yet (P).
    AfterStart,
    /// There is a directory for the artifacts, there may be a sandbox (P).
    AfterStage,
    /// The engine is about to be asked for a container (C).
    BeforeCreate,
    /// There is a container that was not started (C).
    AfterCreate,
    /// A sandbox waits for the program (S).
    BeforeProgram,
    /// The program runs (S).
    AfterProgram,
    /// The program has ended, nothing was collected yet (X).
    BeforeCollect,
    /// The first artifact has arrived, others have not (A).
    InCollect,
    /// The sandbox is given up, the artifacts have no final name yet (A).
    BeforePublish,
    /// The artifacts have their final name, the end is not written yet (T).
    AfterPublish,
    /// The end is on disk, nobody was told yet, clean-up may be outstanding (D).
    AfterEnd,
}

impl FaultPoint {
    /// All of them, in order.
    pub const ALL: [Self; 13] = [
        Self::BeforeAccept,
        Self::AfterAccept,
        Self::AfterStart,
        Self::AfterStage,
        Self::BeforeCreate,
        Self::AfterCreate,
        Self::BeforeProgram,
        Self::AfterProgram,
        Self::BeforeCollect,
        Self::InCollect,
        Self::BeforePublish,
        Self::AfterPublish,
        Self::AfterEnd,
    ];

    /// What the bench calls it.
    #[cfg(debug_assertions)]
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BeforeAccept => "before-accept",
            Self::AfterAccept => "after-accept",
            Self::AfterStart => "after-start",
            Self::AfterStage => "after-stage",
            Self::BeforeCreate => "before-create",
            Self::AfterCreate => "after-create",
            Self::BeforeProgram => "before-program",
            Self::AfterProgram => "after-program",
            Self::BeforeCollect => "before-collect",
            Self::InCollect => "in-collect",
            Self::BeforePublish => "before-publish",
            Self::AfterPublish => "after-publish",
            Self::AfterEnd => "after-end",
        }
    }

    /// The daemon is at this place. It goes on, unless the bench wants it to die here.
    #[inline]
    pub fn reached(self) {
        #[cfg(debug_assertions)]
        bench::reached(self);
    }
}
