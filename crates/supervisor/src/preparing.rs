//! Owns the time before `Start`: the input files that have come, and the stages of an interpreter
//! that is to wait.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use fumehood_protocol::message::{Failed, Preload, Preloaded, Start, WriteFile};

use crate::error::Fatal;
use crate::preload::{Interpreter, Progress};
use crate::reap::Children;
use crate::run::Run;
use crate::settings::Settings;
use crate::watch;
use crate::workspace::Workspace;

/// What is there before the program is started.
#[derive(Debug, Default)]
pub(crate) struct Preparing {
    stage: Stage,
    /// Whether the workspace has something of the daemon.
    written: bool,
}

/// Where an interpreter is that was asked for.
#[derive(Debug, Default)]
enum Stage {
    /// Nobody has asked.
    #[default]
    Unasked,
    /// It imports its modules.
    Importing(Box<Interpreter>),
    /// It waits.
    Waiting(Box<Interpreter>),
    /// It did not come to that, which was told.
    Without,
}

impl Preparing {
    /// Puts bytes into an input file.
    pub(crate) fn write(&mut self, file: &WriteFile, workspace: &Workspace) -> io::Result<()> {
        self.written = true;
        workspace.write(file)
    }

    /// Starts an interpreter; gives the answer if there is one already.
    pub(crate) fn preload(
        &mut self,
        request: Preload,
        settings: &Settings,
        workspace: &Workspace,
        now: Instant,
    ) -> Result<Option<Preloaded>, Fatal> {
        if !matches!(self.stage, Stage::Unasked) {
            return Err(Fatal::Protocol("a second Preload".to_owned()));
        }
        let started = Interpreter::start(request, settings, workspace, now);
        let (stage, answer) = match started {
            Ok(interpreter) => (Stage::Importing(Box::new(interpreter)), None),
            Err(reason) => (Stage::Without, Some(without(vec![reason]))),
        };
        self.stage = stage;
        Ok(answer)
    }

    fn interpreter(&self) -> Option<&Interpreter> {
        match &self.stage {
            Stage::Importing(interpreter) | Stage::Waiting(interpreter) => Some(interpreter),
            Stage::Unasked | Stage::Without => None,
        }
    }

    /// Whether the end of a child matters.
    pub(crate) fn has_interpreter(&self) -> bool {
        self.interpreter().is_some()
    }

    /// What to poll for reading.
    pub(crate) fn link(&self) -> Option<BorrowedFd<'_>> {
        self.interpreter().and_then(Interpreter::link)
    }

    /// When to take a turn although nothing has happened.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.interpreter().and_then(Interpreter::wake_at)
    }

    /// One turn; gives the answer to `Preload` when it is known.
    ///
    /// # Errors
    ///
    /// [`Fatal::Interpreter`] if this sandbox must not be used any more: its interpreter was lost
    /// after it was said to wait, or may have run a script that nobody had started.
    pub(crate) fn turn(
        &mut self,
        children: &mut Children,
        now: Instant,
    ) -> Result<Option<Preloaded>, Fatal> {
        match std::mem::take(&mut self.stage) {
            Stage::Importing(mut interpreter) => match interpreter.turn(children, now)? {
                Progress::Same => {
                    self.stage = Stage::Importing(interpreter);
                    Ok(None)
                }
                Progress::Ready => {
                    let problems = interpreter.take_problems();
                    let imported = interpreter.imported();
                    self.stage = Stage::Waiting(interpreter);
                    Ok(Some(preloaded(true, imported, problems)))
                }
                Progress::Lost(reason) if self.written && !interpreter.is_ours() => {
                    Err(Fatal::Interpreter(reason))
                }
                Progress::Lost(reason) => {
                    let mut problems = interpreter.take_problems();
                    problems.push(reason);
                    interpreter.end(children)?;
                    self.stage = Stage::Without;
                    Ok(Some(without(problems)))
                }
            },
            Stage::Waiting(mut interpreter) => match interpreter.turn(children, now)? {
                Progress::Same | Progress::Ready => {
                    self.stage = Stage::Waiting(interpreter);
                    Ok(None)
                }
                Progress::Lost(reason) => Err(Fatal::Interpreter(reason)),
            },
            stage @ (Stage::Unasked | Stage::Without) => {
                self.stage = stage;
                Ok(None)
            }
        }
    }

    /// Starts the program, by the interpreter if one waits.
    pub(crate) fn start(
        &mut self,
        request: &Start,
        workspace: &Workspace,
        children: &mut Children,
    ) -> Result<Result<Run, Failed>, Fatal> {
        match std::mem::take(&mut self.stage) {
            Stage::Waiting(interpreter) => {
                Ok(Run::resume(request, *interpreter, workspace, children))
            }
            Stage::Unasked | Stage::Without => Ok(Run::start(request, workspace)),
            Stage::Importing(_) => Err(Fatal::Protocol("Start before Preloaded".to_owned())),
        }
    }
}

fn without(problems: Vec<String>) -> Preloaded {
    preloaded(false, 0, problems)
}

fn preloaded(waiting: bool, imported: usize, problems: Vec<String>) -> Preloaded {
    Preloaded {
        waiting,
        imported: u32::try_from(imported).unwrap_or(u32::MAX),
        problems,
        peak_memory_bytes: watch::peak_memory_bytes(),
    }
}
