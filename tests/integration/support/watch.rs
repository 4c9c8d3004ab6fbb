//! What a run does while it does it: its events, its container, its processes on the host.

use std::time::Duration;

use serde_json::{Value, json};

use super::Daemon;
use super::daemon::PATIENCE;
use super::engine::{containers_of, inspect, running_containers_of};
use super::wait::until;

/// Waits until a run has printed `text`; gives everything that its event stream said until then.
pub(crate) async fn printed(daemon: &Daemon, run: &str, text: &str) -> String {
    let path = format!("/runs/{run}/events");
    let request = daemon.request(reqwest::Method::GET, &path).send();
    let mut events = request.await.unwrap();
    let mut seen = Vec::new();
    let reading = async {
        while !output(&seen).contains(text) {
            let piece = events.chunk().await.unwrap();
            let piece = piece.unwrap_or_else(|| {
                let seen = String::from_utf8_lossy(&seen);
                panic!("the run never printed {text}: {seen}")
            });
            seen.extend_from_slice(&piece);
        }
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .unwrap_or_else(|_| panic!("the run did not print {text} in time"));
    String::from_utf8_lossy(&seen).into_owned()
}

/// What the program wrote, of all that the events say: ids and states are not its.
fn output(events: &[u8]) -> String {
    let events = String::from_utf8_lossy(events);
    let whole = events.rsplit_once("\n\n").map_or("", |(whole, _)| whole);
    let data = whole.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter_map(|data| {
        let data: Value = serde_json::from_str(data).unwrap();
        data["text"].as_str().map(str::to_owned)
    })
    .collect()
}

/// A run that was submitted and can be asked for its result later.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) id: String,
    body: Value,
}

impl Flight {
    /// Submits a run.
    pub(crate) async fn start(daemon: &Daemon, body: Value) -> Self {
        let key = uuid::Uuid::new_v4().to_string();
        let mut flight = Self {
            id: String::new(),
            body: json!({ "key": key, "body": body }),
        };
        let (status, answer) = flight.post(daemon, None).await;
        assert_eq!(status, 200, "{answer}");
        flight.id = answer["run_id"].as_str().unwrap().to_owned();
        flight
    }

    /// Submits a run and waits until it has printed `text`.
    pub(crate) async fn start_until(daemon: &Daemon, body: Value, text: &str) -> Self {
        let flight = Self::start(daemon, body).await;
        printed(daemon, &flight.id, text).await;
        flight
    }

    /// Waits for its end; gives the run object with `result`: the same submission again gives the
    /// same run.
    pub(crate) async fn end(&self, daemon: &Daemon) -> Value {
        let (status, run) = self.post(daemon, Some("wait=110")).await;
        assert_eq!(status, 200, "{run}");
        assert_eq!(run["run_id"], self.id, "{run}");
        assert_ne!(run["status"], "RUNNING", "{run}\n{}", daemon.log());
        run
    }

    async fn post(&self, daemon: &Daemon, prefer: Option<&str>) -> (u16, Value) {
        let mut request = daemon
            .request(reqwest::Method::POST, "/runs")
            .header("Idempotency-Key", self.body["key"].as_str().unwrap())
            .json(&self.body["body"]);
        if let Some(prefer) = prefer {
            request = request.header("Prefer", prefer);
        }
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }
}

/// Waits for the one container of a daemon in which something runs; gives its name.
pub(crate) async fn only_container(daemon: &Daemon) -> String {
    let instance = daemon.instance();
    let names = until(
        PATIENCE,
        || running_containers_of(&instance),
        |n| n.len() == 1,
    )
    .await;
    names[0].trim_start_matches('/').to_owned()
}

/// The engine's id of a container, as it stands in the control groups of its processes.
pub(crate) async fn container_id(name: &str) -> String {
    inspect(name).await.id.unwrap()
}

/// The processes of a container that the host sees, whatever the engine says.
pub(crate) fn processes_of(container_id: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("cgroup")).ok())
        .filter(|groups| groups.contains(container_id))
        .count()
}

/// Waits until nothing of a daemon is on the engine; nothing half-done is on the disk then.
pub(crate) async fn nothing_left(daemon: &Daemon, bound: Duration) {
    let instance = daemon.instance();
    until(bound, || containers_of(&instance), Vec::is_empty).await;
    let models = std::fs::read_dir(daemon.artifacts(""))
        .into_iter()
        .flatten();
    let half_done: Vec<_> = models
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| !name.to_string_lossy().starts_with("exec_"))
        .collect();
    assert_eq!(half_done, Vec::<std::ffi::OsString>::new());
}

/// A body with a time limit.
pub(crate) fn limited(code: &str, seconds: f64) -> Value {
    json!({ "code": code, "options": { "timeout_seconds": seconds } })
}
