//! One container: starting it with its streams attached, asking how it ended, removing it.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bollard::Docker;
use bollard::container::LogOutput;
use bollard::models::ContainerUpdateBody;
use bollard::query_parameters::{
    AttachContainerOptions, InspectContainerOptions, KillContainerOptions, RemoveContainerOptions,
    StartContainerOptions,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::Connection;
use super::client::{Call, bounded, is_answer, is_missing};
use super::placement::MountNamespace;
use super::reaper::Reaper;
use crate::sandbox::engine::{Channel, EngineError, Sandbox};
use crate::sandbox::slots::Slot;

/// How long mounting a data set into a container may take; on a dead network disk it never ends.
const PLACE_BOUND: Duration = Duration::from_secs(10);

/// Billionths of a CPU in one.
const NANO_CPUS: i64 = 1_000_000_000;

/// A container that the daemon made, or may have made: it exists from before the call that makes
/// it, so that an answer that gets lost leaves nothing behind.
#[derive(Debug)]
pub struct DockerSandbox {
    connection: Arc<Connection>,
    name: String,
    reaper: Reaper,
    standing: Standing,
    slot: Option<Slot>,
    /// Where a data set can be mounted later; known once it was started, if its template asks.
    namespace: Option<MountNamespace>,
    wants_dataset: bool,
}

/// What is known of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nobody knows whether the engine made it, or will.
    Unknown,
    /// The engine has answered: it is there, or it never will be.
    Answered,
    Removed,
}

impl DockerSandbox {
    pub(super) fn new(connection: Arc<Connection>, name: String, reaper: Reaper) -> Self {
        Self {
            connection,
            name,
            reaper,
            standing: Standing::Unknown,
            slot: None,
            namespace: None,
            wants_dataset: false,
        }
    }

    /// Says that a data set is to be mounted into it once it was started.
    pub(super) fn expect_dataset(&mut self) {
        self.wants_dataset = true;
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Takes note of how the call that makes it was answered.
    pub(super) fn made<T>(&mut self, answer: Result<T, EngineError>) -> Result<T, EngineError> {
        if answer.as_ref().err().is_none_or(is_answer) {
            self.standing = Standing::Answered;
        }
        answer
    }

    /// Where a data set can be mounted into it; `None` if that turns out not to be possible.
    async fn find_namespace(&self) -> Result<Option<MountNamespace>, EngineError> {
        let docker = &self.connection.docker;
        let inspect = docker.inspect_container(&self.name, None::<InspectContainerOptions>);
        let inspected = bounded(Call::Inspect, inspect).await?;
        let pid = inspected.state.and_then(|state| state.pid);
        let id = inspected.id.unwrap_or_default();
        let placement = &self.connection.placement;
        Ok(placement.namespace(pid.unwrap_or_default(), id).await.ok())
    }

    /// Ends and removes it.
    pub(super) async fn remove(mut self) -> Result<(), EngineError> {
        remove(&self.connection.docker, &self.name).await?;
        self.standing = Standing::Removed;
        Ok(())
    }
}

#[async_trait]
impl Sandbox for DockerSandbox {
    fn keep(&mut self, slot: Slot) {
        self.slot = Some(slot);
    }

    async fn start(&mut self) -> Result<Channel, EngineError> {
        let docker = &self.connection.docker;
        let options = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            ..Default::default()
        };
        let attached = bounded(
            Call::Attach,
            docker.attach_container(&self.name, Some(options)),
        )
        .await?;
        let start = docker.start_container(&self.name, None::<StartContainerOptions>);
        if let Err(error) = bounded(Call::Start, start).await {
            // The supervisor may be what is missing: someone can have removed its volume.
            *self.connection.supervisor_volume.lock().await = None;
            return Err(error);
        }
        if self.wants_dataset {
            self.namespace = self.find_namespace().await?;
        }
        Ok(Channel {
            reader: supervisor_output(attached.output),
            writer: attached.input,
        })
    }

    async fn place_dataset(&mut self, directory: OwnedFd) -> Result<(), EngineError> {
        let namespace = self.namespace.take().ok_or_else(|| {
            EngineError::NotPlaced(io::Error::other("nothing can be mounted into this sandbox"))
        })?;
        match timeout(PLACE_BOUND, namespace.place(directory)).await {
            Ok(placed) => placed.map_err(EngineError::NotPlaced),
            Err(late) => Err(EngineError::NotPlaced(late.into())),
        }
    }

    async fn unthrottle(&self) -> Result<(), EngineError> {
        let cpus = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let update = ContainerUpdateBody {
            nano_cpus: i64::try_from(cpus).ok().map(|cpus| cpus * NANO_CPUS),
            ..ContainerUpdateBody::default()
        };
        let docker = &self.connection.docker;
        let call = docker.update_container(&self.name, update);
        match bounded(Call::Update, call).await {
            // It is over already.
            Err(error) if is_missing(&error) => Ok(()),
            other => other,
        }
    }

    async fn kill(&self) -> Result<(), EngineError> {
        let options = KillContainerOptions {
            signal: "SIGKILL".to_owned(),
        };
        let docker = &self.connection.docker;
        let kill = docker.kill_container(&self.name, Some(options));
        match bounded(Call::Kill, kill).await {
            // Gone already, or not running any more: as wanted.
            Err(error) if is_answer(&error) => Ok(()),
            other => other,
        }
    }

    async fn memory_kill_seen(&self) -> Result<bool, EngineError> {
        let docker = &self.connection.docker;
        let inspect = docker.inspect_container(&self.name, None::<InspectContainerOptions>);
        match bounded(Call::Inspect, inspect).await {
            Ok(inspected) => Ok(inspected
                .state
                .and_then(|state| state.oom_killed)
                .unwrap_or_default()),
            Err(error) if is_missing(&error) => Err(EngineError::Vanished),
            Err(error) => Err(error),
        }
    }

    async fn destroy(self: Box<Self>) -> Result<(), EngineError> {
        self.remove().await
    }

    async fn retire(mut self: Box<Self>) -> Result<(), EngineError> {
        match self.reaper.debt() {
            Some(debt) => {
                self.reaper.take(&self.name, self.slot.take(), Some(debt));
                self.standing = Standing::Removed;
                Ok(())
            }
            None => self.remove().await,
        }
    }
}

impl Drop for DockerSandbox {
    fn drop(&mut self) {
        match self.standing {
            Standing::Unknown => self.reaper.take_if_it_appears(&self.name),
            Standing::Answered => self.reaper.take(&self.name, self.slot.take(), None),
            Standing::Removed => {}
        }
    }
}

/// Ends and removes a container; one that is not there is no error. Tells whether it was there.
///
/// # Errors
///
/// What removing met; the container may be left.
pub(super) async fn remove(docker: &Docker, name: &str) -> Result<bool, EngineError> {
    let options = RemoveContainerOptions {
        force: true,
        v: true,
        ..Default::default()
    };
    match bounded(Call::Remove, docker.remove_container(name, Some(options))).await {
        Ok(()) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, bollard::errors::Error>> + Send>>;

/// The supervisor's standard output; what it says on standard error goes to the log.
fn supervisor_output(
    output: Output,
) -> Pin<Box<dyn Stream<Item = Result<Bytes, EngineError>> + Send>> {
    Box::pin(output.filter_map(async |piece| match piece {
        Ok(LogOutput::StdOut { message }) => Some(Ok(message)),
        Ok(LogOutput::StdErr { message }) => {
            warn!(text = %String::from_utf8_lossy(&message).escape_debug(), "the supervisor complains");
            None
        }
        Ok(LogOutput::StdIn { .. } | LogOutput::Console { .. }) => {
            debug!("the engine sent something that is no output of the supervisor");
            None
        }
        Err(error) => Some(Err(EngineError::Stream(error.into()))),
    }))
}
