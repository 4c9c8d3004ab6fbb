//! What the daemon needs of a container engine, and nothing more: a duplex byte stream to a fresh
//! container, its end, and a list of what an earlier daemon left behind.

use std::os::fd::OwnedFd;
use std::pin::Pin;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use tokio::io::AsyncWrite;

use super::health::EngineHealth;
use super::slots::Slot;
use super::template::{Image, SandboxRequest};
use crate::execution::isolation::Applied;
use crate::ids::ExecutionId;

/// A container engine.
#[async_trait]
pub trait Engine: Send + Sync + std::fmt::Debug {
    /// Asks whether the engine answers, and what it is.
    async fn describe(&self) -> Result<EngineDescription, EngineError>;

    /// Finds an installed image. Never fetches one (security.md row 31).
    async fn image(&self, reference: &str) -> Result<Image, EngineError>;

    /// Creates a sandbox and compares what the engine made of it with what was asked for
    /// (invariant 6). The container's name follows from the execution: a second creation for the
    /// same one fails.
    async fn create(&self, request: &SandboxRequest) -> Result<Created, EngineError>;

    /// Whether this daemon may mount data sets into sandboxes that run already
    /// ([`Sandbox::place_dataset`]), under this runtime; `None` is the engine's default one.
    async fn places_datasets(&self, runtime: Option<&str>) -> bool;

    /// Destroys whatever an execution left behind; a missing container is no error.
    async fn destroy(&self, execution: &ExecutionId) -> Result<(), EngineError>;

    /// An earlier daemon may have asked for a sandbox for this execution and not have heard the answer: the
    /// engine may make it any moment. Whatever appears is removed, also if it is in the way of another one
    /// for the same execution.
    fn may_appear(&self, execution: &ExecutionId);

    /// The executions of this daemon's instance that have a container, in any state.
    async fn leftovers(&self) -> Result<Vec<Leftover>, EngineError>;

    /// What is left of an execution's sandbox. Another instance's is none.
    async fn remains(&self, execution: &ExecutionId) -> Result<Remains, EngineError>;

    /// From now on sandboxes that may outlive the daemon ([`Sandbox::outlive`]) stay as they are when
    /// they are dropped, for the next one to find.
    fn leave_behind(&self);

    /// How well it is. Asks nobody. An engine without calls to others is always well.
    fn health(&self) -> EngineHealth {
        EngineHealth::default()
    }

    /// Waits until a sandbox can be made on it, or is worth trying.
    async fn usable(&self) {}
}

/// What is left of a sandbox that an earlier daemon made.
#[derive(Debug)]
pub enum Remains {
    /// There is no container.
    Missing,
    /// There is one, and nothing runs in it.
    Stopped {
        /// Whether it ended when the kernel killed something in it for memory, as far as the engine knows.
        memory_kill: bool,
        /// Whether its supervisor said at its end that it had not been told to start a program.
        never_started: bool,
    },
    /// Its supervisor runs; [`Sandbox::attach`] leads to it. Dropping it removes it.
    Running(Box<dyn Sandbox>),
}

/// A container that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Whose it is.
    pub execution: ExecutionId,
    /// Whether this very process made it, and not one before.
    pub is_ours: bool,
}

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineDescription {
    /// Such as `Docker Engine`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the interface that was agreed on.
    pub api_version: String,
}

/// A sandbox that was created, and what its engine says that it made.
#[derive(Debug)]
pub struct Created {
    /// The sandbox.
    pub sandbox: Box<dyn Sandbox>,
    /// Its settings, as they were read back.
    pub applied: Applied,
}

/// A sandbox that was created and not yet started.
///
/// Dropping it hands it to the engine's reaper; [`Sandbox::destroy`] is the orderly way.
#[async_trait]
pub trait Sandbox: Send + Sync + std::fmt::Debug {
    /// Keeps a slot from others until the sandbox is gone, however long removing it takes.
    fn keep(&mut self, slot: Slot);

    /// Attaches to the supervisor's streams and starts it, in this order, so that no byte is lost.
    async fn start(&mut self) -> Result<Channel, EngineError>;

    /// Says that the next daemon can go on with it: what it needs for that is put away.
    fn outlive(&mut self);

    /// Whether its supervisor runs; [`EngineError::Vanished`] if the sandbox is not there any more, and
    /// [`EngineError::Paused`] if it will answer only later.
    async fn is_running(&self) -> Result<bool, EngineError>;

    /// Whether its supervisor has ended, and said so by its exit code that it had not been told to start a
    /// program.
    async fn has_never_started(&self) -> Result<bool, EngineError>;

    /// Attaches to the streams of a supervisor that runs already. What it sent while nobody was
    /// attached is gone; it sends that again when it is asked to.
    async fn attach(&mut self) -> Result<Channel, EngineError>;

    /// Mounts a directory at the place of the data set of a started sandbox whose template is
    /// [`DatasetMount::Place`](super::template::DatasetMount::Place): read-only before anything in
    /// the sandbox can see it, without what is mounted below it. What is mounted is this very
    /// directory, whatever its path leads to by now. Once only.
    async fn place_dataset(&mut self, directory: OwnedFd) -> Result<(), EngineError>;

    /// Takes back the bound on CPU time. Only for the end of a program: among many processes that use
    /// a small share up, the supervisor gets no turn for seconds, not even to kill them.
    async fn unthrottle(&self) -> Result<(), EngineError>;

    /// Ends everything that runs in the sandbox, at once. [`EngineError::NotEnded`] if the
    /// engine is there and does not confirm it; after other errors it may be away.
    async fn kill(&self) -> Result<(), EngineError>;

    /// Whether the engine saw the kernel kill something in the sandbox for memory; where nothing runs in it
    /// any more, whether it ended with that.
    async fn memory_kill_seen(&self) -> Result<bool, EngineError>;

    /// Ends everything in the sandbox and removes it.
    async fn destroy(self: Box<Self>) -> Result<(), EngineError>;

    /// Like [`Sandbox::destroy`], but does not wait for the removal unless too many others are
    /// waited for already. For sandboxes in which nothing runs any more.
    async fn retire(self: Box<Self>) -> Result<(), EngineError>;

    /// Whether [`Sandbox::retire`] would wait for the removal, because too many others are waited for
    /// already.
    fn removal_waits(&self) -> bool;

    /// Leaves a sandbox in which something may still run, because the engine did not confirm its
    /// end, to whoever tries on. Its slot stays with it until it is seen to be gone. Never waits.
    fn quarantine(self: Box<Self>);
}

/// The two byte streams to a supervisor.
pub struct Channel {
    /// What the supervisor sends.
    pub reader: Pin<Box<dyn Stream<Item = Result<Bytes, EngineError>> + Send>>,
    /// What is sent to it.
    pub writer: Pin<Box<dyn AsyncWrite + Send>>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Channel")
    }
}

/// A failing engine. `Display` is for clients: it names the remedy and holds no path; the source
/// has the details and goes to the log.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Nobody answers at the engine's address.
    #[error(
        "Docker Engine is not reachable: start it (for example with `systemctl start docker`) and \
         check that this user may use its socket"
    )]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The engine did not answer in time.
    #[error(
        "the container engine did not answer within {seconds} s when asked to {call}: check that it \
         is well (for example with `systemctl status docker`) and submit the run again"
    )]
    TimedOut {
        /// What it was asked for.
        call: &'static str,
        /// The bound of the call.
        seconds: u64,
    },
    /// The connection broke before the engine had answered: what became of the call is not known.
    #[error(
        "the connection to the container engine broke when it was asked to {call}: check that it \
         is well (for example with `systemctl status docker`) and submit the run again"
    )]
    Lost {
        /// What it was asked for.
        call: &'static str,
        /// How it broke.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The engine was not asked, because calls of this kind have failed lately.
    #[error("{reason}")]
    Resting {
        /// How they failed.
        reason: String,
    },
    /// The image is not installed.
    #[error(
        "the image {reference} is not installed: make it with `fumehood image build` or install it on the engine"
    )]
    ImageMissing {
        /// As configured.
        reference: String,
    },
    /// The image cannot be used.
    #[error("the image {reference} cannot be used: {reason}")]
    ImageRefused {
        /// As configured.
        reference: String,
        /// Why, with the remedy.
        reason: String,
    },
    /// The runtime is not installed.
    #[error("the runtime {name} is not installed on the engine")]
    RuntimeMissing {
        /// As configured.
        name: String,
    },
    /// The data set's directory went away.
    #[error("the data set changed or is missing since the run was accepted")]
    DatasetMissing,
    /// A data set could not be mounted into a sandbox.
    #[error("the data set could not be mounted into a waiting sandbox")]
    NotPlaced(#[source] std::io::Error),
    /// What the engine made differs from what was asked for.
    #[error("the engine did not apply the sandbox's settings ({0}): nothing was started")]
    PolicyNotApplied(String),
    /// The container went away.
    #[error("the sandbox is gone: something outside the daemon removed it")]
    Vanished,
    /// The container stands still, and nobody here has ended it.
    #[error(
        "the sandbox was ended from outside: the container engine or its host was restarted, or \
         somebody stopped the container"
    )]
    Stopped,
    /// The container is paused: nobody in it answers until somebody unpauses it.
    #[error(
        "the sandbox is paused: somebody outside the daemon paused the container; unpause it (for \
         example with `docker unpause`)"
    )]
    Paused,
    /// The engine refused or failed.
    #[error(
        "the container engine failed to {call}: the daemon's log has its answer; submit the run \
         again when that is put right"
    )]
    Failed {
        /// What it was asked for.
        call: &'static str,
        /// What it said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A sandbox was to be ended, and the engine, which is there, does not say that it was.
    #[error("the container engine did not end the sandbox")]
    NotEnded(#[source] Box<EngineError>),
    /// The stream to the supervisor broke.
    #[error("the stream to the sandbox broke")]
    Stream(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl EngineError {
    /// Whether the engine was not there, or did not answer: another time it may. Nothing is said of
    /// whether the call took effect.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::TimedOut { .. }
            | Self::Lost { .. }
            | Self::Resting { .. } => true,
            Self::ImageMissing { .. }
            | Self::ImageRefused { .. }
            | Self::RuntimeMissing { .. }
            | Self::DatasetMissing
            | Self::NotPlaced(_)
            | Self::PolicyNotApplied(_)
            | Self::Vanished
            | Self::Stopped
            | Self::Paused
            | Self::Failed { .. }
            | Self::NotEnded(_)
            | Self::Stream(_) => false,
        }
    }
}
