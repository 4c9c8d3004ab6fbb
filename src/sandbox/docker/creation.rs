//! Making a container, in a task that runs to its end.
//!
//! Whoever asked for a sandbox may go away while the engine makes it: a run is cancelled, the
//! daemon stops. A call cut off half-way would leave nobody who knows whether there is a container,
//! and an attempt to remove it would come too early. So the call always gets its answer, and a
//! sandbox that nobody waits for any more is dropped, that is, handed to the reaper.

use std::sync::Arc;
use std::time::Duration;

use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum};
use bollard::query_parameters::{CreateContainerOptions, InspectContainerOptions};
use tracing::{info, warn};

use super::calls::Manner;
use super::client::{self, Call, Client};
use super::container::{self, DockerSandbox};
use super::options::{self, Identity, LABEL_EXECUTION, LABEL_INSTANCE, container_name};
use super::reaper::Reaper;
use super::supervisor::{self, SupervisorVolume};
use super::{Connection, applied, verify};
use crate::clock;
use crate::fault_point::FaultPoint;
use crate::ids::{ExecutionId, InstanceId};
use crate::sandbox::engine::{Created, EngineError};
use crate::sandbox::template::{DatasetMount, Image, SandboxRequest};

/// Added to a sandbox's lifetime for the deadline in the container's label: preparing before it
/// and collecting after it.
const DEADLINE_ALLOWANCE: Duration = Duration::from_secs(600);

/// How long an earlier container of the same name may take to be removed.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

/// Everything that a container is made of.
#[derive(Debug)]
pub(super) struct Creation {
    pub(super) connection: Arc<Connection>,
    pub(super) instance: InstanceId,
    pub(super) life: Arc<str>,
    pub(super) request: SandboxRequest,
    pub(super) reaper: Reaper,
}

impl Creation {
    /// Creates the container, compares what the engine made of it with what was asked for, and gives
    /// both.
    pub(super) async fn run(self) -> Result<Created, EngineError> {
        let SandboxRequest {
            execution,
            template,
            uid,
            lifetime,
        } = &self.request;
        let name = container_name(&self.instance, execution);
        let Some(is_second) = self.reaper.take_back(&name, SETTLED_WITHIN).await else {
            return Err(EngineError::TimedOut {
                call: Call::Remove.words(),
                seconds: SETTLED_WITHIN.as_secs(),
            });
        };
        if is_second && let Err(error) = container::remove(&self.connection.docker, &name).await {
            self.reaper.take_if_it_appears(&name);
            return Err(error);
        }
        let volume = self.supervisor_volume(&template.image).await?;
        let identity = Identity {
            instance: &self.instance,
            life: &self.life,
            execution,
            uid: *uid,
            deadline: deadline(*lifetime),
            supervisor_volume: &volume,
            cgroup_v1: self.connection.cgroup_v1,
        };
        let body = options::container(template, &identity);
        let mut sandbox = self.sandbox(execution);
        sandbox.may_use(
            body.host_config
                .as_ref()
                .and_then(|c| c.nano_cpus)
                .unwrap_or_default(),
        );
        let docker = &self.connection.docker;
        let create = CreateContainerOptions {
            name: Some(sandbox.name().to_owned()),
            ..Default::default()
        };
        let mut attempts = 0;
        let created = docker.repeated(Call::Create, Manner::Polite, || {
            attempts += 1;
            docker.create_container(Some(create.clone()), body.clone())
        });
        FaultPoint::BeforeCreate.reached();
        let created = created.await;
        let inspect = || docker.inspect_container(sandbox.name(), None::<InspectContainerOptions>);
        let (inspected, about) = match created {
            // Nobody knows whether it is there: the engine is asked by its name, which is nobody
            // else's.
            Err(error) if may_be_there(&error, attempts) => {
                let asked = docker.repeated(Call::Inspect, Manner::Polite, inspect);
                match asked.await {
                    // An earlier attempt for this execution has come true in this moment: it has
                    // another uid and deadline, so it is removed before the next one.
                    Ok(found) if is_second && !verify::differences(&body, &found).is_empty() => {
                        return Err(in_doubt(docker));
                    }
                    Ok(found) if is_untouched(&found, &self.instance, execution) => {
                        info!(
                            sandbox = name,
                            "a sandbox whose making was not answered is there"
                        );
                        (Ok(found), self.connection.about.get(docker).await)
                    }
                    // The name is taken and nothing is there yet: the first attempt is under way.
                    Ok(_) | Err(_) if client::is_conflict(&error) => return Err(in_doubt(docker)),
                    Ok(_) | Err(_) => return Err(error),
                }
            }
            // The same.
            Err(error) if is_second && client::is_conflict(&error) => return Err(in_doubt(docker)),
            Err(error) => {
                let answer = sandbox.made::<Created>(Err(error));
                return answer.map_err(|error| client::create_failed(error, template));
            }
            Ok(_) => tokio::join!(
                docker.repeated(Call::Inspect, Manner::Polite, inspect),
                self.connection.about.get(docker)
            ),
        };
        sandbox.made(Ok(()))?;
        FaultPoint::AfterCreate.reached();
        let inspected = inspected?;
        let differences = verify::differences(&body, &inspected);
        if !differences.is_empty() {
            warn!(
                sandbox = sandbox.name(),
                ?differences,
                "the engine did not apply the sandbox's settings"
            );
            return Err(EngineError::PolicyNotApplied(differences.join(", ")));
        }
        if template.dataset == DatasetMount::Place {
            sandbox.expect_dataset();
        }
        Ok(Created {
            sandbox: Box::new(sandbox),
            applied: applied::applied(inspected, &about),
        })
    }

    fn sandbox(&self, execution: &ExecutionId) -> DockerSandbox {
        let name = container_name(&self.instance, execution);
        DockerSandbox::new(Arc::clone(&self.connection), name, self.reaper.clone())
    }

    /// The volume with the supervisor, made if it is not there or not the one that was checked.
    async fn supervisor_volume(&self, image: &Image) -> Result<String, EngineError> {
        let docker = &self.connection.docker;
        let mut known = self.connection.supervisor_volume.lock().await;
        if let Some(volume) = &*known
            && SupervisorVolume::find(docker).await?.as_ref() == Some(volume)
        {
            return Ok(volume.name.clone());
        }
        *known = None;
        supervisor::make_volume(docker).await?;
        let helper = ExecutionId::random();
        let mut sandbox = self.sandbox(&helper);
        let owner = (&self.instance, &*self.life);
        let created = supervisor::create_helper(docker, sandbox.name(), owner, &helper, image);
        sandbox.made(created.await)?;
        supervisor::fill(docker, sandbox.name()).await?;
        sandbox.remove().await?;
        let volume = SupervisorVolume::find(docker).await?;
        let volume = volume.ok_or(EngineError::Vanished)?;
        let name = volume.name.clone();
        *known = Some(volume);
        Ok(name)
    }
}

/// Whether a creation that failed so may have made the container all the same. A name that is taken
/// says so only if this very call has asked for it before.
fn may_be_there(error: &EngineError, attempts: u32) -> bool {
    client::leaves_open(error) || (attempts > 1 && client::is_conflict(error))
}

/// The failure of a creation of which nobody knows yet what becomes of it.
fn in_doubt(docker: &Client) -> EngineError {
    EngineError::TimedOut {
        call: Call::Create.words(),
        seconds: Call::Create.deadline(docker.bounds()).as_secs(),
    }
}

/// Whether a container is the one that was to be made for this execution, and nothing has run in it.
fn is_untouched(
    found: &ContainerInspectResponse,
    instance: &InstanceId,
    execution: &ExecutionId,
) -> bool {
    let labels = found.config.as_ref().and_then(|c| c.labels.as_ref());
    let has =
        |label: &str, value: String| labels.and_then(|labels| labels.get(label)) == Some(&value);
    let state = found.state.as_ref().and_then(|state| state.status);
    state == Some(ContainerStateStatusEnum::CREATED)
        && has(LABEL_INSTANCE, instance.to_string())
        && has(LABEL_EXECUTION, execution.to_string())
}

/// When the program of a sandbox created now has to be over, in seconds since the epoch.
fn deadline(lifetime: Duration) -> i64 {
    let whole = lifetime.saturating_add(DEADLINE_ALLOWANCE).as_secs();
    let seconds = i64::try_from(whole).unwrap_or(i64::MAX);
    clock::now().as_second().saturating_add(seconds)
}
