//! From a request to a sandbox that waits for its program: made, started, and found to be as it
//! was asked for. The one way that both a run in need and the pool take.

use std::os::fd::OwnedFd;
use std::time::Duration;

use fumehood_protocol::message::{FileLimits, Preload, Ready};
use fumehood_protocol::{FromSupervisor, ToSupervisor};
use tokio::time::timeout;
use tracing::warn;

use super::check::{self, Refusal};
use super::engine::{Created, Engine, EngineError, Sandbox};
use super::program::{self, ARGUMENTS};
use super::session::{Session, SessionError};
use super::slots::Slot;
use super::template::SandboxRequest;
use crate::execution::DatasetPin;
use crate::execution::isolation::Isolation;

/// From the start of a sandbox to its supervisor's first message.
const READY_BOUND: Duration = Duration::from_secs(30);

/// For an interpreter to import what it shall; the supervisor's own bound is shorter.
const PRELOAD_BOUND: Duration = Duration::from_secs(90);

/// For the supervisor to look at the data set: longer than a slow network disk.
const LOOK_BOUND: Duration = Duration::from_secs(10);

/// A sandbox whose supervisor waits for a program.
#[derive(Debug)]
pub struct ReadySandbox {
    /// What it was made from; its execution is the one that may use it.
    pub request: SandboxRequest,
    /// The container.
    pub sandbox: Box<dyn Sandbox>,
    /// The conversation with its supervisor.
    pub session: Session,
    /// Whether an interpreter waits in it.
    pub interpreter: Interpreter,
    /// What it really is, as its engine and its supervisor say.
    pub isolation: Isolation,
    /// Memory that it takes while it waits, if its supervisor could tell.
    pub memory_bytes: Option<u64>,
}

/// What waits in a sandbox besides the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interpreter {
    /// Nothing.
    None,
    /// An interpreter that has imported nothing.
    Waiting,
    /// An interpreter that has imported at least one library.
    Preloaded,
}

/// Why there is no sandbox to use. `Display` is for clients: no paths; sources go to the log.
#[derive(Debug, thiserror::Error)]
pub enum PreparationError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// It is not as it was asked for.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The stream broke.
    #[error("the sandbox could not be prepared")]
    Session(#[from] SessionError),
    /// Its supervisor said nothing.
    #[error("the supervisor did not report within {seconds} s of the sandbox's start")]
    NotReady {
        /// How long was waited.
        seconds: u64,
    },
    /// Its supervisor gave up, or said something else than was to be said.
    #[error("the program could not be started: {step} failed ({message})")]
    NotStarted {
        /// What failed.
        step: String,
        /// Why.
        message: String,
    },
}

/// Makes a sandbox and waits until it is ready. The slot, whose uid the request has, stays with it.
///
/// # Errors
///
/// [`PreparationError`]; what was made is removed.
pub async fn prepare(
    engine: &dyn Engine,
    request: &SandboxRequest,
    slot: Slot,
) -> Result<ReadySandbox, PreparationError> {
    let Created {
        mut sandbox,
        applied,
    } = engine.create(request).await?;
    sandbox.keep(slot);
    let mut session = Session::new(sandbox.start().await?);
    let ready = ready(&mut session).await?;
    check::check(&ready, &request.template, request.uid)?;
    Ok(ReadySandbox {
        request: request.clone(),
        sandbox,
        session,
        interpreter: Interpreter::None,
        isolation: Isolation {
            applied,
            found: check::found(&ready),
        },
        memory_bytes: None,
    })
}

async fn ready(session: &mut Session) -> Result<Ready, PreparationError> {
    if let FromSupervisor::Ready(ready) = answer(session, READY_BOUND).await? {
        Ok(ready)
    } else {
        Err(misunderstood("greeting"))
    }
}

impl ReadySandbox {
    /// Starts an interpreter that imports `modules` and waits. A module that is not there is
    /// skipped, and an interpreter that cannot be started is done without: neither is worth more
    /// than a line in the log, since the program may not need it.
    ///
    /// # Errors
    ///
    /// [`PreparationError`]: the sandbox cannot be used any more.
    pub async fn preload(&mut self, modules: &[String]) -> Result<(), PreparationError> {
        let limits = &self.request.template.limits;
        let message = ToSupervisor::Preload(Preload {
            arguments: ARGUMENTS.map(str::to_owned).to_vec(),
            environment: program::environment(limits),
            limits: FileLimits {
                file_size_bytes: program::file_size_bytes(limits),
                open_files: program::OPEN_FILES,
            },
            modules: modules.to_vec(),
        });
        self.session.send(&message).await?;
        let answer = answer(&mut self.session, PRELOAD_BOUND).await?;
        let FromSupervisor::Preloaded(preloaded) = answer else {
            return Err(misunderstood("preloading"));
        };
        self.memory_bytes = preloaded.peak_memory_bytes;
        for problem in &preloaded.problems {
            let image = &self.request.template.image.reference;
            warn!(%image, problem = %problem.escape_debug(), "preloading is not complete");
        }
        self.interpreter = match (preloaded.waiting, preloaded.imported > 0) {
            (false, _) => Interpreter::None,
            (true, false) => Interpreter::Waiting,
            (true, true) => Interpreter::Preloaded,
        };
        Ok(())
    }

    /// Has the supervisor of a sandbox that has waited say that it is still there, by a question
    /// that changes nothing.
    ///
    /// # Errors
    ///
    /// [`PreparationError`]: the sandbox cannot be used any more.
    pub async fn answers(&mut self) -> Result<(), PreparationError> {
        self.session.send(&ToSupervisor::Look).await?;
        if let FromSupervisor::Dataset(_) = answer(&mut self.session, LOOK_BOUND).await? {
            Ok(())
        } else {
            Err(misunderstood("looking at the data set"))
        }
    }

    /// Mounts a data set into the waiting sandbox and has the supervisor look at it.
    ///
    /// # Errors
    ///
    /// [`PreparationError`]: the sandbox cannot be used any more.
    pub async fn place_dataset(
        &mut self,
        directory: OwnedFd,
        pin: &DatasetPin,
    ) -> Result<(), PreparationError> {
        self.sandbox.place_dataset(directory).await?;
        self.session.send(&ToSupervisor::Look).await?;
        let answer = answer(&mut self.session, LOOK_BOUND).await?;
        let FromSupervisor::Dataset(found) = answer else {
            return Err(misunderstood("looking at the data set"));
        };
        let SandboxRequest { template, uid, .. } = &self.request;
        check::check_dataset(found, pin, template, *uid)?;
        self.isolation.found.dataset = check::found_dataset(found);
        Ok(())
    }
}

async fn answer(
    session: &mut Session,
    bound: Duration,
) -> Result<FromSupervisor, PreparationError> {
    match timeout(bound, session.receive()).await {
        Ok(Ok(FromSupervisor::Failed(failed))) => Err(PreparationError::NotStarted {
            step: failed.step,
            message: failed.message,
        }),
        Ok(Ok(message)) => Ok(message),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(PreparationError::NotReady {
            seconds: bound.as_secs(),
        }),
    }
}

fn misunderstood(step: &str) -> PreparationError {
    PreparationError::NotStarted {
        step: step.to_owned(),
        message: "the supervisor said something else".to_owned(),
    }
}
