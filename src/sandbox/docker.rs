//! Docker Engine behind the [`Engine`] seam: the only place that knows bollard.
//!
//! Owns the connection, made when first needed and again after it failed, so that a daemon can be
//! started before its engine. Every call has a bound ([`client`]); settings come from one pure
//! function ([`options`]), are read back ([`verify`]), and are passed on as they were read
//! (`applied`).

pub mod client;

pub mod options;

pub mod verify;

pub mod supervisor;

pub mod container;

mod memory;

mod call;

mod calls;

mod creation;

mod about;

mod applied;

mod placement;

mod survey;

pub mod reaper;

pub mod images;

pub mod earlier;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
pub use bollard::Docker;
use bollard::models::{ContainerSummary, SystemInfoCgroupVersionEnum};
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptions};
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;
use tracing::info;
use uuid::Uuid;

use self::about::LastAnswer;
use self::calls::{Calls, Manner};
use self::client::{Call, Client};
use self::container::DockerSandbox;
use self::creation::Creation;
use self::options::{LABEL_EXECUTION, LABEL_INSTANCE, LABEL_LIFE, container_name};
use self::placement::Placement;
use self::reaper::Reaper;
use self::supervisor::SupervisorVolume;
use super::engine::{Created, Engine, EngineDescription, EngineError, Leftover, Remains};
use super::health::{CallBounds, EngineHealth};
use super::template::{Image, SandboxRequest};
use crate::ids::{ExecutionId, InstanceId};

/// What this engine calls itself.
const ENGINE_NAME: &str = "Docker Engine";

/// How often an engine that is waited for is looked at, beside what is heard of it.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A Docker Engine.
#[derive(Debug)]
pub struct DockerEngine {
    host: String,
    instance: InstanceId,
    /// Of this process, in the labels of what it makes.
    life: Arc<str>,
    calls: Arc<Calls>,
    connection: Mutex<Option<Arc<Connection>>>,
    reaper: Reaper,
}

/// An engine that answered.
#[derive(Debug)]
struct Connection {
    docker: Client,
    cgroup_v1: bool,
    default_runtime: String,
    placement: Placement,
    about: LastAnswer,
    /// The volume with the supervisor, as it was when it was known to be complete.
    supervisor_volume: Mutex<Option<SupervisorVolume>>,
}

impl DockerEngine {
    /// An engine at `host` (a path or `unix://` address), which is not asked anything yet.
    #[must_use]
    pub fn new(host: &str, instance: InstanceId) -> Self {
        Self::bounded(host, instance, CallBounds::default())
    }

    /// The same with other bounds than the usual ones.
    #[must_use]
    pub fn bounded(host: &str, instance: InstanceId, bounds: CallBounds) -> Self {
        let calls = Arc::new(Calls::new(bounds));
        let reaper = Reaper::new(host.to_owned(), Arc::clone(&calls));
        Self {
            host: host.to_owned(),
            instance,
            life: Uuid::new_v4().simple().to_string().into(),
            calls,
            connection: Mutex::new(None),
            reaper,
        }
    }

    /// Told whenever [`Engine::health`] may have changed, except by time alone.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<()> {
        self.calls.changes()
    }

    /// Asks whether the engine is there, even while it is not asked anything else: that harms
    /// nobody. Its answer counts.
    ///
    /// # Errors
    ///
    /// Why it seems not to be there.
    pub async fn probe(&self) -> Result<(), EngineError> {
        let connection = self.connection_by(Manner::Insistent).await?;
        connection.docker.answers(Manner::Insistent).await
    }

    /// Removes what could not be removed at once, until nothing is left or the bound has passed.
    pub async fn finish(&self, bound: Duration) {
        self.reaper.finish(bound).await;
    }

    /// A client of the engine, for building and listing images.
    ///
    /// # Errors
    ///
    /// [`EngineError::Unreachable`] and what else connecting can meet.
    pub async fn docker(&self) -> Result<Docker, EngineError> {
        Ok(self.client().await?.docker().clone())
    }

    async fn client(&self) -> Result<Client, EngineError> {
        Ok(self.connection().await?.docker.clone())
    }

    async fn connection(&self) -> Result<Arc<Connection>, EngineError> {
        self.connection_by(Manner::Polite).await
    }

    async fn connection_by(&self, manner: Manner) -> Result<Arc<Connection>, EngineError> {
        if let Some(connection) = &*self.connection.lock().await {
            return Ok(Arc::clone(connection));
        }
        // Not under the lock: an engine that does not answer is waited for once, not once for each
        // run before.
        let docker = Client::connect(&self.host, &self.calls, manner).await?;
        let asked = docker.repeated(Call::Describe, manner, || docker.info());
        let info = asked.await?;
        let connection = Arc::new(Connection {
            docker,
            cgroup_v1: info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_1),
            default_runtime: info.default_runtime.unwrap_or_default(),
            placement: Placement::default(),
            about: LastAnswer::default(),
            supervisor_volume: Mutex::new(None),
        });
        self.reaper.use_client(&connection.docker);
        info!(
            engine.version = info.server_version.as_deref().unwrap_or("unknown"),
            engine.cgroup_v1 = connection.cgroup_v1,
            "connected to the container engine"
        );
        let mut slot = self.connection.lock().await;
        Ok(Arc::clone(slot.get_or_insert(connection)))
    }
}

#[async_trait]
impl Engine for DockerEngine {
    async fn describe(&self) -> Result<EngineDescription, EngineError> {
        let connection = self.connection().await?;
        let docker = &connection.docker;
        let asked = docker.repeated(Call::Describe, Manner::Polite, || docker.version());
        let version = asked.await?;
        Ok(EngineDescription {
            name: ENGINE_NAME.to_owned(),
            version: version.version.unwrap_or_default(),
            api_version: connection.docker.client_version().to_string(),
        })
    }

    async fn image(&self, reference: &str) -> Result<Image, EngineError> {
        let docker = self.client().await?;
        let asked = docker.repeated(Call::InspectImage, Manner::Polite, || {
            docker.inspect_image(reference)
        });
        let inspected = asked
            .await
            .map_err(|error| client::image_missing(error, reference))?;
        let config = inspected.config.unwrap_or_default();
        if config.volumes.is_some_and(|volumes| !volumes.is_empty()) {
            return Err(EngineError::ImageRefused {
                reference: reference.to_owned(),
                reason: "it declares volumes, which programs could fill without a bound; \
                         build it without VOLUME"
                    .to_owned(),
            });
        }
        let environment = config.env.unwrap_or_default();
        let names = environment
            .iter()
            .filter_map(|entry| entry.split('=').next());
        Ok(Image {
            reference: reference.to_owned(),
            id: inspected.id.unwrap_or_default(),
            environment_names: names.map(str::to_owned).collect(),
        })
    }

    async fn create(&self, request: &SandboxRequest) -> Result<Created, EngineError> {
        let creation = Creation {
            connection: self.connection().await?,
            instance: self.instance.clone(),
            life: Arc::clone(&self.life),
            request: request.clone(),
            reaper: self.reaper.clone(),
        };
        match self.reaper.see_through(creation.run()).await {
            Ok(created) => created,
            Err(died) => Err(EngineError::Failed {
                call: Call::Create.words(),
                source: died.into(),
            }),
        }
    }

    async fn places_datasets(&self, runtime: Option<&str>) -> bool {
        let Ok(connection) = self.connection().await else {
            return false;
        };
        let runtime = runtime.unwrap_or(&connection.default_runtime);
        connection.placement.is_possible(runtime).await
    }

    async fn destroy(&self, execution: &ExecutionId) -> Result<(), EngineError> {
        let name = container_name(&self.instance, execution);
        let removing = async { container::remove(&self.client().await?, &name).await };
        let removed = removing.await.map(drop);
        if removed.is_err() {
            // An engine that starts later than the daemon gets to hear of it then.
            self.reaper.take(&name, None, None);
        }
        removed
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, EngineError> {
        let docker = self.client().await?;
        let label = format!("{LABEL_INSTANCE}={}", self.instance);
        let list = ListContainersOptions {
            all: true,
            filters: Some(HashMap::from([("label".to_owned(), vec![label])])),
            ..Default::default()
        };
        let asked = docker.repeated(Call::List, Manner::Polite, || {
            docker.list_containers(Some(list.clone()))
        });
        let containers = asked.await?;
        Ok(containers
            .into_iter()
            .filter_map(|container| leftover(container, &self.life))
            .collect())
    }

    fn health(&self) -> EngineHealth {
        EngineHealth {
            calls: self.calls.health(),
            quarantine: self.reaper.quarantine(),
            max_quarantined: self.calls.bounds().max_quarantined,
        }
    }

    async fn usable(&self) {
        let mut changes = self.calls.changes();
        while self.health().hold().is_some() {
            tokio::select! {
                // The other end is held by this engine.
                _ = changes.changed() => {}
                // What changes by time alone is not told.
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn remains(&self, execution: &ExecutionId) -> Result<Remains, EngineError> {
        let connection = self.connection().await?;
        let name = container_name(&self.instance, execution);
        let docker = &connection.docker;
        let asked = docker.repeated(Call::Inspect, Manner::Polite, || {
            docker.inspect_container(&name, None::<InspectContainerOptions>)
        });
        let inspected = match asked.await {
            Ok(inspected) => inspected,
            Err(error) if client::is_missing(&error) => return Ok(Remains::Missing),
            Err(error) => return Err(error),
        };
        let labels = inspected.config.and_then(|config| config.labels);
        let label = |name: &str| labels.as_ref().and_then(|labels| labels.get(name));
        // Its name is ours; without our labels it is somebody else's all the same.
        if label(LABEL_INSTANCE).map(String::as_str) != Some(self.instance.as_str())
            || label(LABEL_EXECUTION).map(String::as_str) != Some(execution.as_str())
        {
            return Ok(Remains::Missing);
        }
        let state = inspected.state.unwrap_or_default();
        if state.running != Some(true) {
            return Ok(Remains::Stopped {
                memory_kill: memory::ended_it(docker, &name, &state).await,
                never_started: container::has_never_started(&state),
            });
        }
        let mut sandbox = DockerSandbox::found(connection, name, self.reaper.clone());
        let host_config = inspected.host_config.unwrap_or_default();
        sandbox.may_use(host_config.nano_cpus.unwrap_or_default());
        Ok(Remains::Running(Box::new(sandbox)))
    }

    fn may_appear(&self, execution: &ExecutionId) {
        let name = container_name(&self.instance, execution);
        self.reaper.take_if_it_appears_later(&name);
    }

    fn leave_behind(&self) {
        self.reaper.leave_behind();
    }
}

fn leftover(container: ContainerSummary, life: &str) -> Option<Leftover> {
    let mut labels = container.labels?;
    let label = labels.remove(LABEL_EXECUTION)?;
    // The label is ours, but whoever may use the engine can have written it.
    let execution = ExecutionId::parse(&label)?;
    let is_ours = labels.get(LABEL_LIFE).is_some_and(|made| made == life);
    Some(Leftover { execution, is_ours })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_process_made_is_its_own() {
        let made = |life: Option<&str>| {
            let mut labels = HashMap::from([(LABEL_EXECUTION.to_owned(), "exec_12345678".into())]);
            labels.extend(life.map(|life| (LABEL_LIFE.to_owned(), life.to_owned())));
            let container = ContainerSummary {
                labels: Some(labels),
                ..Default::default()
            };
            leftover(container, "now").map(|leftover| leftover.is_ours)
        };
        assert_eq!(made(Some("now")), Some(true));
        assert_eq!(made(Some("before")), Some(false));
        // A version before had no such label.
        assert_eq!(made(None), Some(false));
    }
}
