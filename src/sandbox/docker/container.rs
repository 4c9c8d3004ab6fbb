//! One container: starting it with its streams attached, asking how it ended, removing it.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::models::{
    ContainerInspectResponse, ContainerState, ContainerStateStatusEnum, ContainerUpdateBody,
};
use bollard::query_parameters::{
    AttachContainerOptions, InspectContainerOptions, KillContainerOptions, RemoveContainerOptions,
    StartContainerOptions,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::calls::Manner;
use super::client::{Call, Client, is_answer, is_conflict, is_missing, leaves_open};
use super::placement::MountNamespace;
use super::reaper::Reaper;
use super::{Connection, memory};
use crate::sandbox::engine::{Channel, EngineError, Sandbox};
use crate::sandbox::slots::Slot;

/// How long mounting a data set into a container may take; on a dead network disk it never ends.
const PLACE_BOUND: Duration = Duration::from_secs(10);

/// Billionths of a CPU in one.
const NANO_CPUS: i64 = 1_000_000_000;

/// The bound on the CPU time of a sandbox that is to end: every CPU that this process may use, but
/// never less than it had. The daemon can be confined to fewer CPUs than its engine, and a bound
/// that the engine has taken once is within what the host has.
fn nano_cpus_at_the_end(own: i64, seen: usize) -> i64 {
    let seen = i64::try_from(seen).unwrap_or(i64::MAX);
    seen.saturating_mul(NANO_CPUS).max(own)
}

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
    /// The bound on its CPU time, in billionths of a CPU; 0 until it is told.
    nano_cpus: i64,
    /// Whether the next daemon can go on with it.
    outlives: bool,
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
            nano_cpus: 0,
            outlives: false,
        }
    }

    /// Says what it may use of the CPUs.
    pub(super) fn may_use(&mut self, nano_cpus: i64) {
        self.nano_cpus = nano_cpus;
    }

    /// One that an earlier daemon made.
    pub(super) fn found(connection: Arc<Connection>, name: String, reaper: Reaper) -> Self {
        let mut found = Self::new(connection, name, reaper);
        found.standing = Standing::Answered;
        found.outlives = true;
        found
    }

    async fn streams(&self) -> Result<AttachContainerResults, EngineError> {
        let options = AttachContainerOptions {
            stream: true,
            stdin: true,
            stdout: true,
            stderr: true,
            ..Default::default()
        };
        let docker = &self.connection.docker;
        let attach = docker.attach_container(&self.name, Some(options));
        docker.once(Call::Attach, attach).await
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
        match &answer {
            Ok(_) => self.standing = Standing::Answered,
            Err(error) if is_answer(error) => self.standing = Standing::Answered,
            // The engine has never heard of it.
            Err(EngineError::Unreachable(_) | EngineError::Resting { .. }) => {
                self.standing = Standing::Removed;
            }
            Err(_) => {}
        }
        answer
    }

    /// What the engine shows of it.
    async fn inspect(&self) -> Result<ContainerInspectResponse, EngineError> {
        self.inspect_by(Manner::Polite).await
    }

    async fn inspect_by(&self, manner: Manner) -> Result<ContainerInspectResponse, EngineError> {
        let docker = &self.connection.docker;
        let inspect = docker.repeated(Call::Inspect, manner, || {
            docker.inspect_container(&self.name, None::<InspectContainerOptions>)
        });
        inspect.await
    }

    /// Whether a start that was not answered has taken place all the same. The supervisor waits
    /// then for what it is told over the stream, as after any other.
    async fn has_started(&self) -> bool {
        let found = self.inspect().await;
        found.is_ok_and(|found| running(&found) == Some(true))
    }

    /// Where a data set can be mounted into it; `None` if that turns out not to be possible.
    async fn find_namespace(&self) -> Result<Option<MountNamespace>, EngineError> {
        let inspected = self.inspect().await?;
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

    fn outlive(&mut self) {
        self.outlives = true;
    }

    async fn start(&mut self) -> Result<Channel, EngineError> {
        let docker = &self.connection.docker;
        let attached = self.streams().await?;
        // A second start of the supervisor is none.
        let start = docker.repeated(Call::Start, Manner::Polite, || {
            docker.start_container(&self.name, None::<StartContainerOptions>)
        });
        if let Err(error) = start.await
            && !(leaves_open(&error) && self.has_started().await)
        {
            // The supervisor may be what is missing: someone can have removed its volume.
            *self.connection.supervisor_volume.lock().await = None;
            return Err(error);
        }
        if self.wants_dataset {
            self.namespace = self.find_namespace().await?;
        }
        Ok(channel(attached))
    }

    async fn is_running(&self) -> Result<bool, EngineError> {
        match self.inspect().await {
            Ok(found) => answers(&found.state.unwrap_or_default()),
            Err(error) if is_missing(&error) => Err(EngineError::Vanished),
            Err(error) => Err(error),
        }
    }

    async fn has_never_started(&self) -> Result<bool, EngineError> {
        let found = self.inspect().await?;
        Ok(found.state.as_ref().is_some_and(has_never_started))
    }

    async fn attach(&mut self) -> Result<Channel, EngineError> {
        Ok(channel(self.streams().await?))
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
        let seen = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let update = ContainerUpdateBody {
            nano_cpus: Some(nano_cpus_at_the_end(self.nano_cpus, seen)),
            ..ContainerUpdateBody::default()
        };
        let docker = &self.connection.docker;
        // Tried whatever happened to others, as the kill that follows where this does not help.
        let call = docker.repeated(Call::Update, Manner::Insistent, || {
            docker.update_container(&self.name, update.clone())
        });
        match call.await {
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
        // Tried whatever happened to others: nobody else ends this one.
        let kill = docker.repeated(Call::Kill, Manner::Insistent, || {
            docker.kill_container(&self.name, Some(options.clone()))
        });
        let error = match kill.await {
            Ok(()) => return Ok(()),
            // Gone already, or not running any more: as wanted. Any other answer confirms nothing.
            Err(error) if is_missing(&error) || is_conflict(&error) => return Ok(()),
            Err(error) => error,
        };
        // It may have been done all the same; and an engine that is there and does not do it is
        // another matter than one that is away.
        let bound = Call::Kill.deadline(docker.bounds());
        let looking = timeout(bound, self.inspect_by(Manner::Insistent));
        let pinging = timeout(bound, docker.answers(Manner::Insistent));
        match tokio::join!(looking, pinging) {
            (Ok(Ok(found)), _) if running(&found) == Some(false) => Ok(()),
            (Ok(Err(asked)), _) if is_missing(&asked) => Ok(()),
            (Ok(Ok(_)), _) | (_, Ok(Ok(()))) => Err(EngineError::NotEnded(error.into())),
            (Ok(Err(_)) | Err(_), Ok(Err(_)) | Err(_)) => Err(error),
        }
    }

    async fn memory_kill_seen(&self) -> Result<bool, EngineError> {
        match self.inspect().await {
            Ok(found) => {
                let state = found.state.unwrap_or_default();
                Ok(memory::ended_it(&self.connection.docker, &self.name, &state).await)
            }
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

    fn removal_waits(&self) -> bool {
        !self.reaper.has_room()
    }

    fn quarantine(mut self: Box<Self>) {
        self.reaper.set_aside(&self.name, self.slot.take());
        self.standing = Standing::Removed;
    }
}

impl Drop for DockerSandbox {
    fn drop(&mut self) {
        if self.outlives && self.reaper.is_left_behind() {
            return;
        }
        match self.standing {
            Standing::Unknown => self.reaper.take_if_it_appears(&self.name),
            Standing::Answered => self.reaper.take(&self.name, self.slot.take(), None),
            Standing::Removed => {}
        }
    }
}

/// Whether something runs in a container, if the engine says so.
fn running(found: &ContainerInspectResponse) -> Option<bool> {
    found.state.as_ref().and_then(|state| state.running)
}

/// Whether the supervisor of a container with this state runs.
fn answers(state: &ContainerState) -> Result<bool, EngineError> {
    if state.paused == Some(true) {
        return Err(EngineError::Paused);
    }
    Ok(state.running == Some(true))
}

/// Whether a container's supervisor has ended without having been told to start a program. One that the
/// engine has not started, or that it restarts, has an exit code, too: that of nothing, or of an earlier
/// process.
pub(super) fn has_never_started(state: &ContainerState) -> bool {
    state.status == Some(ContainerStateStatusEnum::EXITED)
        && state.running == Some(false)
        && state.exit_code == Some(i64::from(fumehood_protocol::NEVER_STARTED))
}

/// Ends and removes a container; one that is not there is no error. Tells whether it was there.
///
/// # Errors
///
/// What removing met; the container may be left.
pub(super) async fn remove(docker: &Client, name: &str) -> Result<bool, EngineError> {
    let options = RemoveContainerOptions {
        force: true,
        v: true,
        ..Default::default()
    };
    let remove = docker.repeated(Call::Remove, Manner::Polite, || {
        docker.remove_container(name, Some(options.clone()))
    });
    match remove.await {
        Ok(()) => Ok(true),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn channel(attached: AttachContainerResults) -> Channel {
    Channel {
        reader: supervisor_output(attached.output),
        writer: attached.input,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine says of it that it runs, and refuses to attach to it.
    #[test]
    fn a_container_that_is_paused_neither_answers_nor_is_over() {
        let state = |running, paused| ContainerState {
            running: Some(running),
            paused: Some(paused),
            ..ContainerState::default()
        };
        assert!(matches!(
            answers(&state(true, true)),
            Err(EngineError::Paused)
        ));
        assert!(answers(&state(true, false)).unwrap());
        assert!(!answers(&state(false, false)).unwrap());
    }

    /// Anything else, and above all a kill, says nothing of what ran before.
    #[test]
    fn only_its_own_exit_code_says_that_a_supervisor_was_never_told_to_start() {
        let state = |status, running, code| ContainerState {
            status: Some(status),
            running: Some(running),
            exit_code: Some(code),
            ..ContainerState::default()
        };
        let exited = ContainerStateStatusEnum::EXITED;
        assert!(has_never_started(&state(exited, false, 69)));
        for code in [0, 1, 65, 70, 71, 75, 137, 143] {
            assert!(!has_never_started(&state(exited, false, code)), "{code}");
        }
        let running = ContainerStateStatusEnum::RUNNING;
        assert!(!has_never_started(&state(running, true, 69)));
        let created = ContainerStateStatusEnum::CREATED;
        assert!(!has_never_started(&state(created, false, 69)));
        assert!(!has_never_started(&ContainerState::default()));
    }

    #[test]
    fn the_bound_on_cpu_time_is_never_lowered_for_the_end() {
        // The host has more than the sandbox was given: it gets them.
        assert_eq!(nano_cpus_at_the_end(NANO_CPUS / 2, 4), 4 * NANO_CPUS);
        // The daemon sees fewer than the sandbox was given.
        assert_eq!(nano_cpus_at_the_end(3 * NANO_CPUS, 1), 3 * NANO_CPUS);
        assert_eq!(nano_cpus_at_the_end(1, usize::MAX), i64::MAX);
    }
}
