//! Owns the errors that end the supervisor, and with it the sandbox. What goes wrong with one
//! program or one file is no such error: that is a message to the daemon.

use std::fmt;
use std::io;

use fumehood_protocol::FrameError;

/// Why the supervisor gives up.
#[derive(Debug)]
pub(crate) enum Fatal {
    /// It is not PID 1, so its `kill(-1)` would hit the innocent.
    NotInit,
    /// The command line makes no sense.
    Arguments(String),
    /// The sandbox is not what it has to be.
    Refused(String),
    /// The daemon sent something that is no frame or no message.
    Frame(FrameError),
    /// The daemon sent a message that has no meaning at this point.
    Protocol(String),
    /// One of these two before it was told to start a program: nothing of one has run.
    NeverStarted(Box<Self>),
    /// The interpreter that waits for a program is lost, so this sandbox is not what it was said
    /// to be.
    Interpreter(String),
    /// A system call failed without which nothing works.
    Io(&'static str, io::Error),
}

impl Fatal {
    /// For `map_err`: names the step that failed.
    pub(crate) fn io(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io(step, error)
    }

    /// Exit code, after `sysexits.h`.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Arguments(_) => 64,
            Self::Frame(_) | Self::Protocol(_) => 65,
            Self::NotInit | Self::Refused(_) | Self::Interpreter(_) => 70,
            Self::Io(..) => 71,
            Self::NeverStarted(_) => fumehood_protocol::NEVER_STARTED,
        }
    }
}

impl From<FrameError> for Fatal {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInit => f.write_str("refuses to run: it must be PID 1 of a sandbox"),
            Self::Arguments(what) => write!(
                f,
                "{what}; usage: [--workspace DIR] [--dataset DIR] [--preload DIR] \
                 [--importing-seconds N] [--preparing-seconds N]"
            ),
            Self::Refused(what) => write!(f, "refuses to run: {what}"),
            Self::Frame(error) => {
                write!(f, "malformed input: {error}")?;
                std::error::Error::source(error).map_or(Ok(()), |source| write!(f, ": {source}"))
            }
            Self::Interpreter(what) => write!(f, "the interpreter is lost: {what}"),
            Self::Protocol(what) => write!(f, "protocol error: {what}"),
            Self::NeverStarted(what) => write!(f, "{what}; no program was started"),
            Self::Io(step, error) => write!(f, "{step}: {error}"),
        }
    }
}
