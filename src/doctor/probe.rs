//! One program of the doctor in one sandbox: prepared, launched, followed to its end, and what it
//! left collected. Judges nothing.
//!
//! Goes the way of any program, except that a sandbox whose supervisor finds something missing is
//! not refused: that it is looked at is the point, and nothing of a client is in it.

use std::time::Duration;

use fumehood_protocol::message::{
    CollectLimits, Exited, OutputLimits, ProgramLimits, Ready, Start, Stream,
};
use fumehood_protocol::{FromSupervisor, ResumeToken, ToSupervisor};
use rand::Rng as _;
use serde::Serialize;
use tokio::time::{Instant, timeout, timeout_at};

use super::DoctorError;
use super::facts::Collected;
use crate::execution::spec::SCRIPT_NAME;
use crate::sandbox::program::{self, ARGUMENTS};
use crate::sandbox::session::{Session, SessionError};
use crate::sandbox::slots::Slot;
use crate::sandbox::template::SandboxRequest;
use crate::sandbox::{Engine, Sandbox};
use crate::telemetry::log_chain;

/// What every program of the doctor finds beside itself.
const FILES: [(&str, &str); 6] = [
    (
        "doctor/__init__.py",
        include_str!("../../images/doctor/__init__.py"),
    ),
    (
        "doctor/identity.py",
        include_str!("../../images/doctor/identity.py"),
    ),
    (
        "doctor/kernel.py",
        include_str!("../../images/doctor/kernel.py"),
    ),
    (
        "doctor/files.py",
        include_str!("../../images/doctor/files.py"),
    ),
    (
        "doctor/resources.py",
        include_str!("../../images/doctor/resources.py"),
    ),
    (
        "doctor/network.py",
        include_str!("../../images/doctor/network.py"),
    ),
];

/// Where a program of the doctor finds what it is to try.
const SETTINGS_NAME: &str = "doctor/settings.json";

/// From the start of a sandbox to its supervisor's first message.
const READY_BOUND: Duration = Duration::from_secs(30);

/// From the program to its start.
const START_BOUND: Duration = Duration::from_secs(30);

/// What the end may take beyond the program's own limit.
const END_ALLOWANCE: Duration = Duration::from_secs(20);

/// The whole of collecting.
const COLLECT_BOUND: Duration = Duration::from_secs(20);

/// Bytes kept of standard error.
const STDERR_BYTES: u64 = 16 << 10;

/// How long a supervisor keeps a result that nobody fetches.
const HOLD: Duration = Duration::from_secs(30);

/// Cap on what comes out of a sandbox: less than the large file of `files.py`.
pub(super) const COLLECT_BYTES: u64 = 1 << 20;

/// The programs of the doctor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// Looks at everything.
    Observe,
    /// Wants to outlive its limits.
    Endure,
    /// Takes more memory than there is.
    Exhaust,
}

impl Program {
    fn text(self) -> &'static str {
        match self {
            Self::Observe => include_str!("../../images/doctor/probe.py"),
            Self::Endure => include_str!("../../images/doctor/endure.py"),
            Self::Exhaust => include_str!("../../images/doctor/exhaust.py"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Observe => "probe",
            Self::Endure => "neighbour",
            Self::Exhaust => "memory",
        }
    }
}

/// What a program of the doctor is told.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Settings {
    /// Whether to look at what takes long.
    pub(super) thorough: bool,
    /// Whether the probe itself takes more memory than there is, at its end.
    pub(super) exhaust_memory: bool,
    /// The memory limit.
    pub(super) memory_bytes: u64,
    /// The limit on processes.
    pub(super) processes: u64,
    /// A file of the host.
    pub(super) canary: String,
    /// Where the neighbour listens.
    pub(super) neighbour: String,
    /// How much the neighbour prints.
    pub(super) flood_bytes: u64,
}

/// Bounds of one program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Its wall clock.
    pub(super) wall: Duration,
    /// Bytes forwarded of its standard output.
    pub(super) stdout_bytes: u64,
}

/// A sandbox with a program of the doctor.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) request: SandboxRequest,
    pub(super) ready: Ready,
    program: Program,
    bounds: Bounds,
    sandbox: Box<dyn Sandbox>,
    session: Session,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    received: u64,
}

/// How a program of the doctor ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The supervisor's report, unless the sandbox ended as a whole.
    pub(super) exited: Option<Box<Exited>>,
    /// What it printed.
    pub(super) stdout: String,
    /// What it complained of.
    pub(super) stderr: String,
    /// Bytes of standard output that reached the daemon, whether kept or not.
    pub(super) received: u64,
}

impl Subject {
    /// Makes the sandbox and puts the program into it.
    pub(super) async fn prepare(
        engine: &dyn Engine,
        (request, slot): (SandboxRequest, Slot),
        (program, bounds): (Program, Bounds),
        settings: &Settings,
    ) -> Result<Self, DoctorError> {
        let mut sandbox = engine.create(&request).await?.sandbox;
        sandbox.keep(slot);
        let mut session = Session::new(sandbox.start().await?);
        let ready = match timeout(READY_BOUND, session.receive()).await {
            Ok(Ok(FromSupervisor::Ready(ready))) => ready,
            Ok(Ok(_)) => return Err(failed(program, "its supervisor said something else")),
            Ok(Err(error)) => return Err(DoctorError::talk(program.name(), error)),
            Err(_) => return Err(failed(program, "its supervisor said nothing")),
        };
        let mut subject = Self {
            request,
            ready,
            program,
            bounds,
            sandbox,
            session,
            stdout: Vec::new(),
            stderr: Vec::new(),
            received: 0,
        };
        let settings = serde_json::to_string(settings).unwrap_or_default();
        let script = (SCRIPT_NAME, program.text());
        let own = [script, (SETTINGS_NAME, settings.as_str())];
        for (path, text) in own.into_iter().chain(FILES) {
            let written = subject.session.write_file(path, text.as_bytes()).await;
            written.map_err(|error| DoctorError::talk(program.name(), error))?;
        }
        Ok(subject)
    }

    /// Starts the program.
    pub(super) async fn launch(&mut self) -> Result<(), DoctorError> {
        let start = ToSupervisor::Start(self.start_message());
        let sent = self.session.send(&start).await;
        sent.map_err(|error| DoctorError::talk(self.program.name(), error))?;
        match timeout(START_BOUND, self.session.receive()).await {
            Ok(Ok(FromSupervisor::Started(_))) => Ok(()),
            Ok(Ok(FromSupervisor::Failed(failure))) => Err(failed(
                self.program,
                &format!("{} failed ({})", failure.step, failure.message),
            )),
            Ok(Ok(_)) => Err(failed(self.program, "its supervisor said something else")),
            Ok(Err(error)) => Err(DoctorError::talk(self.program.name(), error)),
            Err(_) => Err(failed(self.program, "it was not started in time")),
        }
    }

    fn start_message(&self) -> Start {
        let limits = &self.request.template.limits;
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Start {
            arguments: ARGUMENTS.map(str::to_owned).to_vec(),
            environment: program::environment(limits),
            limits: ProgramLimits {
                wall_milliseconds: milliseconds(self.bounds.wall),
                cpu_seconds: None,
                file_size_bytes: program::file_size_bytes(limits),
                open_files: program::OPEN_FILES,
            },
            output: OutputLimits {
                stdout_head_bytes: self.bounds.stdout_bytes,
                stderr_head_bytes: STDERR_BYTES,
                tail_bytes: 1024,
            },
            resume_token: ResumeToken::new(rand::rng().random()),
            hold_milliseconds: milliseconds(HOLD),
        }
    }

    /// Waits until the program has printed a line.
    pub(super) async fn first_line(&mut self) -> Result<String, DoctorError> {
        let until = Instant::now() + START_BOUND;
        loop {
            if let Some(end) = self.stdout.iter().position(|&byte| byte == b'\n') {
                return Ok(String::from_utf8_lossy(&self.stdout[..end]).into_owned());
            }
            match self.step(until).await {
                Ok(None) => {}
                Ok(Some(_)) => return Err(failed(self.program, &self.complaint())),
                Err(error) => return Err(error),
            }
        }
    }

    /// Follows the program to its end; a sandbox that ends as a whole is an end, too.
    pub(super) async fn follow(&mut self) -> Result<Ended, DoctorError> {
        let until = Instant::now() + self.bounds.wall + END_ALLOWANCE;
        let exited = loop {
            match self.step(until).await {
                Ok(None) => {}
                Ok(Some(exited)) => break Some(exited),
                Err(DoctorError::Talk { .. }) => break None,
                Err(error) => return Err(error),
            }
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Ended {
            exited,
            stdout: text(&self.stdout),
            stderr: text(&self.stderr),
            received: self.received,
        })
    }

    /// Takes one message; gives the report if it was that.
    async fn step(&mut self, until: Instant) -> Result<Option<Box<Exited>>, DoctorError> {
        let name = self.program.name();
        let talk = |error: SessionError| DoctorError::talk(name, error);
        match timeout_at(until, self.session.receive()).await {
            Err(_) => return Err(failed(self.program, "it did not end in time")),
            Ok(Err(error)) => return Err(talk(error)),
            Ok(Ok(FromSupervisor::Exited(exited))) => return Ok(Some(exited)),
            Ok(Ok(FromSupervisor::Killed)) => {}
            Ok(Ok(FromSupervisor::Output(output))) => match output.stream {
                Stream::Stdout => {
                    let length = u64::try_from(output.bytes.len()).unwrap_or(u64::MAX);
                    self.received = self.received.saturating_add(length);
                    keep(&mut self.stdout, &output.bytes, self.bounds.stdout_bytes);
                }
                Stream::Stderr => {
                    keep(&mut self.stderr, &output.bytes, STDERR_BYTES);
                }
            },
            Ok(Ok(_)) => return Err(failed(self.program, "its supervisor said something else")),
        }
        self.session.acknowledge().await.map_err(talk)?;
        Ok(None)
    }

    fn complaint(&self) -> String {
        let stderr = String::from_utf8_lossy(&self.stderr);
        let last = stderr.lines().last().unwrap_or("it ended early");
        last.to_owned()
    }

    /// What the program left in its workspace; after its end only.
    pub(super) async fn collect(&mut self, survivors: u32) -> Result<Collected, DoctorError> {
        let name = self.program.name();
        let talk = |error: SessionError| DoctorError::talk(name, error);
        let limits = CollectLimits {
            total_bytes: COLLECT_BYTES,
            files: 100,
            entries: 1000,
            depth: 8,
            path_bytes: 1024,
            ignore: vec![SCRIPT_NAME.to_owned()],
        };
        let asked = self.session.send(&ToSupervisor::Collect(limits)).await;
        asked.map_err(talk)?;
        let mut collected = Collected {
            survivors,
            cap_bytes: COLLECT_BYTES,
            ..Collected::default()
        };
        let until = Instant::now() + COLLECT_BOUND;
        loop {
            match timeout_at(until, self.session.receive()).await {
                Err(_) => return Err(failed(self.program, "collecting took too long")),
                Ok(Err(error)) => return Err(talk(error)),
                Ok(Ok(message)) => {
                    if matches!(message, FromSupervisor::Done(_)) {
                        return Ok(collected);
                    }
                    note(&mut collected, message);
                }
            }
            self.session.acknowledge().await.map_err(talk)?;
        }
    }

    /// Whether the engine saw the kernel kill for memory.
    pub(super) async fn memory_kill_seen(&mut self) -> bool {
        self.sandbox.memory_kill_seen().await.unwrap_or_default()
    }

    /// Removes the sandbox.
    pub(super) async fn remove(self) {
        if let Err(error) = self.sandbox.destroy().await {
            log_chain(
                "a sandbox of the doctor could not be removed at once; it will be",
                &error,
            );
        }
    }
}

fn keep(kept: &mut Vec<u8>, bytes: &[u8], most: u64) {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let room = most.saturating_sub(kept.len()).min(bytes.len());
    kept.extend_from_slice(&bytes[..room]);
}

fn note(collected: &mut Collected, message: FromSupervisor) {
    let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    if let FromSupervisor::Entry(entry) = message {
        collected.bytes = collected.bytes.saturating_add(entry.size);
        if !entry.is_directory {
            collected.files.push(text(&entry.path));
        }
    } else if let FromSupervisor::Skipped(skipped) = message {
        let path = text(&skipped.path);
        // An entry that could not be delivered whole counts for nothing.
        if collected.files.last() == Some(&path) {
            collected.files.pop();
            collected.bytes = collected.bytes.saturating_sub(skipped.size);
        }
        let reason = format!("{:?}", skipped.reason);
        collected.skipped.insert(path, reason);
    }
}

fn failed(program: Program, words: &str) -> DoctorError {
    DoctorError::failed(program.name(), words)
}
