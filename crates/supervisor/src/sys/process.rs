//! System calls about processes, signals and limits.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::check;

/// What `fork` gives to each side.
pub(crate) enum Fork {
    /// In the parent: the child's process id.
    Parent(libc::pid_t),
    /// In the child.
    Child,
}

/// What there was to reap.
pub(crate) enum Waited {
    /// This process has ended, with this wait status.
    Ended(libc::pid_t, WaitStatus),
    /// There are children, and none has ended.
    Running,
    /// There is no child at all.
    NoChild,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitStatus {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// Splits this process. The caller must be single-threaded.
pub(crate) fn fork() -> io::Result<Fork> {
    // SAFETY: the supervisor has one thread, so the child's copy of the heap is consistent.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Ends this process at once, running no destructor.
pub(crate) fn exit_now(code: libc::c_int) -> ! {
    // SAFETY: never returns and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Strings for `execve`, with the null-terminated array of pointers that it wants.
pub(crate) struct StringArray {
    pointers: Vec<*const libc::c_char>,
    /// Keeps alive what `pointers` points to; never changed after construction.
    _strings: Vec<CString>,
}

impl StringArray {
    pub(crate) fn new(strings: Vec<CString>) -> Self {
        let pointers = strings
            .iter()
            .map(|string| string.as_ptr())
            .chain([ptr::null()])
            .collect();
        Self {
            pointers,
            _strings: strings,
        }
    }
}

/// Replaces this process by the program; returns only with an error.
pub(crate) fn execute(
    path: &CStr,
    arguments: &StringArray,
    environment: &StringArray,
) -> io::Error {
    // SAFETY: path and both arrays are null-terminated and outlive the call.
    unsafe {
        libc::execve(
            path.as_ptr(),
            arguments.pointers.as_ptr(),
            environment.pointers.as_ptr(),
        )
    };
    io::Error::last_os_error()
}

/// Starts a session of its own.
pub(crate) fn new_session() -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::setsid() }).map(drop)
}

/// Makes `target` a copy of `source` that survives exec.
pub(crate) fn duplicate_onto(source: BorrowedFd<'_>, target: libc::c_int) -> io::Result<()> {
    // SAFETY: used in the child only, for 0 to 3, which no owner there closes.
    check(unsafe { libc::dup2(source.as_raw_fd(), target) }).map(drop)
}

/// Makes the directory the working directory.
pub(crate) fn change_directory(directory: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::fchdir(directory.as_raw_fd()) }).map(drop)
}

/// Whether processes of the same user may look into this one (`PR_SET_DUMPABLE`).
pub(crate) fn set_dumpable(dumpable: bool) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe {
        libc::prctl(
            libc::PR_SET_DUMPABLE,
            libc::c_ulong::from(dumpable),
            0,
            0,
            0,
        )
    })
    .map(drop)
}

/// Sets the mask of permission bits that new files do not get.
pub(crate) fn set_umask(mask: libc::mode_t) {
    // SAFETY: no memory is passed; cannot fail.
    unsafe { libc::umask(mask) };
}

/// Makes this process yield to others of its control group.
pub(crate) fn lower_priority(nice: libc::c_int) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }).map(drop)
}

/// Ignores a signal.
pub(crate) fn ignore_signal(signal: libc::c_int) {
    // SAFETY: SIG_IGN is a valid disposition and runs no code.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Gives every signal its default action and blocks none.
pub(crate) fn reset_signals() -> io::Result<()> {
    // The kernel's own `struct sigaction`, all zero: default action, no flags, no mask. The C
    // library refuses to set the two signals that it keeps for itself, which may be inherited
    // as ignored.
    let default = [0_u64; 4];
    for signal in 1..=64_i32 {
        // SAFETY: `default` is as large as the kernel's structure, and a default action runs no
        // code; the signals that cannot be set give an error only.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                libc::c_long::from(signal),
                default.as_ptr(),
                ptr::null_mut::<u64>(),
                8_usize,
            )
        };
    }
    mask_signals(&[], libc::SIG_SETMASK).map(drop)
}

/// A descriptor that is readable when a child has ended; the signal itself is blocked.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    let set = mask_signals(&[libc::SIGCHLD], libc::SIG_BLOCK)?;
    // SAFETY: `set` is initialised.
    let fd = check(unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) })?;
    // SAFETY: the kernel has just opened it for us and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn mask_signals(signals: &[libc::c_int], how: libc::c_int) -> io::Result<libc::sigset_t> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set.
    let mut set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    };
    for &signal in signals {
        // SAFETY: `set` is initialised.
        check(unsafe { libc::sigaddset(&mut set, signal) })?;
    }
    // SAFETY: `set` is initialised; the old mask is not asked for.
    check(unsafe { libc::sigprocmask(how, &set, ptr::null_mut()) })?;
    Ok(set)
}

/// Kills every process that this one can see, except itself.
pub(crate) fn kill_all() {
    debug_assert_eq!(std::process::id(), 1);
    // SAFETY: no memory is passed. Fails only when nothing is left.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Kills one child that was not reaped yet.
pub(crate) fn kill_child(pid: libc::pid_t) {
    // SAFETY: no memory is passed; an unreaped child's id is not given to another process.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Reaps a child that has ended: this one, or any with -1. Never waits.
pub(crate) fn wait(pid: libc::pid_t) -> io::Result<Waited> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    match check(unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) }) {
        Ok(0) => Ok(Waited::Running),
        Ok(pid) if libc::WIFSIGNALED(status) => Ok(Waited::Ended(
            pid,
            WaitStatus::Signal(libc::WTERMSIG(status)),
        )),
        Ok(pid) => Ok(Waited::Ended(
            pid,
            WaitStatus::Code(libc::WEXITSTATUS(status)),
        )),
        Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(Waited::NoChild),
        Err(error) => Err(error),
    }
}

/// A resource limit to set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceLimit {
    pub(crate) resource: libc::__rlimit_resource_t,
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

impl ResourceLimit {
    /// Sets the limit, never above what is already in force: only root may raise one.
    pub(crate) fn apply(self) -> io::Result<()> {
        let mut present = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `present` is valid for the call.
        check(unsafe { libc::getrlimit(self.resource, &mut present) })?;
        let hard = self.hard.min(present.rlim_max);
        let wanted = libc::rlimit {
            rlim_cur: self.soft.min(hard),
            rlim_max: hard,
        };
        // SAFETY: `wanted` is valid for the call.
        check(unsafe { libc::setrlimit(self.resource, &wanted) }).map(drop)
    }
}

/// CPU time that all threads of a process have used, without that of its children.
pub(crate) fn cpu_time(pid: libc::pid_t) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: `clock` is valid for the call, which gives an error number and does not set one.
    match unsafe { libc::clock_getcpuclockid(pid, &mut clock) } {
        0 => {}
        number => return Err(io::Error::from_raw_os_error(number)),
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call.
    check(unsafe { libc::clock_gettime(clock, &mut time) })?;
    Ok(Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    ))
}

/// What all reaped children and their descendants used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChildUsage {
    pub(crate) cpu_microseconds: u64,
    pub(crate) peak_resident_bytes: u64,
}

/// `getrusage(RUSAGE_CHILDREN)`.
pub(crate) fn child_usage() -> io::Result<ChildUsage> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is valid for the call, which fills it if it succeeds.
    check(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) })?;
    // SAFETY: filled above.
    let usage = unsafe { usage.assume_init() };
    let microseconds =
        |time: libc::timeval| u64::try_from(time.tv_sec * 1_000_000 + time.tv_usec).unwrap_or(0);
    Ok(ChildUsage {
        cpu_microseconds: microseconds(usage.ru_utime) + microseconds(usage.ru_stime),
        peak_resident_bytes: u64::try_from(usage.ru_maxrss)
            .unwrap_or(0)
            .saturating_mul(1024),
    })
}
