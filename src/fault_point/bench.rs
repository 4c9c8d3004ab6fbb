//! The bench's side of it, in debug builds only: a directory outside the process whose files say at
//! which point to die and by how much the wall clock is wrong. Files, because both have to change
//! while the daemon runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use jiff::{SignedDuration, Timestamp};
use rustix::process::{Signal, getpid, kill_process};

use super::FaultPoint;

/// Holds the name of the point to die at.
pub const DIE_AT: &str = "die-at";

/// Tells at which point the daemon died.
pub const DIED_AT: &str = "died-at";

/// Holds by how many seconds the wall clock is ahead, with a sign.
pub const CLOCK: &str = "clock";

static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// From now on the files of this directory count. Only the first call does anything.
pub fn arm(directory: PathBuf) {
    if DIRECTORY.set(directory).is_err() {
        tracing::warn!("The fault bench was armed twice");
    }
}

pub(super) fn reached(point: FaultPoint) {
    let Some(directory) = DIRECTORY.get() else {
        return;
    };
    if read(directory, DIE_AT).is_some_and(|name| name == point.name()) {
        // Whether or not the mark can be written: the bench notices that it is missing.
        let _ = fs::write(directory.join(DIED_AT), point.name());
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

/// What the clock says after the bench has changed it.
pub(crate) fn wrong(now: Timestamp) -> Timestamp {
    let ahead = DIRECTORY
        .get()
        .and_then(|directory| read(directory, CLOCK)?.parse().ok())
        .map_or(SignedDuration::ZERO, SignedDuration::from_secs);
    now.saturating_add(ahead).unwrap_or(now)
}

fn read(directory: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(directory.join(name)).ok()?;
    Some(text.trim().to_owned())
}
