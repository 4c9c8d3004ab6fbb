//! Owns one running program from its start to its `Exited` message. It decides when the run is
//! over and why; the order at the end matters and is written down at [`Run::finish`].

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use fumehood_protocol::message::{EndedBy, Ending, Exited, Failed, Start, Started, Stream, Usage};
use fumehood_protocol::{FromSupervisor, MAX_PAYLOAD_BYTES};

use crate::error::Fatal;
use crate::outbox::Outbox;
use crate::output::{self, Pump};
use crate::preload::Interpreter;
use crate::program::{self, Command, Program};
use crate::reap::Children;
use crate::sys::process::{self, WaitStatus};
use crate::watch::Watch;
use crate::workspace::Workspace;

/// How often the fullest file systems are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Where a run is.
#[derive(Debug)]
enum Phase {
    /// The main process lives, as far as we know.
    Running { look_at: Instant },
    /// Every process was sent the signal; none of them is reaped yet but perhaps the main one.
    Killed {
        ended: Option<WaitStatus>,
        reason: EndedBy,
        wall: Duration,
    },
    /// Every process is gone; what they wrote is still in the pipes.
    Draining(Box<Over>),
}

/// What is known at the end.
#[derive(Debug, Clone, Copy)]
struct Over {
    ending: Ending,
    ended_by: EndedBy,
    wall: Duration,
    usage: Usage,
    survivors: u32,
}

/// A program that was started.
#[derive(Debug)]
pub(crate) struct Run {
    pid: libc::pid_t,
    started: Instant,
    /// `None`: so far away that the clock cannot say it.
    deadline: Option<Instant>,
    cancelled: bool,
    pumps: [Pump; 2],
    buffer: Vec<u8>,
    watch: Watch,
    phase: Phase,
}

impl Run {
    /// Starts the program in the workspace.
    pub(crate) fn start(request: &Start, workspace: &Workspace) -> Result<Self, Failed> {
        workspace
            .prepare()
            .map_err(program::failed("prepare the workspace"))?;
        let mut limits = program::file_limits(request.limits.files());
        limits.extend(request.limits.cpu_seconds.map(program::cpu_limit));
        let command = Command {
            arguments: &request.arguments,
            environment: &request.environment,
            limits,
            link: None,
        };
        let watch = Watch::begin(workspace, Duration::ZERO);
        let program = program::start(&command, workspace.as_fd())?;
        Ok(Self::new(request, program, watch))
    }

    /// Lets the interpreter that waits run the program: everything is counted from now on.
    pub(crate) fn resume(
        request: &Start,
        interpreter: Interpreter,
        workspace: &Workspace,
        children: &mut Children,
    ) -> Result<Self, Failed> {
        workspace
            .prepare()
            .map_err(program::failed("prepare the workspace"))?;
        let used = interpreter.cpu_time()?;
        let watch = Watch::begin(workspace, used);
        let program = interpreter.go(request, used, children)?;
        Ok(Self::new(request, program, watch))
    }

    fn new(request: &Start, program: Program, watch: Watch) -> Self {
        let tail = usize::try_from(request.output.tail_bytes)
            .unwrap_or(usize::MAX)
            .min(MAX_PAYLOAD_BYTES);
        let head = request.output;
        let wall = Duration::from_millis(request.limits.wall_milliseconds);
        Self {
            pid: program.pid,
            started: program.started,
            deadline: program.started.checked_add(wall),
            cancelled: false,
            pumps: [
                Pump::new(Stream::Stdout, program.stdout, head.stdout_head_bytes, tail),
                Pump::new(Stream::Stderr, program.stderr, head.stderr_head_bytes, tail),
            ],
            buffer: vec![0; output::BUFFER_BYTES],
            watch,
            phase: Phase::Running {
                look_at: program.started,
            },
        }
    }

    /// Says that the program runs.
    pub(crate) fn announcement(&self) -> FromSupervisor {
        FromSupervisor::Started(Started {
            pid: self.pid.unsigned_abs(),
        })
    }

    /// Ends the program at the next turn.
    pub(crate) fn cancel(&mut self) {
        self.cancelled = true;
    }

    /// What to poll for reading.
    pub(crate) fn pipes(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [&self.pumps[0], &self.pumps[1]].map(|pump| pump.readable().map(|pipe| pipe.as_fd()))
    }

    /// When to take a turn although nothing has happened.
    pub(crate) fn wake_at(&self, outbox: &Outbox) -> Option<Instant> {
        let phase = match self.phase {
            Phase::Running { look_at } => {
                [Some(look_at), self.deadline].into_iter().flatten().min()
            }
            Phase::Killed { .. } => Some(self.started),
            Phase::Draining(_) => None,
        };
        let pumps = self.pumps.iter().filter_map(|pump| pump.wake_at(outbox));
        pumps.chain(phase).min()
    }

    /// One turn: bounded work on each of the things that go on. Gives a message when everything
    /// has been killed, and the last one when the run is over.
    pub(crate) fn turn(
        &mut self,
        children: &mut Children,
        workspace: &Workspace,
        outbox: &mut Outbox,
        now: Instant,
    ) -> Result<Option<FromSupervisor>, Fatal> {
        let look_at = match self.phase {
            Phase::Running { look_at } => look_at,
            Phase::Killed {
                ended,
                reason,
                wall,
            } => {
                self.finish(children, ended, reason, wall)?;
                return self.drain(outbox, now, true);
            }
            Phase::Draining(_) => return self.drain(outbox, now, true),
        };
        if now >= look_at {
            self.watch.look(workspace);
            self.phase = Phase::Running {
                look_at: now + LOOK,
            };
        }
        let ended = children.reap(self.pid).map_err(Fatal::io("waitpid"))?;
        let reason = if self.cancelled {
            Some(EndedBy::Cancel)
        } else if self.deadline.is_some_and(|deadline| now >= deadline) {
            Some(EndedBy::Deadline)
        } else {
            None
        };
        if ended.is_none() && reason.is_none() {
            return self.drain(outbox, now, false);
        }
        // A last time, while files that only an open descriptor holds still exist.
        self.watch.look(workspace);
        process::kill_all();
        self.phase = Phase::Killed {
            ended,
            reason: reason.unwrap_or(EndedBy::Program),
            wall: self.started.elapsed(),
        };
        // Said before the reaping, which may last: the daemon must not take that for a program that
        // goes on, whatever ended it.
        Ok(Some(FromSupervisor::Killed))
    }

    /// Ends everything. Every process is killed and reaped, so that the usage is complete and the
    /// pipes have no writer; only then are the pipes emptied, so that not even the last byte of a
    /// program that ended at once is lost.
    fn finish(
        &mut self,
        children: &mut Children,
        ended: Option<WaitStatus>,
        reason: EndedBy,
        wall: Duration,
    ) -> Result<(), Fatal> {
        let (late, survivors) = children.end_all(self.pid).map_err(Fatal::io("waitpid"))?;
        // Not reaped within the bound: it is a survivor, ended or not.
        let status = ended.or(late).unwrap_or(WaitStatus::Signal(libc::SIGKILL));
        // A program that was over before our kill, or whose last act crossed it, ended itself.
        let ended_by = match (ended, status) {
            (None, WaitStatus::Signal(libc::SIGKILL)) => reason,
            _ => EndedBy::Program,
        };
        let ending = match status {
            WaitStatus::Code(code) => Ending::Code(code),
            WaitStatus::Signal(signal) => Ending::Signal(signal),
        };
        let usage = self.watch.usage(self.started + wall);
        self.phase = Phase::Draining(Box::new(Over {
            ending,
            ended_by,
            wall,
            usage,
            survivors,
        }));
        Ok(())
    }

    fn drain(
        &mut self,
        outbox: &mut Outbox,
        now: Instant,
        last: bool,
    ) -> Result<Option<FromSupervisor>, Fatal> {
        for pump in &mut self.pumps {
            pump.drain(&mut self.buffer, outbox, now, last)?;
        }
        let Phase::Draining(over) = &self.phase else {
            return Ok(None);
        };
        if !self.pumps.iter().all(Pump::is_finished) {
            return Ok(None);
        }
        let [stdout, stderr] = &self.pumps;
        Ok(Some(FromSupervisor::Exited(Box::new(Exited {
            ending: over.ending,
            ended_by: over.ended_by,
            wall_microseconds: u64::try_from(over.wall.as_micros()).unwrap_or(u64::MAX),
            stdout: stdout.totals(),
            stderr: stderr.totals(),
            usage: over.usage,
            survivors: over.survivors,
        }))))
    }
}
