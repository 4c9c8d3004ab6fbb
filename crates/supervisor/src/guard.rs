//! Owns what a program may not ask of the kernel for the supervisor's sake where no filter of the engine is
//! in force, that is, on gVisor; everywhere else the container's own (`images/seccomp.json`) has it, too. PID 1
//! and the program have one uid. Linux keeps PID 1 from signals of its own sandbox; the kernel of gVisor does
//! not. A program that could end PID 1 would have its end taken for a fault of the infrastructure.

use std::collections::BTreeMap;
use std::io;

use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq};
use seccompiler::{
    BackendError, BpfProgram, Error, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::ready;

/// The supervisor, as its program knows it.
const FIRST_PROCESS: u64 = 1;

/// Calls of other processes, and which argument is the process: every argument that is looked at has 32 bits
/// for the kernel, whatever the rest of its register holds.
const PROCESS: &[(libc::c_long, u8)] = &[
    (libc::SYS_kill, 0),
    (libc::SYS_tkill, 0),
    (libc::SYS_tgkill, 0),
    (libc::SYS_rt_sigqueueinfo, 0),
    (libc::SYS_rt_tgsigqueueinfo, 0),
    (libc::SYS_pidfd_open, 0),
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
    (libc::SYS_process_vm_writev, 0),
];

/// Calls about everything of a user, and ways to have a signal sent by the kernel: whose input and output is asynchronous names a process and
/// a signal, and a child names the signal of its end, which its parent's parent gets with `CLONE_PARENT`.
const NAMED: &[(libc::c_long, u8, u64)] = &[
    (libc::SYS_setpriority, 0, PRIO_USER),
    (libc::SYS_ioprio_set, 0, IOPRIO_WHO_USER),
    (libc::SYS_fcntl, 1, F_SETOWN),
    (libc::SYS_fcntl, 1, F_SETOWN_EX),
    (libc::SYS_fcntl, 1, F_SETSIG),
    (libc::SYS_ioctl, 1, FIOSETOWN),
    (libc::SYS_ioctl, 1, SIOCSPGRP),
];

// Of the kernel's interface, as a filter sees them.
const F_SETOWN: u64 = 8;
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
const CLONE_PARENT: u64 = 0x8000;
const PRIO_USER: u64 = 2;
const IOPRIO_WHO_USER: u64 = 3;
/// Marks the calls of x86-64's second interface, which a filter sees under other numbers.
const X32: libc::c_long = 0x4000_0000;

/// The filter, ready to be applied.
#[derive(Debug)]
pub(crate) struct Guard {
    refused: BpfProgram,
    /// Answered as by a kernel that does not know it: C libraries then use `clone`, whose flags a filter
    /// can look at.
    unknown: BpfProgram,
}

impl Guard {
    /// Everything that allocates; the rest is done between fork and exec. `None` where a filter is in force.
    pub(crate) fn if_needed() -> io::Result<Option<Self>> {
        if ready::is_filtered()? {
            return Ok(None);
        }
        Self::new().map(Some)
    }

    fn new() -> io::Result<Self> {
        let error = |error: BackendError| io::Error::other(error.to_string());
        Ok(Self {
            refused: filter(refusals().map_err(error)?, libc::EPERM).map_err(error)?,
            unknown: filter(numbers(libc::SYS_clone3, Vec::new()), libc::ENOSYS).map_err(error)?,
        })
    }

    /// For this process and everything that it starts, for ever.
    pub(crate) fn apply(&self) -> io::Result<()> {
        for program in [&self.refused, &self.unknown] {
            seccompiler::apply_filter(program).map_err(|error| match error {
                Error::Prctl(error) | Error::Seccomp(error) => error,
                _ => io::Error::from_raw_os_error(libc::EINVAL),
            })?;
        }
        Ok(())
    }
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn refusals() -> Result<Rules, BackendError> {
    let process = PROCESS
        .iter()
        .map(|&(call, index)| (call, index, Eq, FIRST_PROCESS));
    let named = NAMED
        .iter()
        .map(|&(call, index, value)| (call, index, Eq, value));
    let sibling = [(libc::SYS_clone, 0, MaskedEq(CLONE_PARENT), CLONE_PARENT)];
    // Whole: a child that is traced by its parent stops, which PID 1 may be.
    let mut all = numbers(libc::SYS_ptrace, Vec::new());
    for (call, index, is, value) in process.chain(named).chain(sibling) {
        let condition = SeccompCondition::new(index, Dword, is, value)?;
        for (number, rules) in numbers(call, vec![SeccompRule::new(vec![condition])?]) {
            all.entry(number).or_default().extend(rules);
        }
    }
    Ok(all)
}

/// The rules of a call, under each of its numbers.
fn numbers(call: libc::c_long, rules: Vec<SeccompRule>) -> Rules {
    let second = cfg!(target_arch = "x86_64").then_some((call | X32, rules.clone()));
    [(call, rules)].into_iter().chain(second).collect()
}

fn filter(rules: Rules, errno: i32) -> Result<BpfProgram, BackendError> {
    let refuse = SeccompAction::Errno(errno.unsigned_abs());
    let architecture = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refuse, architecture)?.try_into()
}
