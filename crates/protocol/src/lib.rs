//! The conversation between the daemon and the supervisor in a sandbox.
//!
//! This crate owns the frame format and the messages. It does no I/O, knows no
//! async runtime and no container engine, so that both ends share it unchanged.
//!
//! # On the wire
//!
//! Two byte streams, one in each direction, carry frames ([`frame`]); each frame holds one
//! message ([`message`]) in MessagePack with named fields. Frames of the supervisor are numbered
//! from 1; the supervisor keeps each until it is acknowledged, at most [`WINDOW_BYTES`] of them.
//!
//! ```text
//! supervisor: Ready
//! daemon:     (Write | Look)* [Preload (Write | Look)*] Start
//! supervisor: a Dataset for each Look, Preloaded for Preload   (Start comes after Preloaded)
//! supervisor: Started Output* Exited            (or Failed: the program never ran)
//! daemon:     Collect
//! supervisor: (Entry Chunk* EntryEnd | Entry Chunk* Skipped | Skipped)* Done
//! daemon:     Ack (at any time), Cancel (before Exited)
//! ```
//!
//! An `Entry` that is ended by `Skipped` of the same path could not be delivered whole; the
//! receiver discards it. `out` itself has no entry; directories are ended by `EntryEnd` like files.
//!
//! # Attaching again
//!
//! A stream that breaks may break inside a frame, in either direction. A daemon that attaches
//! again therefore first writes the execution's [`ResumeToken`], which the supervisor looks for at
//! any position of its input, and then [`message::ToSupervisor::Resume`]. The supervisor finishes
//! the frame it is writing, writes the token, and repeats every frame after the acknowledged one;
//! the daemon drops what it reads until it has seen the token ([`resume::TokenScanner`]). The token
//! is random and never shown to the program, so no output can imitate it. As the beginning of a frame it
//! makes no sense ([`ResumeToken::new`]), so a supervisor that was not told to start anything ends over it,
//! with [`NEVER_STARTED`].
//!
//! A daemon that died while it gathered the artifacts has acknowledged frames whose content died
//! with it. The next one therefore asks for them by `CollectAnew`: the supervisor says `Anew`, with the mark of that request, and
//! walks the workspace, in which nothing changes any more, from the beginning.
//!
//! # An interpreter that waits
//!
//! After `Preload` the supervisor starts the program's command before there is a program: the
//! interpreter imports modules and waits ([`preload`]). `Start` with the same command lets it go on;
//! clocks and counters begin then. A supervisor whose waiting interpreter ends leaves, and one that
//! hears nothing for two hours before `Start` leaves, too: its daemon is gone.
//!
//! # Compatibility
//!
//! [`VERSION`] grows when a message changes its meaning. New fields are optional and
//! new messages are sent only after both sides have shown that they know them.

use std::time::Duration;

pub mod frame;
pub mod message;
pub mod preload;
pub mod resume;

pub use frame::{Decoder, Frame, FrameError, MAX_BODY_BYTES, encode};
pub use message::{FromSupervisor, ToSupervisor};
pub use resume::ResumeToken;

/// The protocol's version, sent in [`message::Ready`].
pub const VERSION: u16 = 4;

/// How long the supervisor waits for processes that it has killed.
pub const REAPING_LIMIT: Duration = Duration::from_secs(5);

/// The exit code of a supervisor that ended before it was told to start a program (`EX_UNAVAILABLE` of
/// `sysexits.h`): nothing of one has run in its sandbox, and nothing ever will. It has it from nothing but
/// its own state, and a signal from inside cannot give it: whoever sees it may start the program in another
/// sandbox.
pub const NEVER_STARTED: u8 = 69;

/// How many bytes of unacknowledged frames the supervisor keeps. It produces no artifact
/// frames while the window is full.
pub const WINDOW_BYTES: usize = 8 << 20;

/// The most payload bytes put into one `Output`, `Chunk` or `Write` message, well below
/// [`MAX_BODY_BYTES`] so that the envelope always fits.
pub const MAX_PAYLOAD_BYTES: usize = 256 << 10;
