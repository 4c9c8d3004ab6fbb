//! The talk with a supervisor from the input files to the end of the program.
//!
//! Enforces the deadline and the end on request from outside the sandbox (invariant 1): the
//! supervisor does so first, to keep what was written; if it is late, the caller destroys the
//! sandbox.

use std::pin::pin;
use std::time::Duration;

use fumehood_protocol::message::{Exited, OutputLimits, ProgramLimits, Start, Stream};
use fumehood_protocol::{FromSupervisor, REAPING_LIMIT, ResumeToken, ToSupervisor};
use jiff::Timestamp;
use rand::Rng as _;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::course::{Course, wall};
use super::handoff::{Keeper, Kept, SoFar};
use super::trouble::Trouble;
use crate::execution::output::{Head, TAIL_BYTES};
use crate::execution::spec::{ExecutionSpec, Limits, SCRIPT_NAME};
use crate::runs::events::RunEvent;
use crate::runs::service::Observer;
use crate::sandbox::program;
use crate::sandbox::session::{Session, SessionError};

/// From the last input file to the program's start.
const START_BOUND: Duration = Duration::from_secs(30);

/// What the supervisor has after a deadline or a cancellation before the sandbox is destroyed.
pub(super) const SUPERVISOR_GRACE: Duration = Duration::from_millis(800);

/// What it has to reap, empty the pipes and report after it said that everything was killed. Nothing of the program
/// runs by then, and from outside it would not go faster: the kernel needs the same work for it.
const REAPING_GRACE: Duration = REAPING_LIMIT.saturating_add(Duration::from_secs(3));

/// How long a supervisor keeps a result that nobody fetches.
pub(super) const HOLD: Duration = Duration::from_secs(600);

/// A program that was started, and what came of it.
#[derive(Debug)]
pub(super) struct Conversation {
    /// When the program was started.
    pub(super) started_at: Timestamp,
    /// How long it was followed, by the daemon's clock.
    pub(super) wall: Duration,
    /// The head of standard output.
    pub(super) stdout: Head,
    /// The head of standard error.
    pub(super) stderr: Head,
    /// How the talk ended.
    pub(super) end: TalkEnd,
}

impl Conversation {
    /// Whether it ended because its stream broke: whoever was talked to may still be there.
    pub(super) fn is_broken_off(&self) -> bool {
        matches!(&self.end, TalkEnd::Lost(error) if error.is_break())
    }
}

/// How the talk ended.
#[derive(Debug)]
pub(super) enum TalkEnd {
    /// With the supervisor's report; artifacts can be asked for.
    Reported(Box<Exited>),
    /// The supervisor did not end the program in time; wall clock in seconds.
    LateAtDeadline(f64),
    /// The supervisor did not end the program on request.
    LateOnCancel,
    /// The stream broke.
    Lost(SessionError),
}

/// Hands over the files. Nothing of the program runs by that.
pub(super) async fn hand_over(session: &mut Session, spec: &ExecutionSpec) -> Result<(), Trouble> {
    session
        .write_file(SCRIPT_NAME, spec.code.as_bytes())
        .await?;
    for (path, bytes) in &spec.input_files {
        session.write_file(path, bytes).await?;
    }
    Ok(())
}

/// Starts the program, for which everything was handed over. Once only, whatever comes of it: a
/// message that was not answered may have been heard all the same.
pub(super) async fn start(
    session: &mut Session,
    limits: &Limits,
    token: ResumeToken,
) -> Result<(), Trouble> {
    session
        .send(&ToSupervisor::Start(start_message(limits, token)))
        .await
        .map_err(Trouble::LostAtStart)?;
    started(timeout(START_BOUND, session.receive()).await)
}

/// Skips what was said before the program was started, of a talk that is repeated from its beginning.
pub(super) async fn catch_up(session: &mut Session) -> Result<(), Trouble> {
    let end = Instant::now() + START_BOUND;
    loop {
        match timeout_at(end, session.receive()).await {
            Ok(Ok(
                FromSupervisor::Ready(_)
                | FromSupervisor::Preloaded(_)
                | FromSupervisor::Dataset(_),
            )) => {}
            said => return started(said),
        }
    }
}

fn started(
    said: Result<Result<FromSupervisor, SessionError>, tokio::time::error::Elapsed>,
) -> Result<(), Trouble> {
    match said {
        Ok(Ok(FromSupervisor::Started(_))) => Ok(()),
        Ok(Ok(FromSupervisor::Failed(failed))) => Err(Trouble::NotStarted {
            step: failed.step,
            message: failed.message,
        }),
        Ok(Ok(_)) => Err(Trouble::NotStarted {
            step: "start".to_owned(),
            message: "the supervisor did not say that the program runs".to_owned(),
        }),
        Ok(Err(error)) => Err(Trouble::LostAtStart(error)),
        Err(_) => Err(Trouble::SilentAtStart {
            seconds: START_BOUND.as_secs(),
        }),
    }
}

/// A secret for one execution.
pub(super) fn new_token() -> ResumeToken {
    ResumeToken::new(rand::rng().random())
}

fn start_message(limits: &Limits, token: ResumeToken) -> Start {
    let wall = wall(limits);
    let sandbox_limits = limits.of_sandbox();
    Start {
        arguments: program::ARGUMENTS.map(str::to_owned).to_vec(),
        environment: program::environment(&sandbox_limits),
        limits: ProgramLimits {
            wall_milliseconds: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX).max(1),
            cpu_seconds: None,
            file_size_bytes: program::file_size_bytes(&sandbox_limits),
            open_files: program::OPEN_FILES,
        },
        output: OutputLimits {
            stdout_head_bytes: limits.max_stdout_size_bytes,
            stderr_head_bytes: limits.max_stderr_size_bytes,
            tail_bytes: TAIL_BYTES,
        },
        resume_token: token,
        hold_milliseconds: u64::try_from(HOLD.as_millis()).unwrap_or(u64::MAX),
    }
}

/// Follows a started program to its end.
pub(super) async fn follow(
    session: &mut Session,
    course: Course,
    cancel: &CancellationToken,
    observer: &dyn Observer,
    keeper: &dyn Keeper,
) -> Conversation {
    let start = Instant::now();
    let deadline = course.late_from(start);
    let Course {
        started_at,
        passed,
        stdout,
        stderr,
        left: _,
        grace: _,
    } = course;
    let mut follower = Follower {
        stdout,
        stderr,
        observer,
        keeper,
        passed,
    };
    let end = follower.run(session, start, deadline, cancel).await;
    Conversation {
        started_at,
        wall: passed + start.elapsed(),
        stdout: follower.stdout,
        stderr: follower.stderr,
        end,
    }
}

/// How long the supervisor still has, and what it has missed when that is over.
#[derive(Debug, Clone, Copy)]
struct Patience {
    until: Instant,
    because: Because,
    may_cancel: bool,
    killed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Because {
    Deadline,
    Cancel,
}

impl Patience {
    fn until_the_deadline(deadline: Instant) -> Self {
        Self {
            until: deadline,
            because: Because::Deadline,
            may_cancel: true,
            killed: false,
        }
    }

    /// A request never puts the deadline off.
    fn cancelled(&mut self, now: Instant) {
        self.may_cancel = false;
        let end = now + SUPERVISOR_GRACE;
        if end <= self.until {
            self.until = end;
            self.because = Because::Cancel;
        }
    }

    /// Once only: a supervisor that lies gains no more than this.
    fn killed(&mut self, now: Instant) {
        self.may_cancel = false;
        self.killed = true;
        self.until = now + REAPING_GRACE;
    }
}

struct Follower<'a> {
    stdout: Head,
    stderr: Head,
    observer: &'a dyn Observer,
    keeper: &'a dyn Keeper,
    /// Wall clock before it was followed.
    passed: Duration,
}

impl Follower<'_> {
    async fn run(
        &mut self,
        session: &mut Session,
        start: Instant,
        deadline: Instant,
        cancel: &CancellationToken,
    ) -> TalkEnd {
        let mut patience = Patience::until_the_deadline(deadline);
        loop {
            let until = patience.until;
            // The clock and the request come first: a flood of messages must not starve them.
            let message = tokio::select! {
                biased;
                () = sleep_until(until) => {
                    return match patience.because {
                        Because::Deadline => TalkEnd::LateAtDeadline((self.passed + start.elapsed()).as_secs_f64()),
                        Because::Cancel => TalkEnd::LateOnCancel,
                    };
                }
                () = cancel.cancelled(), if patience.may_cancel => {
                    patience.cancelled(Instant::now());
                    // A supervisor that does not read must not hold up the end: it is late then.
                    let sent = timeout_at(patience.until, session.send(&ToSupervisor::Cancel));
                    if let Ok(Err(error)) = sent.await {
                        return TalkEnd::Lost(error);
                    }
                    continue;
                }
                message = session.receive() => message,
            };
            match message {
                Ok(FromSupervisor::Output(output)) => {
                    self.take_output(output.stream, &output.bytes)
                }
                Ok(FromSupervisor::Exited(exited)) => return TalkEnd::Reported(exited),
                Ok(FromSupervisor::Killed) if !patience.killed => patience.killed(Instant::now()),
                Ok(other) => return TalkEnd::Lost(unexpected(&other)),
                Err(error) => return TalkEnd::Lost(error),
            }
            // Cut short only where the talk ends at once: half an acknowledgement is no message.
            let until = patience.until;
            let mut acknowledged = pin!(timeout_at(until, self.acknowledge(session)));
            let outcome = tokio::select! {
                biased;
                outcome = &mut acknowledged => outcome,
                () = cancel.cancelled(), if patience.may_cancel => {
                    // A supervisor that does not read this does not read a request either.
                    match timeout(SUPERVISOR_GRACE, acknowledged).await {
                        Ok(outcome) => outcome,
                        Err(_) => return TalkEnd::LateOnCancel,
                    }
                }
            };
            if let Ok(Err(error)) = outcome {
                return TalkEnd::Lost(error);
            }
        }
    }

    /// What is acknowledged is not sent again: it is put away before.
    async fn acknowledge(&self, session: &mut Session) -> Result<(), SessionError> {
        if session.has_to_acknowledge() {
            let progress = SoFar {
                received: session.received(),
                stdout: Kept::of(&self.stdout),
                stderr: Kept::of(&self.stderr),
                exited: None,
            };
            self.keeper.keep(progress).await;
        }
        session.acknowledge().await
    }

    fn take_output(&mut self, stream: Stream, bytes: &[u8]) {
        let head = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let kept = head.push(bytes);
        if !kept.is_empty() {
            self.observer.observe(RunEvent::Output {
                stream,
                bytes: kept.to_vec(),
            });
        }
    }
}

fn unexpected(message: &FromSupervisor) -> SessionError {
    SessionError::OutOfPlace(match message {
        FromSupervisor::Ready(_) => "Ready",
        FromSupervisor::Preloaded(_) => "Preloaded",
        FromSupervisor::Dataset(_) => "Dataset",
        FromSupervisor::Started(_) => "Started",
        FromSupervisor::Output(_) => "Output",
        FromSupervisor::Killed => "Killed",
        FromSupervisor::Exited(_) => "Exited",
        FromSupervisor::Failed(_) => "Failed",
        FromSupervisor::Anew(_) => "Anew",
        FromSupervisor::Entry(_) => "Entry",
        FromSupervisor::Chunk(_) => "Chunk",
        FromSupervisor::EntryEnd => "EntryEnd",
        FromSupervisor::Skipped(_) => "Skipped",
        FromSupervisor::Done(_) => "Done",
    })
}

#[cfg(test)]
mod tests;
