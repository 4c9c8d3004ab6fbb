//! Owns the children: reaping those that were left to PID 1, and ending all of them. A fork storm
//! must not hold the caller, so every function here is bounded.

use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};
use std::{fs::File, io};

use crate::sys;
use sys::process::{self, WaitStatus, Waited};

/// Orphans reaped in one turn of the loop.
const PER_TURN: usize = 256;

/// How long processes may take to vanish after they were killed.
const KILL_BOUND: Duration = Duration::from_secs(5);

/// How often the kill is repeated meanwhile.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// The children of this process.
#[derive(Debug)]
pub(crate) struct Children {
    signals: File,
    /// More may wait to be reaped than the signal tells.
    pending: bool,
}

impl Children {
    pub(crate) fn new(signals: OwnedFd) -> Self {
        Self {
            signals: File::from(signals),
            pending: false,
        }
    }

    /// Readable when a child has ended.
    pub(crate) fn signals(&self) -> &File {
        &self.signals
    }

    /// Whether the next turn has to look again without being woken.
    pub(crate) fn pending(&self) -> bool {
        self.pending
    }

    /// Reaps `main` if it has ended, then a bounded number of orphans.
    pub(crate) fn reap(&mut self, main: libc::pid_t) -> io::Result<Option<WaitStatus>> {
        self.forget_signals();
        let mut ended = match process::wait(main)? {
            Waited::Ended(_, status) => Some(status),
            Waited::Running | Waited::NoChild => None,
        };
        self.pending = true;
        for _ in 0..PER_TURN {
            match process::wait(-1)? {
                Waited::Ended(pid, status) if pid == main => ended = Some(status),
                Waited::Ended(..) => {}
                Waited::Running | Waited::NoChild => {
                    self.pending = false;
                    break;
                }
            }
        }
        Ok(ended)
    }

    /// Kills and reaps everything; tells how `main` ended if it was reaped here, and how many
    /// processes outlived the bound.
    pub(crate) fn end_all(&mut self, main: libc::pid_t) -> io::Result<(Option<WaitStatus>, u32)> {
        let begun = Instant::now();
        let mut ended = None;
        self.pending = false;
        loop {
            process::kill_all();
            loop {
                match process::wait(-1)? {
                    Waited::Ended(pid, status) if pid == main => ended = Some(status),
                    Waited::Ended(..) if begun.elapsed() < KILL_BOUND => {}
                    Waited::Ended(..) | Waited::Running => break,
                    Waited::NoChild => return Ok((ended, 0)),
                }
            }
            if begun.elapsed() >= KILL_BOUND {
                return Ok((ended, others()));
            }
            let mut set = [sys::interest(Some(self.signals.as_fd()), libc::POLLIN)];
            sys::poll(&mut set, Some(KILL_AGAIN))?;
            self.forget_signals();
        }
    }

    fn forget_signals(&mut self) {
        // Each read takes all pending signals of the kind; the content tells nothing that
        // waitpid does not tell better, and `WouldBlock` means that there was none.
        let _ = self.signals.read(&mut [0; 1024]);
    }
}

/// Processes in the sandbox other than this one.
fn others() -> u32 {
    let Ok(entries) = fs::read_dir("/proc") else {
        return 1;
    };
    let processes = entries
        .filter_map(Result::ok)
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|name| name.parse::<u32>().is_ok())
        })
        .count();
    u32::try_from(processes.saturating_sub(1)).unwrap_or(u32::MAX)
}
