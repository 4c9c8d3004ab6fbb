//! Owns every call of the C library that the standard library does not wrap, and with them all
//! `unsafe` of the crate. Each function is one system call with safe types around it; nothing in
//! here decides anything.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

pub(crate) mod process;
pub(crate) mod files;

/// The error of the last call if it gave -1.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// One line of a poll set; without a descriptor it is never ready.
pub(crate) fn interest(fd: Option<BorrowedFd<'_>>, events: libc::c_short) -> libc::pollfd {
    libc::pollfd {
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events,
        revents: 0,
    }
}

/// Waits until one of `set` is ready or the time is over; for ever without a time.
pub(crate) fn poll(set: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(|timeout| libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(timeout.subsec_nanos()),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    let count = set.len() as libc::nfds_t;
    // SAFETY: `set` and `timeout` are valid for the call; a null signal mask is allowed.
    let result = unsafe { libc::ppoll(set.as_mut_ptr(), count, timeout, ptr::null()) };
    match check(result) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            set.iter_mut().for_each(|line| line.revents = 0);
            Ok(())
        }
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

/// A pipe, closed on exec at both ends: reading end, writing end.
pub(crate) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: `ends` has room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: the kernel has just opened both for us and nobody else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// A copy of a descriptor under a number that is not below `lowest`, closed on exec.
pub(crate) fn duplicate_from(fd: BorrowedFd<'_>, lowest: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) })?;
    // SAFETY: the kernel has just opened it for us and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks for a pipe buffer of this many bytes.
pub(crate) fn set_pipe_size(pipe: BorrowedFd<'_>, bytes: libc::c_int) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) }).map(drop)
}

/// Makes reads and writes give `WouldBlock` instead of waiting.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is passed.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    // SAFETY: no memory is passed.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) }).map(drop)
}

/// Closes every descriptor from 3 on: whatever the engine left open is not for the program.
pub(crate) fn close_inherited() {
    // SAFETY: nothing in this process has opened a descriptor yet, so none is owned.
    if unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    // A kernel without close_range.
    for fd in 3..4096 {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}
