//! A daemon of the real program, and a client that checks every answer.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::engine::{block_on, containers_of, remove_containers_of, remove_leftovers_of};
use super::wait::until;

/// Longer than anything that a test waits for, the engine's slowest day included.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// How a daemon is started.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// TOML added to the test's configuration: `[execution]` and other sections whole. Without a
    /// `[pool]` there is none, and without a `[doctor]` the host is not examined: most tests are
    /// about one run.
    pub(crate) toml: String,
    /// Additional variables of its environment.
    pub(crate) environment: Vec<(&'static str, String)>,
    /// Files in its directory that are there when it starts, by name.
    pub(crate) files: Vec<(&'static str, String)>,
    /// What is logged, if not more of ours than of the libraries'.
    pub(crate) log: Option<&'static str>,
    /// The socket of its engine, if not the usual one.
    pub(crate) engine: Option<PathBuf>,
    /// How long programs may go on when it is asked to stop.
    pub(crate) drain_seconds: u64,
    /// The program, if not the one that was built.
    pub(crate) program: Option<PathBuf>,
}

/// A running daemon with a directory of its own: `data` (the allowed root), `outputs`, `state`.
/// Dropping it stops it and checks that it left nothing on the engine and nothing half-done.
#[derive(Debug)]
pub(crate) struct Daemon {
    directory: Option<TempDir>,
    child: Option<Child>,
    address: String,
    client: reqwest::Client,
    settings: Settings,
    asked_to_stop: AtomicBool,
}

impl Daemon {
    /// A daemon with the default configuration.
    pub(crate) async fn start() -> Self {
        Self::start_with(Settings::default()).await
    }

    /// A daemon with further settings.
    pub(crate) async fn start_with(settings: Settings) -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(directory.path().join("data")).unwrap();
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .no_proxy()
            .build()
            .unwrap();
        for (name, text) in &settings.files {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let mut daemon = Self {
            directory: Some(directory),
            child: None,
            address: String::new(),
            client,
            settings,
            asked_to_stop: AtomicBool::new(false),
        };
        daemon.launch();
        daemon
    }

    /// Starts the program in the same directory: the first time, or after [`Daemon::stop`].
    pub(crate) fn launch(&mut self) {
        let engine = self.settings.engine.as_deref();
        let engine = engine.map(|path| format!("[engine]\nhost = '{}'\n", path.display()));
        let config = format!(
            "[api]\nlisten = '127.0.0.1:0'\n[app]\nallowed_data_root = 'data'\n\
             output_root = 'outputs'\nstate_dir = 'state'\n[pool]\nsize = 0\n\
             [doctor]\nat_start = false\n{}\n{}",
            engine.unwrap_or_default(),
            self.settings.toml,
        );
        // A section that a test gives again would be an error: the test's keys go into ours.
        std::fs::write(self.path().join("fumehood.toml"), merged(&config)).unwrap();
        let built = Path::new(env!("CARGO_BIN_EXE_fumehood"));
        let drain_seconds = self.settings.drain_seconds.to_string();
        let mut child = Command::new(self.settings.program.as_deref().unwrap_or(built))
            .args([
                "serve",
                "--log",
                self.settings.log.unwrap_or("fumehood=debug,info"),
                "--drain-seconds",
                &drain_seconds,
            ])
            .current_dir(self.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(
                self.settings
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        let mut early = String::new();
        self.address = loop {
            let Some(Ok(line)) = lines.next() else {
                panic!("the daemon did not start:\n{early}")
            };
            if let Some((_, address)) = line.split_once("fumehood listens on ") {
                break address.to_owned();
            }
            early.push_str(&line);
            early.push('\n');
        };
        std::io::Write::write_all(&mut log, early.as_bytes()).unwrap();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let _ = std::io::Write::write_all(&mut log, format!("{line}\n").as_bytes());
            }
        });
        self.child = Some(child);
        self.asked_to_stop = AtomicBool::new(false);
    }

    /// Other settings for the next start.
    pub(crate) fn set_toml(&mut self, toml: &str) {
        toml.clone_into(&mut self.settings.toml);
    }

    /// Its directory.
    pub(crate) fn path(&self) -> &Path {
        self.directory.as_ref().unwrap().path()
    }

    /// The allowed data root.
    pub(crate) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    /// Where an execution's artifacts are.
    pub(crate) fn artifacts(&self, execution: &str) -> PathBuf {
        self.path().join("outputs/models").join(execution)
    }

    /// Everything it logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.path().join("daemon.log")
    }

    /// The identity on the labels of what it makes.
    pub(crate) fn instance(&self) -> String {
        std::fs::read_to_string(self.path().join("state/instance")).unwrap_or_default()
    }

    /// The executions that the next daemon would take over.
    pub(crate) fn handoffs(&self) -> Vec<String> {
        let directory = std::fs::read_dir(self.path().join("state/handoffs"));
        let names = directory.into_iter().flatten().flatten();
        names
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Its address, `http://127.0.0.1:…`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_whitespace()
            .nth(1)
            .unwrap()
            .parse::<u64>()
            .unwrap()
            << 10
    }

    /// Open descriptors. Those of the store are left out: it opens a few more connections when
    /// questions come at the same time, and keeps them.
    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid()))
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
            .filter(|target| !target.to_string_lossy().contains("fumehood.db"))
            .count()
    }

    /// A request to be built further.
    pub(crate) fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client
            .request(method, format!("{}{path}", self.address))
    }

    /// `GET`, as status and strict JSON.
    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.request(reqwest::Method::GET, path)).await
    }

    /// `POST` of a JSON body, as status and strict JSON.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        answer(self.request(reqwest::Method::POST, path).json(body)).await
    }

    /// Submits a run and gives its id.
    pub(crate) async fn submit(&self, body: Value) -> String {
        let (status, answer) = self.post("/runs", &body).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["status"], "QUEUED");
        answer["run_id"].as_str().unwrap().to_owned()
    }

    /// Waits until a run has ended; gives the run object.
    pub(crate) async fn ended(&self, id: &str) -> Value {
        let ask = || async { self.get(&format!("/runs/{id}")).await.1 };
        let is_over =
            |run: &Value| !["QUEUED", "RUNNING"].contains(&run["status"].as_str().unwrap());
        until(PATIENCE, ask, is_over).await
    }

    /// Runs a body to its end; gives the execution result of its last episode.
    pub(crate) async fn result(&self, body: Value) -> Value {
        self.run(body).await["result"].take()
    }

    /// Runs a body to its end; gives the run object with `result`.
    pub(crate) async fn run(&self, body: Value) -> Value {
        let request = self
            .request(reqwest::Method::POST, "/runs")
            .json(&body)
            .header("Prefer", "wait=110");
        let (status, run) = answer(request).await;
        assert_eq!(status, 200, "{run}");
        assert_ne!(run["result"], Value::Null, "{run}\n{}", self.log());
        run
    }

    /// Runs a program to its end; gives its result.
    pub(crate) async fn execute(&self, code: &str) -> Value {
        self.result(json!({ "code": code })).await
    }

    /// Asks the daemon to stop, once: a second request would mean "at once".
    pub(crate) fn ask_to_stop(&self) {
        if let Some(child) = &self.child
            && !self.asked_to_stop.swap(true, Ordering::Relaxed)
        {
            kill_process(Pid::from_child(child), Signal::TERM).unwrap();
        }
    }

    /// Asks the daemon to stop, as if for the first time.
    pub(crate) fn ask_again_to_stop(&self) {
        self.asked_to_stop.store(false, Ordering::Relaxed);
        self.ask_to_stop();
    }

    /// Asks the daemon to stop and waits until it is gone.
    pub(crate) fn stop(&mut self) {
        self.ask_to_stop();
        self.gone();
    }

    /// Waits until a daemon that was asked to stop is gone; gives its exit code.
    pub(crate) fn gone(&mut self) -> Option<i32> {
        let mut code = None;
        if let Some(child) = &mut self.child {
            wait_for(child);
            code = child.wait().unwrap().code();
            self.child = None;
        }
        code
    }

    /// Waits until the daemon has ended by itself; gives its exit code.
    pub(crate) fn ended_by_itself(&mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        wait_for(&child);
        child.wait().unwrap().code()
    }

    /// Kills the daemon without a warning.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// What of it is on the engine, and which half-done artifacts are on the disk. What it has left to
    /// the next one on purpose does not count.
    async fn left(instance: String, models: PathBuf, handoffs: Vec<String>) -> Vec<String> {
        let mut left = containers_of(&instance).await;
        left.retain(|name| !handoffs.iter().any(|kept| name.ends_with(kept)));
        let entries = std::fs::read_dir(models).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        left.extend(names.filter(|name| !name.starts_with("exec_")));
        left
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        if failed {
            eprintln!("--- the daemon's log\n{}", self.log());
            if let Some(child) = &mut self.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        } else {
            self.stop();
        }
        let (instance, models) = (self.instance(), self.path().join("outputs/models"));
        if instance.is_empty() {
            return;
        }
        let handoffs = self.handoffs();
        if !handoffs.is_empty() {
            // There is no next one.
            let removing = remove_leftovers_of(instance.clone(), handoffs.clone());
            block_on(removing);
        }
        let left = block_on(Self::left(instance.clone(), models, handoffs));
        if !left.is_empty() {
            // Not for the next test to stumble over.
            block_on(remove_containers_of(instance));
            // Behind a proxy the engine may have been out of reach in the end.
            let excused = failed || self.settings.engine.is_some();
            assert!(excused, "left behind: {left:?}\n{}", self.log());
        }
    }
}

/// A client of its own: whose a run is follows from the address.
pub(crate) fn client(number: usize) -> reqwest::Client {
    let address = Ipv4Addr::new(127, 0, 0, 10 + u8::try_from(number).unwrap());
    reqwest::Client::builder()
        .local_address(IpAddr::V4(address))
        .timeout(PATIENCE)
        .no_proxy()
        .build()
        .unwrap()
}

/// Waits, within a bound, until a daemon is gone.
fn wait_for(child: &Child) {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let bound = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(&process, PollFlags::IN)];
    let gone = poll(&mut polled, Some(&bound)).unwrap();
    assert_eq!(gone, 1, "the daemon does not stop");
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let bytes = response.bytes().await.unwrap();
    let text = std::str::from_utf8(&bytes).expect("answers are UTF-8");
    (
        status,
        serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}")),
    )
}

/// One table per section, later keys over earlier ones.
fn merged(text: &str) -> String {
    let mut sections: Vec<(String, Vec<String>)> = Vec::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if line.starts_with('[') {
            current = line.to_owned();
        }
        let index = sections
            .iter()
            .position(|(name, _)| *name == current)
            .unwrap_or_else(|| {
                sections.push((current.clone(), Vec::new()));
                sections.len() - 1
            });
        if !line.starts_with('[') {
            let key = line.split('=').next().unwrap_or_default().trim().to_owned();
            sections[index]
                .1
                .retain(|l| l.split('=').next().unwrap_or_default().trim() != key);
            sections[index].1.push(line.to_owned());
        }
    }
    sections
        .iter()
        .map(|(name, lines)| format!("{name}\n{}\n", lines.join("\n")))
        .collect()
}
