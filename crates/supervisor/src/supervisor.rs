//! Owns the one loop: what each message of the daemon means now, and when the supervisor may leave.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use fumehood_protocol::message::{
    CollectAnew, CollectLimits, Failed, Preload, Ready, Start, WriteFile,
};
use fumehood_protocol::{FromSupervisor, ResumeToken, ToSupervisor};

use crate::error::Fatal;
use crate::inbox::Inbox;
use crate::leave::Leave;
use crate::outbox::Outbox;
use crate::preparing::Preparing;
use crate::program;
use crate::ready;
use crate::reap::Children;
use crate::settings::Settings;
use crate::state::State;
use crate::sys;
use crate::walk::{Step, Walk};
use crate::workspace::Workspace;

/// Bytes of the daemon read in one turn, and at once.
const READS_PER_TURN: usize = 16;
const READ_BYTES: usize = 64 << 10;

/// Steps of the walk in one turn.
const STEPS_PER_TURN: usize = 256;

/// How long to leave an input alone that has ended: a later daemon may attach to it.
const RETRY: Duration = Duration::from_millis(500);

/// How long a failure to prepare is kept; the hold of `Start` is not known by then.
const HOLD_BEFORE_START: Duration = Duration::from_secs(60);

/// The supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor {
    settings: Settings,
    workspace: Workspace,
    children: Children,
    input: File,
    output: File,
    inbox: Inbox,
    outbox: Outbox,
    state: State,
    token: Option<ResumeToken>,
    hold: Duration,
    /// When the program ended or the daemon last said something, whichever is later.
    held_since: Instant,
    /// The input has ended; look again then.
    input_closed_until: Option<Instant>,
}

impl Supervisor {
    pub(crate) fn new(
        settings: Settings,
        workspace: Workspace,
        signals: OwnedFd,
        facts: Ready,
    ) -> Result<Self, Fatal> {
        let now = Instant::now();
        let input = io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .map_err(Fatal::io("standard input"))?;
        let output = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(Fatal::io("standard output"))?;
        sys::set_nonblocking(input.as_fd()).map_err(Fatal::io("standard input"))?;
        sys::set_nonblocking(output.as_fd()).map_err(Fatal::io("standard output"))?;
        let mut outbox = Outbox::new(now);
        outbox.push(&FromSupervisor::Ready(facts))?;
        Ok(Self {
            settings,
            workspace,
            children: Children::new(signals),
            input: File::from(input),
            output: File::from(output),
            inbox: Inbox::default(),
            outbox,
            state: State::Preparing(Preparing::default()),
            token: None,
            hold: HOLD_BEFORE_START,
            held_since: now,
            input_closed_until: None,
        })
    }

    /// Goes on until the result has been taken, or nobody wants it. Whoever finds it ended has to know
    /// whether a program can have run: only `Start` brings a token, and it does before anything runs.
    pub(crate) fn run(mut self) -> Result<Leave, Fatal> {
        let ended = self.serve();
        if self.token.is_some() {
            return ended;
        }
        match ended {
            Ok(_) => Ok(Leave::NeverStarted),
            Err(fatal @ (Fatal::Frame(_) | Fatal::Protocol(_))) => {
                Err(Fatal::NeverStarted(Box::new(fatal)))
            }
            // What became of a script whose interpreter is lost nobody knows.
            Err(fatal) => Err(fatal),
        }
    }

    fn serve(&mut self) -> Result<Leave, Fatal> {
        loop {
            let now = Instant::now();
            self.outbox.flush(&self.output, now)?;
            self.wait(now)?;
            let now = Instant::now();
            if let Some(leave) = self.listen(now)? {
                return Ok(leave);
            }
            self.advance(now)?;
            if let Some(leave) = self.leave(now) {
                return Ok(leave);
            }
        }
    }

    /// Waits until something can be done. Nothing else in the supervisor waits, except the
    /// bounded moments of starting and ending the program.
    fn wait(&self, now: Instant) -> Result<(), Fatal> {
        let (children, readable) = match &self.state {
            State::Running(run) => (true, run.pipes()),
            State::Preparing(preparing) => (preparing.has_interpreter(), [preparing.link(), None]),
            // Whatever ends now is nobody's business any more.
            State::Holding | State::Collecting(_) | State::Finished { .. } => (false, [None, None]),
        };
        let signals = children.then_some(self.children.signals().as_fd());
        let [first, second] = readable;
        let reading = self.input_closed_until.is_none_or(|until| now >= until);
        let writing = self.outbox.wants_to_write(now);
        let mut set = [
            sys::interest(reading.then_some(self.input.as_fd()), libc::POLLIN),
            sys::interest(writing.then_some(self.output.as_fd()), libc::POLLOUT),
            sys::interest(signals, libc::POLLIN),
            sys::interest(first, libc::POLLIN),
            sys::interest(second, libc::POLLIN),
        ];
        let timeout = self.wake_at().map(|at| at.saturating_duration_since(now));
        sys::poll(&mut set, timeout).map_err(Fatal::io("poll"))
    }

    /// When to go on although nothing has happened.
    fn wake_at(&self) -> Option<Instant> {
        let state = match &self.state {
            State::Preparing(_) | State::Running(_) if self.children.pending() => {
                Some(self.held_since)
            }
            State::Preparing(preparing) => {
                let forgotten = self.held_since.checked_add(self.settings.preparing);
                [preparing.wake_at(), forgotten].into_iter().flatten().min()
            }
            State::Running(run) => run.wake_at(&self.outbox),
            State::Collecting(_) if self.outbox.has_room_for_artifact() => Some(self.held_since),
            State::Holding | State::Collecting(_) | State::Finished { .. } => {
                self.held_since.checked_add(self.hold)
            }
        };
        let links = [
            self.input_closed_until,
            self.outbox.wake_at(),
            self.inbox.wake_at(),
        ];
        links.into_iter().flatten().chain(state).min()
    }

    /// Takes in what the daemon has said.
    fn listen(&mut self, now: Instant) -> Result<Option<Leave>, Fatal> {
        // Something may have been held back, or just be complete.
        if let Some(leave) = self.obey_all(now)? {
            return Ok(Some(leave));
        }
        let mut buffer = [0; READ_BYTES];
        for _ in 0..READS_PER_TURN {
            if self.input_closed_until.is_some_and(|until| now < until) {
                break;
            }
            match self.input.read(&mut buffer) {
                // Nobody can attach again without a token, so nobody ever will.
                Ok(0) if matches!(self.state, State::Preparing(_)) => {
                    return Ok(Some(Leave::Unused));
                }
                Ok(0) => self.input_closed_until = Some(now + RETRY),
                Ok(count) => {
                    self.input_closed_until = None;
                    self.inbox.receive(&buffer[..count], now);
                    if let Some(leave) = self.obey_all(now)? {
                        return Ok(Some(leave));
                    }
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => {
                        self.input_closed_until = None;
                        break;
                    }
                    _ => return Err(Fatal::Io("reading from the daemon", error)),
                },
            }
        }
        Ok(None)
    }

    fn obey_all(&mut self, now: Instant) -> Result<Option<Leave>, Fatal> {
        while let Some(message) = self.inbox.next_message(now)? {
            self.held_since = now;
            if let Some(leave) = self.obey(message, now)? {
                return Ok(Some(leave));
            }
        }
        Ok(None)
    }

    fn obey(&mut self, message: ToSupervisor, now: Instant) -> Result<Option<Leave>, Fatal> {
        match message {
            ToSupervisor::Write(file) => self.write(&file, now)?,
            ToSupervisor::Preload(request) => self.preload(request, now)?,
            ToSupervisor::Look => self.look()?,
            ToSupervisor::Start(start) => self.start(&start, now)?,
            ToSupervisor::Ack(sequence) => self.outbox.acknowledge(sequence, now)?,
            ToSupervisor::Resume(sequence) => {
                let token = self.token.ok_or_else(|| misplaced("Resume before Start"))?;
                self.outbox.resume(sequence, token, now)?;
            }
            ToSupervisor::Cancel => match &mut self.state {
                State::Preparing(_) => return Ok(Some(Leave::Unused)),
                State::Running(run) => run.cancel(),
                State::Finished {
                    collected: false, ..
                } => return Ok(Some(Leave::Unused)),
                // It has crossed `Exited` on its way.
                State::Holding | State::Collecting(_) | State::Finished { .. } => {}
            },
            ToSupervisor::Collect(limits) => self.collect(limits)?,
            ToSupervisor::CollectAnew(request) => self.collect_anew(request)?,
        }
        Ok(None)
    }

    fn write(&mut self, file: &WriteFile, now: Instant) -> Result<(), Fatal> {
        let Some(preparing) = self.state.preparing("Write")? else {
            return Ok(());
        };
        match preparing.write(file, &self.workspace) {
            Ok(()) => Ok(()),
            Err(error) => self.fail(program::failed("write input file")(error), now),
        }
    }

    fn preload(&mut self, request: Preload, now: Instant) -> Result<(), Fatal> {
        let Some(preparing) = self.state.preparing("Preload")? else {
            return Ok(());
        };
        let answer = preparing.preload(request, &self.settings, &self.workspace, now)?;
        self.answer(answer.map(FromSupervisor::Preloaded))
    }

    fn look(&mut self) -> Result<(), Fatal> {
        if self.state.preparing("Look")?.is_none() {
            return Ok(());
        }
        let dataset = ready::dataset(&self.settings.dataset)?;
        self.answer(Some(FromSupervisor::Dataset(dataset)))
    }

    fn answer(&mut self, answer: Option<FromSupervisor>) -> Result<(), Fatal> {
        answer.map_or(Ok(()), |answer| self.outbox.push(&answer).map(drop))
    }

    fn start(&mut self, start: &Start, now: Instant) -> Result<(), Fatal> {
        match self.state {
            State::Preparing(_) => {}
            State::Finished {
                collected: false, ..
            } if self.token.is_none() => {}
            State::Running(_) | State::Holding | State::Collecting(_) | State::Finished { .. } => {
                return Err(misplaced("a second Start"));
            }
        }
        self.token = Some(start.resume_token);
        self.inbox.expect_token(start.resume_token);
        self.hold = Duration::from_millis(start.hold_milliseconds);
        let State::Preparing(preparing) = &mut self.state else {
            return Ok(());
        };
        match preparing.start(start, &self.workspace, &mut self.children)? {
            Ok(run) => {
                self.outbox.push(&run.announcement())?;
                self.state = State::Running(Box::new(run));
                Ok(())
            }
            Err(failure) => self.fail(failure, now),
        }
    }

    fn fail(&mut self, failure: Failed, now: Instant) -> Result<(), Fatal> {
        let last = self.outbox.push(&FromSupervisor::Failed(failure))?;
        self.held_since = now;
        self.state = State::Finished {
            last,
            collected: false,
        };
        Ok(())
    }

    fn collect(&mut self, limits: CollectLimits) -> Result<(), Fatal> {
        match self.state {
            State::Holding => {
                self.state = State::Collecting(Box::new(Walk::new(limits)));
                Ok(())
            }
            // A daemon that came back cannot know whether its first one arrived.
            State::Collecting(_)
            | State::Finished {
                collected: true, ..
            } => Ok(()),
            State::Preparing(_) | State::Running(_) | State::Finished { .. } => {
                Err(misplaced("Collect before Exited"))
            }
        }
    }

    /// Walks from the beginning for a daemon that has lost what an earlier one had gathered.
    fn collect_anew(&mut self, request: CollectAnew) -> Result<(), Fatal> {
        match self.state {
            State::Holding
            | State::Collecting(_)
            | State::Finished {
                collected: true, ..
            } => {
                self.outbox.push(&FromSupervisor::Anew(request.mark))?;
                self.state = State::Collecting(Box::new(Walk::new(request.limits)));
                Ok(())
            }
            State::Preparing(_) | State::Running(_) | State::Finished { .. } => {
                Err(misplaced("CollectAnew before Exited"))
            }
        }
    }

    /// Goes on with what the supervisor does by itself.
    fn advance(&mut self, now: Instant) -> Result<(), Fatal> {
        match &mut self.state {
            State::Preparing(preparing) => {
                let answer = preparing.turn(&mut self.children, now)?;
                self.answer(answer.map(FromSupervisor::Preloaded))?;
            }
            State::Running(run) => {
                let news = run.turn(&mut self.children, &self.workspace, &mut self.outbox, now)?;
                if let Some(message) = news {
                    self.outbox.push(&message)?;
                    if matches!(message, FromSupervisor::Exited(_)) {
                        self.held_since = now;
                        self.state = State::Holding;
                    }
                }
            }
            State::Collecting(walk) => {
                for _ in 0..STEPS_PER_TURN {
                    if !self.outbox.has_room_for_artifact() {
                        break;
                    }
                    match walk.step(&self.workspace) {
                        Step::Working => {}
                        Step::Message(message) => {
                            let sequence = self.outbox.push(&message)?;
                            if matches!(message, FromSupervisor::Done(_)) {
                                self.state = State::Finished {
                                    last: sequence,
                                    collected: true,
                                };
                                break;
                            }
                        }
                    }
                }
            }
            State::Holding | State::Finished { .. } => {}
        }
        Ok(())
    }

    fn leave(&self, now: Instant) -> Option<Leave> {
        if let State::Finished { last, .. } = self.state
            && self.outbox.is_acknowledged(last)
        {
            return Some(Leave::Acknowledged);
        }
        let (patience, leave) = match self.state {
            State::Preparing(_) => (self.settings.preparing, Leave::Unused),
            State::Running(_) => return None,
            State::Holding | State::Collecting(_) | State::Finished { .. } => {
                (self.hold, Leave::HoldExpired)
            }
        };
        let silence = now.saturating_duration_since(self.held_since);
        (silence >= patience).then_some(leave)
    }
}

fn misplaced(what: &str) -> Fatal {
    Fatal::Protocol(what.to_owned())
}
