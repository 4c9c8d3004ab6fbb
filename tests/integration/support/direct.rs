//! A program that the engine runs by itself, without daemon and supervisor: with the settings of a
//! real sandbox, or with some of them taken away.

use std::time::Duration;

use bollard::container::LogOutput;
use bollard::models::{ContainerCreateBody, ContainerInspectResponse, HostConfigLogConfig};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, LogsOptions, RemoveContainerOptions,
    StartContainerOptions,
};
use futures_util::StreamExt as _;

use super::engine::{block_on, docker};

/// Makes of the working directory what the supervisor makes of it, and runs the program as a child
/// of PID 1, as it does: what attacks PID 1 does not attack itself.
const PROLOGUE: &str = "import os; os.chdir('/work')\n\
    for place in ('out', '.cache', '.home'): os.makedirs(place, exist_ok=True)\n\
    program = os.fork()\n\
    if program: os.waitpid(program, 0); os._exit(0)\n";

/// How long a program is listened to; each says what it has to say in a few seconds.
const HEARING: Duration = Duration::from_secs(45);

/// A container of our own. Dropping it removes it and checks that it is gone.
#[derive(Debug)]
pub(crate) struct Direct {
    name: String,
}

/// The settings of a live sandbox, for programs that are run directly.
pub(crate) fn settings_of(sandbox: ContainerInspectResponse) -> ContainerCreateBody {
    let config = sandbox.config.unwrap();
    let mut host = sandbox.host_config.unwrap();
    // The only way to hear a program that nobody is attached to.
    host.log_config = Some(HostConfigLogConfig {
        typ: Some("json-file".to_owned()),
        config: Some([("max-size".to_owned(), "8m".to_owned())].into()),
    });
    ContainerCreateBody {
        image: sandbox.image,
        user: config.user,
        hostname: config.hostname,
        working_dir: config.working_dir,
        network_disabled: config.network_disabled,
        healthcheck: config.healthcheck,
        host_config: Some(host),
        ..Default::default()
    }
}

impl Direct {
    /// Starts a Python program.
    pub(crate) async fn start(settings: &ContainerCreateBody, code: &str) -> Self {
        let direct = Self {
            name: format!("fumehood-test-direct-{}", uuid::Uuid::new_v4()),
        };
        let command = ["python3", "-I", "-B", "-c"].map(str::to_owned);
        let body = ContainerCreateBody {
            entrypoint: Some(command.into()),
            cmd: Some(vec![format!("{PROLOGUE}{code}")]),
            ..settings.clone()
        };
        let create = CreateContainerOptions {
            name: Some(direct.name.clone()),
            ..Default::default()
        };
        let docker = docker().await;
        docker.create_container(Some(create), body).await.unwrap();
        let start = None::<StartContainerOptions>;
        docker.start_container(&direct.name, start).await.unwrap();
        direct
    }

    /// Its name on the engine.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its standard output, until it has ended, said enough, or had its time.
    pub(crate) async fn output(&self, enough: impl Fn(&str) -> bool) -> String {
        let follow = LogsOptions {
            follow: true,
            stdout: true,
            stderr: true,
            ..Default::default()
        };
        let docker = docker().await;
        let mut lines = Box::pin(docker.logs(&self.name, Some(follow)));
        let mut output = String::new();
        let reading = async {
            while !enough(&output)
                && let Some(piece) = lines.next().await
            {
                match piece.unwrap() {
                    LogOutput::StdOut { message } => {
                        output.push_str(&String::from_utf8_lossy(&message));
                    }
                    LogOutput::StdErr { message } => {
                        eprint!("{}", String::from_utf8_lossy(&message));
                    }
                    LogOutput::StdIn { .. } | LogOutput::Console { .. } => {}
                }
            }
        };
        if tokio::time::timeout(HEARING, reading).await.is_err() {
            eprintln!("{} says nothing more and does not end", self.name);
        }
        output
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        let name = self.name.clone();
        let gone = block_on(async move {
            let docker = docker().await;
            let force = RemoveContainerOptions {
                force: true,
                ..Default::default()
            };
            let _ = docker.remove_container(&name, Some(force)).await;
            let look = None::<InspectContainerOptions>;
            docker.inspect_container(&name, look).await.is_err()
        });
        assert!(
            gone || std::thread::panicking(),
            "{} is still there",
            self.name
        );
    }
}
