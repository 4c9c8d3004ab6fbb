//! Logging: where it goes, and how errors are written in it.
//!
//! A message is a sentence, facts are fields with dotted names and units in them. Warnings are for
//! the operator to act on, errors for what lost something. Never logged: program code, output,
//! input files, environment variables, keys.

use std::error::Error;
use std::fmt;

use tracing_subscriber::EnvFilter;

/// An error with all its sources on one line: the only place where a chain is printed.
pub struct Chain<'a>(pub &'a dyn Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl fmt::Debug for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Logs a failure that the daemon went on from, with its sources.
pub fn log_chain(what: &'static str, error: &dyn Error) {
    tracing::warn!(error = %Chain(error), "{what}");
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging to standard error. `filter` is in the syntax of `tracing_subscriber::EnvFilter`.
pub fn start(filter: &str, format: LogFormat) {
    let filter = EnvFilter::builder().parse_lossy(filter);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => builder.with_target(false).init(),
        LogFormat::Json => builder.json().init(),
    }
}
