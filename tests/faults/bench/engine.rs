//! The engine that suffers: a second Docker Engine with its own socket, data and runtime
//! directories, started and ended by the bench. The machine's usual engine only gives its image.
//!
//! Its data directory is kept between tests, since bringing the image into it takes longer than any
//! of them; so one at a time uses it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bollard::models::VolumeCreateRequest;
use bollard::query_parameters::{
    ImportImageOptions, ListContainersOptions, ListVolumesOptions, RemoveContainerOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use fumehood::sandbox::docker::images::default_reference;
use futures_util::StreamExt as _;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use tempfile::TempDir;

use super::processes::{
    OF_AN_ENGINE, SHIM, containers_below, in_container, mounts_below, signal, with_argument,
};
use crate::support::daemon::PATIENCE;
use crate::support::engine::docker as usual_docker;
use crate::support::wait::until;

/// For an engine that was asked to stop: it gives what runs ten seconds.
const STOP_BOUND: Duration = Duration::from_secs(40);

/// How long a test waits for those before it.
const TURN_BOUND: Duration = Duration::from_secs(900);

/// How an engine is started.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    /// Containers go on while it is away.
    pub(crate) live_restore: bool,
    /// Where its data is, if not in the usual place; such an engine has no image in the beginning.
    pub(crate) data: Option<PathBuf>,
}

/// The engine. Dropping it ends it and everything that it started.
#[derive(Debug)]
pub(crate) struct SecondEngine {
    /// Socket, runtime directory, configuration, log.
    directory: TempDir,
    data: PathBuf,
    /// Whether its data is on a disk of somebody else's, who takes that away.
    has_guest_data: bool,
    child: Option<Child>,
    /// Held as long as it uses the data.
    _turn: File,
}

impl SecondEngine {
    /// Starts one that has the sandbox image. To be called from the test's own thread: the engine
    /// ends with the thread that started it, so that a killed test leaves none behind.
    pub(crate) async fn start(setup: Setup) -> Self {
        let top = Path::new(env!("CARGO_TARGET_TMPDIR")).join("second-engine");
        fs::create_dir_all(&top).unwrap();
        let turn = turn(&top).await;
        let has_guest_data = setup.data.is_some();
        let data = setup.data.unwrap_or_else(|| top.join("data"));
        fs::create_dir_all(&data).unwrap();
        // Short: the path of a socket has little room.
        let directory = tempfile::Builder::new()
            .prefix("engine-")
            .tempdir_in("/tmp")
            .unwrap();
        let settings = serde_json::json!({ "live-restore": setup.live_restore });
        fs::write(directory.path().join("daemon.json"), settings.to_string()).unwrap();
        let mut engine = Self {
            directory,
            data,
            has_guest_data,
            child: None,
            _turn: turn,
        };
        engine.launch().await;
        engine.remove_containers().await;
        engine.ensure_image().await;
        engine
    }

    /// Starts it again after [`SecondEngine::kill`] or [`SecondEngine::stop`].
    pub(crate) async fn launch(&mut self) {
        let begun = Instant::now();
        self.spawn();
        while !self.answers().await {
            assert!(begun.elapsed() < PATIENCE, "{}", self.log());
            // On a busy machine it gives up waiting for its containerd.
            let gave_up = self.child.as_mut().unwrap().try_wait().unwrap().is_some();
            if gave_up {
                self.spawn();
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn answers(&self) -> bool {
        match self.connect() {
            Some(docker) => docker.ping().await.is_ok(),
            None => false,
        }
    }

    fn spawn(&mut self) {
        let path = |name: &str| self.directory.path().join(name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(path("log"))
            .unwrap();
        // As after a crash of the machine's own: the file of a process that is gone is in the way.
        let _ = fs::remove_file(path("pid"));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "dockerd", "--config-file"])
            .arg(path("daemon.json"))
            .arg("--data-root")
            .arg(&self.data)
            .arg("--exec-root")
            .arg(path("exec"))
            .arg("--pidfile")
            .arg(path("pid"))
            .arg(format!("--host=unix://{}", self.socket().display()))
            .arg("--log-level=warn")
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false"])
            .arg("--ip-forward=false")
            // Where the machine has a containerd of its own, the two engines share it.
            .args(["--containerd-namespace=fumehood-faults"])
            .args(["--containerd-plugins-namespace=fumehood-faults-plugins"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .expect("setpriv and dockerd are there; tests/run.sh sees to it");
        self.child = Some(child);
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("engine.sock")
    }

    /// What it logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// A client of it, past every proxy.
    pub(crate) async fn docker(&self) -> Docker {
        let docker = self.connect().unwrap();
        docker.negotiate_version().await.unwrap()
    }

    fn connect(&self) -> Option<Docker> {
        let socket = self.socket();
        Docker::connect_with_unix(socket.to_str()?, 60, API_DEFAULT_VERSION).ok()
    }

    /// Names of its containers, in any state: all are of the daemon under test.
    pub(crate) async fn containers(&self) -> Vec<String> {
        let all = ListContainersOptions {
            all: true,
            ..Default::default()
        };
        let list = self
            .docker()
            .await
            .list_containers(Some(all))
            .await
            .unwrap();
        let names = list
            .into_iter()
            .flat_map(|one| one.names.unwrap_or_default());
        names
            .map(|name| name.trim_start_matches('/').to_owned())
            .collect()
    }

    /// Names of its volumes.
    pub(crate) async fn volumes(&self) -> Vec<String> {
        let docker = self.docker().await;
        let list = docker
            .list_volumes(None::<ListVolumesOptions>)
            .await
            .unwrap();
        let volumes = list.volumes.unwrap_or_default();
        volumes.into_iter().map(|volume| volume.name).collect()
    }

    /// Makes a volume as another version of fumehood would have; gives its name.
    pub(crate) async fn volume_of_another_version(&self) -> String {
        let name = format!("fumehood-supervisor-test-{}", uuid::Uuid::new_v4().simple());
        let label = ("fumehood.supervisor".to_owned(), name.clone());
        let request = VolumeCreateRequest {
            name: Some(name.clone()),
            labels: Some(HashMap::from([label])),
            ..Default::default()
        };
        self.docker().await.create_volume(request).await.unwrap();
        name
    }

    /// Waits for its one container; gives its name.
    pub(crate) async fn only_container(&self) -> String {
        let one = |names: &Vec<String>| names.len() == 1;
        until(PATIENCE, || self.containers(), one).await.remove(0)
    }

    /// Waits until it has no container.
    pub(crate) async fn is_empty(&self, bound: Duration) {
        until(bound, || self.containers(), Vec::is_empty).await;
    }

    /// The process that looks after a container.
    pub(crate) async fn shim_of(&self, container: &str) -> i32 {
        let docker = self.docker().await;
        let inspected = docker.inspect_container(container, None).await.unwrap();
        let shims = with_argument(&SHIM, &inspected.id.unwrap());
        assert_eq!(shims.len(), 1, "{shims:?}");
        shims[0]
    }

    /// Freezes everything in a container, its supervisor included.
    pub(crate) async fn pause(&self, container: &str) {
        self.docker()
            .await
            .pause_container(container)
            .await
            .unwrap();
    }

    /// Kills one of its processes.
    pub(crate) fn kill_process(&self, pid: i32) {
        signal(pid, Signal::KILL);
    }

    /// From now on it takes connections and answers nothing.
    pub(crate) fn freeze(&self) {
        signal(self.pid(), Signal::STOP);
    }

    /// It goes on.
    pub(crate) fn thaw(&self) {
        signal(self.pid(), Signal::CONT);
    }

    /// Kills it without a warning. What runs in its containers runs on.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(9));
    }

    /// Asks it to stop, and waits until it is gone.
    pub(crate) async fn stop(&mut self) {
        signal(self.pid(), Signal::TERM);
        let mut child = self.child.take().unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < STOP_BOUND, "{}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Its process id: `setpriv` becomes the engine.
    fn pid(&self) -> i32 {
        i32::try_from(self.child.as_ref().unwrap().id()).unwrap()
    }

    /// Removes what an earlier test that failed may have left.
    async fn remove_containers(&self) {
        let docker = self.docker().await;
        let force = RemoveContainerOptions {
            force: true,
            ..Default::default()
        };
        for name in self.containers().await {
            docker
                .remove_container(&name, Some(force.clone()))
                .await
                .unwrap();
        }
    }

    /// Brings the sandbox image from the usual engine, if it is not there.
    pub(crate) async fn ensure_image(&self) {
        let (docker, image) = (self.docker().await, default_reference());
        if docker.inspect_image(&image).await.is_ok() {
            return;
        }
        let usual = usual_docker().await;
        let name = image.clone();
        let (sender, receiver) = tokio::sync::mpsc::channel(8);
        let sending = async move {
            let mut archive = std::pin::pin!(usual.export_image(&name));
            while let Some(piece) = archive.next().await {
                if sender.send(piece).await.is_err() {
                    break;
                }
            }
        };
        let pieces = futures_util::stream::unfold(receiver, async |mut receiver| {
            Some((receiver.recv().await?, receiver))
        });
        let receiving = async {
            let options = ImportImageOptions::default();
            let mut answers = std::pin::pin!(docker.import_image_stream(options, pieces, None));
            while let Some(answer) = answers.next().await {
                answer.expect("the usual engine has the sandbox image: fumehood image build");
            }
        };
        tokio::join!(sending, receiving);
        docker.inspect_image(&image).await.unwrap();
    }
}

impl Drop for SecondEngine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the second engine's log\n{}", self.log());
        }
        if let Some(mut child) = self.child.take() {
            let pid = i32::try_from(child.id()).unwrap_or(-1);
            signal(pid, Signal::CONT);
            signal(pid, Signal::TERM);
            let begun = Instant::now();
            while matches!(child.try_wait(), Ok(None)) {
                if begun.elapsed() > STOP_BOUND {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        // What it did not end itself, because it was killed: all of it has our directory in its
        // arguments or is in one of our containers.
        let ours = self.directory.path().to_str().unwrap_or_default();
        for pid in with_argument(&OF_AN_ENGINE, ours) {
            signal(pid, Signal::KILL);
        }
        for container in containers_below(&self.data) {
            for pid in in_container(&container) {
                signal(pid, Signal::KILL);
            }
        }
        for directory in [self.directory.path(), &self.data] {
            for point in mounts_below(directory) {
                // A killed engine leaves its data mounted over itself.
                if !(self.has_guest_data && Path::new(&point) == self.data) {
                    let _ = Command::new("umount").args(["--lazy", &point]).status();
                }
            }
        }
    }
}

/// Waits until nobody else uses the data; held by the file.
async fn turn(top: &Path) -> File {
    let file = File::create(top.join("turn")).unwrap();
    let take = async || flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    until(TURN_BOUND, take, |taken| *taken).await;
    file
}
