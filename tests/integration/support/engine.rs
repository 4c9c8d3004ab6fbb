//! The engine as somebody outside the daemon sees it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use bollard::models::{ContainerInspectResponse, SystemInfo};
use bollard::query_parameters::{
    EventsOptions, InspectContainerOptions, KillContainerOptions, ListContainersOptions,
    ListVolumesOptions, RemoveContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures_util::StreamExt as _;
use tokio::sync::OnceCell;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// A client of the engine that the tests use.
pub(crate) async fn docker() -> Docker {
    let docker = Docker::connect_with_unix("/var/run/docker.sock", 60, API_DEFAULT_VERSION)
        .expect("the tests need Docker Engine; tests/run.sh starts it");
    docker
        .negotiate_version()
        .await
        .expect("the engine answers")
}

/// What the engine says of itself, which is asked once.
async fn information() -> &'static SystemInfo {
    static INFORMATION: OnceCell<SystemInfo> = OnceCell::const_new();
    let ask = || async { docker().await.info().await.unwrap() };
    INFORMATION.get_or_init(ask).await
}

/// Whether it has a runtime.
pub(crate) async fn has_runtime(name: &str) -> bool {
    let runtimes = information().await.runtimes.as_ref();
    runtimes.is_some_and(|runtimes| runtimes.contains_key(name))
}

/// Where on this host it keeps everything.
pub(crate) async fn root_directory() -> PathBuf {
    information().await.docker_root_dir.clone().unwrap().into()
}

/// Names of the containers of an instance, in any state.
pub(crate) async fn containers_of(instance: &str) -> Vec<String> {
    labelled(instance, None).await
}

/// Names of the containers of an instance in which something runs: asked for in one question, since
/// others come and go meanwhile, such as the one that fills the supervisor's volume.
pub(crate) async fn running_containers_of(instance: &str) -> Vec<String> {
    labelled(instance, Some("running")).await
}

async fn labelled(instance: &str, status: Option<&str>) -> Vec<String> {
    let label = vec![format!("fumehood.instance={instance}")];
    let mut filters = HashMap::from([("label".to_owned(), label)]);
    filters.extend(status.map(|status| ("status".to_owned(), vec![status.to_owned()])));
    let options = ListContainersOptions {
        all: true,
        filters: Some(filters),
        ..Default::default()
    };
    let list = docker().await.list_containers(Some(options)).await.unwrap();
    list.into_iter()
        .flat_map(|container| container.names.unwrap_or_default())
        .collect()
}

/// Removes the containers of an instance, whatever their state.
pub(crate) async fn remove_containers_of(instance: String) {
    let docker = docker().await;
    for name in containers_of(&instance).await {
        let force = RemoveContainerOptions {
            force: true,
            ..Default::default()
        };
        let _ = docker
            .remove_container(name.trim_start_matches('/'), Some(force))
            .await;
    }
}

/// Removes the containers of an instance that belong to these executions.
pub(crate) async fn remove_leftovers_of(instance: String, executions: Vec<String>) {
    for name in containers_of(&instance).await {
        if executions.iter().any(|execution| name.ends_with(execution)) {
            remove(&name).await;
        }
    }
}

/// Removes a container as somebody else would.
pub(crate) async fn remove(name: &str) {
    let force = RemoveContainerOptions {
        force: true,
        ..Default::default()
    };
    let name = name.trim_start_matches('/');
    let _ = docker().await.remove_container(name, Some(force)).await;
}

/// Ends what runs in a container, as the end of its engine does.
pub(crate) async fn kill(name: &str) {
    let docker = docker().await;
    let name = name.trim_start_matches('/');
    let killed = docker.kill_container(name, None::<KillContainerOptions>);
    killed.await.unwrap();
}

/// The starts of an instance's containers from now on, by name.
pub(crate) struct Starts {
    seen: Arc<Mutex<Vec<String>>>,
    _watching: DropGuard,
}

impl Starts {
    /// Watches from now on.
    pub(crate) async fn watch(instance: &str) -> Self {
        let filters = HashMap::from([
            ("type".to_owned(), vec!["container".to_owned()]),
            ("event".to_owned(), vec!["start".to_owned()]),
            (
                "label".to_owned(),
                vec![format!("fumehood.instance={instance}")],
            ),
        ]);
        let options = EventsOptions {
            filters: Some(filters),
            ..Default::default()
        };
        let (seen, stop) = (Arc::default(), CancellationToken::new());
        let (docker, told, stopped) = (docker().await, Arc::clone(&seen), stop.clone());
        TaskTracker::new().spawn(stopped.run_until_cancelled_owned(async move {
            let told: Arc<Mutex<Vec<String>>> = told;
            let mut events = pin!(docker.events(Some(options)));
            while let Some(Ok(event)) = events.next().await {
                let attributes = event.actor.and_then(|actor| actor.attributes);
                let name = attributes.and_then(|mut known| known.remove("name"));
                told.lock().unwrap().extend(name);
            }
        }));
        Self {
            seen,
            _watching: stop.drop_guard(),
        }
    }

    /// How often the container of an execution was started.
    pub(crate) fn of(&self, execution: &str) -> usize {
        let all = self.all();
        all.iter().filter(|name| name.ends_with(execution)).count()
    }

    /// What was started so far, in order.
    pub(crate) fn all(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// Everything about a container.
pub(crate) async fn inspect(name: &str) -> ContainerInspectResponse {
    let name = name.trim_start_matches('/');
    docker()
        .await
        .inspect_container(name, None::<InspectContainerOptions>)
        .await
        .unwrap()
}

/// Names of all volumes.
pub(crate) async fn volumes() -> Vec<String> {
    let list = docker()
        .await
        .list_volumes(None::<ListVolumesOptions>)
        .await
        .unwrap();
    list.volumes
        .unwrap_or_default()
        .into_iter()
        .map(|volume| volume.name)
        .collect()
}

/// Runs `work` to its end from code that is not async, even inside a runtime.
pub(crate) fn block_on<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    std::thread::spawn(move || runtime().block_on(work))
        .join()
        .unwrap()
}
