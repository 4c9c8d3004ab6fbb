//! Owns the children: reaping those that were left to PID 1, and ending all of them. A fork storm
//! must not hold the caller, so every function here is bounded.

use std::fs;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};
use std::{fs::File, io};

use fumehood_protocol::REAPING_LIMIT;

use crate::sys;
use sys::process::{self, WaitStatus, Waited};

/// Orphans reaped in one turn of the loop.
const PER_TURN: usize = 256;

/// How often the kill is repeated meanwhile: soon at first, since few processes take long.
const KILL_AGAIN: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// More processes than this are waited for to the end: to look at them would cost more.
const MOST_LOOKED_AT: usize = 4;

/// The kernel has begun to take a task apart: it will never run, write or read again. `PF_EXITING`
/// of the flags in proc(5).
const EXITING: u64 = 0x4;

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

    /// Kills everything and reaps it, except for a few processes that the kernel is taking apart
    /// already, as that may last for one with much memory. Tells how `main` ended if it was reaped
    /// here, and how many processes outlived the bound.
    pub(crate) fn end_all(&mut self, main: libc::pid_t) -> io::Result<(Option<WaitStatus>, u32)> {
        let begun = Instant::now();
        let mut ended = None;
        let mut pause = KILL_AGAIN[0];
        self.pending = false;
        loop {
            process::kill_all();
            loop {
                match process::wait(-1)? {
                    Waited::Ended(pid, status) if pid == main => ended = Some(status),
                    Waited::Ended(..) if begun.elapsed() < REAPING_LIMIT => {}
                    Waited::Ended(..) | Waited::Running => break,
                    Waited::NoChild => return Ok((ended, 0)),
                }
            }
            if begun.elapsed() >= REAPING_LIMIT {
                return Ok((ended, others().map_or(1, |others| count(others.len()))));
            }
            if is_over(main, ended.is_some()) {
                return Ok((ended, 0));
            }
            let mut set = [sys::interest(Some(self.signals.as_fd()), libc::POLLIN)];
            sys::poll(&mut set, Some(pause))?;
            pause = (pause * 2).min(KILL_AGAIN[1]);
            self.forget_signals();
        }
    }

    fn forget_signals(&mut self) {
        // Each read takes all pending signals of the kind; the content tells nothing that
        // waitpid does not tell better, and `WouldBlock` means that there was none.
        let _ = self.signals.read(&mut [0; 1024]);
    }
}

/// Whether all processes left are few and past their last instruction.
fn is_over(main: libc::pid_t, main_is_reaped: bool) -> bool {
    let Some(others) = others() else { return false };
    others.len() <= MOST_LOOKED_AT
        // How it ended is known when it is reaped.
        && (main_is_reaped || !others.contains(&main))
        && others.iter().all(|&pid| is_exiting(pid))
}

/// Processes in the sandbox other than this one, if the kernel tells.
fn others() -> Option<Vec<libc::pid_t>> {
    let own = libc::pid_t::try_from(std::process::id()).ok();
    let pids = numbers_in("/proc").ok()?;
    Some(pids.into_iter().filter(|&pid| Some(pid) != own).collect())
}

/// Whether every thread of a process is being taken apart; one that is gone is. What cannot be
/// found out is not taken for granted.
fn is_exiting(pid: libc::pid_t) -> bool {
    let threads = format!("/proc/{pid}/task");
    let list = match numbers_in(&threads) {
        Ok(list) => list,
        Err(error) => return is_gone(&error),
    };
    list.iter().all(
        |thread| match fs::read_to_string(format!("{threads}/{thread}/stat")) {
            Ok(text) => flags(&text).is_some_and(|flags| flags & EXITING != 0),
            Err(error) => is_gone(&error),
        },
    )
}

/// What reading about a task says that was reaped before, or meanwhile.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The flags in the text of a `stat` file; the name before them may hold anything.
fn flags(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(6)?.parse().ok()
}

fn numbers_in(directory: &str) -> io::Result<Vec<libc::pid_t>> {
    let entries = fs::read_dir(directory)?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok()).collect())
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_found_behind_any_name() {
        let stat = |name: &str| format!("7 ({name}) S 1 7 7 0 -1 4194308 83 0 0 0");
        for name in ["python3", "a b", ") S 1 2 3", ""] {
            assert_eq!(flags(&stat(name)), Some(4_194_308), "{name}");
        }
        assert_eq!(flags("7 (x"), None);
        assert_eq!(flags("7 (x) S 1"), None);
    }

    #[test]
    fn what_cannot_be_read_is_not_gone() {
        let gone = |number| is_gone(&io::Error::from_raw_os_error(number));
        assert!(gone(libc::ENOENT) && gone(libc::ESRCH));
        assert!(!gone(libc::EMFILE) && !gone(libc::EACCES));
    }

    #[test]
    fn a_living_process_is_not_exiting_and_one_that_is_gone_is() {
        let own = libc::pid_t::try_from(std::process::id()).unwrap();
        assert!(!is_exiting(own));
        assert!(is_exiting(libc::pid_t::MAX));
    }
}
