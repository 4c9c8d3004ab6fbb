//! What holds after every program, whatever it was: nothing of it is left, others are served.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::artifacts::files;
use crate::support::Daemon;
use crate::support::daemon::client;
use crate::support::data::tree_hash;
use crate::support::engine::volumes;
use crate::support::wait::within;
use crate::support::watch::nothing_left;

/// In every place of the host that a program could be after, and in nothing that it may show.
pub(super) const CANARY: &str = "CANARY-of-the-host-5d0e";

/// An answer that takes longer is late.
const LATE: Duration = Duration::from_millis(200);

/// How long the host has until what a program used is free again.
pub(super) const SETTLED: Duration = Duration::from_secs(15);

/// The most by which the daemon may grow over one program, its debug build included.
const GROWTH: u64 = 48 << 20;

/// What was there before a program.
#[derive(Debug)]
pub(super) struct Before {
    data: String,
    volumes: BTreeSet<String>,
    resident: u64,
}

impl Before {
    pub(super) async fn look(daemon: &Daemon) -> Self {
        Self {
            data: tree_hash(&daemon.data()),
            volumes: all_volumes().await,
            resident: daemon.resident_bytes(),
        }
    }

    pub(super) async fn assert_unharmed(&self, daemon: &Daemon) {
        nothing_left(daemon, SETTLED).await;
        assert_eq!(
            tree_hash(&daemon.data()),
            self.data,
            "the data set is another"
        );
        let others = |now: &BTreeSet<String>| {
            let new = now.difference(&self.volumes);
            new.filter(|name| !name.starts_with("fumehood-")).count()
        };
        let settled = within(SETTLED, all_volumes, |now| others(now) == 0).await;
        assert!(settled.is_ok(), "new volumes: {settled:?}");
        let grown = daemon.resident_bytes().saturating_sub(self.resident);
        assert!(grown < GROWTH, "the daemon grew by {grown} bytes");
        assert!(!daemon.log().contains(CANARY), "a secret is in the log");
    }
}

/// Answers to somebody who asks all the time.
#[derive(Debug, Default)]
pub(super) struct Health {
    answers: usize,
    late: usize,
    slowest: Duration,
}

impl Health {
    /// Does something, and asks after the daemon's health meanwhile.
    pub(super) async fn during<T>(daemon: &Daemon, work: impl Future<Output = T>) -> (T, Self) {
        let done = AtomicBool::new(false);
        let asking = async {
            let mut health = Self::default();
            let mut tick = tokio::time::interval(Duration::from_millis(25));
            while !done.load(Ordering::Relaxed) {
                tick.tick().await;
                let asked = Instant::now();
                assert_eq!(daemon.get("/health").await.0, 200);
                let took = asked.elapsed();
                health.answers += 1;
                health.late += usize::from(took > LATE);
                health.slowest = health.slowest.max(took);
            }
            health
        };
        let working = async {
            let result = work.await;
            done.store(true, Ordering::Relaxed);
            result
        };
        tokio::join!(working, asking)
    }

    /// A busy host may make one in twenty late; a daemon that is held up makes most.
    pub(super) fn assert_good(&self) {
        assert!(self.answers > 0);
        assert!(self.late <= 1 + self.answers / 20, "{self:?}");
    }
}

/// Another client's run, whose result has to be its own.
pub(super) async fn neighbour_run(daemon: &Daemon, body: &Value) -> Value {
    let request = client(7)
        .post(format!("{}/runs", daemon.address()))
        .header("Prefer", "wait=110")
        .json(body);
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.json().await.unwrap()
}

pub(super) async fn assert_neighbour_is_served(daemon: &Daemon) {
    let body = json!({"code": "print('served')", "options": {"timeout_seconds": 10}});
    let run = neighbour_run(daemon, &body).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    assert_eq!(run["result"]["stdout"], "served\n");
}

/// What a run left is what it lists, has no privilege, and holds nothing of the host.
pub(super) fn assert_clean(daemon: &Daemon, run: &Value) {
    let result = &run["result"];
    assert!(
        !run.to_string().contains(CANARY),
        "a secret is in the result"
    );
    let directory = daemon.artifacts(result["execution_id"].as_str().unwrap());
    if !directory.exists() {
        assert_eq!(result["artifacts"], json!([]), "{result:#}");
        return;
    }
    for (name, content) in files(daemon, result) {
        let metadata = directory.join(&name).metadata().unwrap();
        assert_eq!(metadata.mode() & 0o7022, 0, "{name}");
        let holds = |text: &[u8]| content.windows(text.len()).any(|part| part == text);
        // Of a large file the beginning: nothing of the host is that large.
        let small = content.len() < 1 << 20;
        assert!(
            !small || (!holds(CANARY.as_bytes()) && !holds(b"root:x:0:0")),
            "{name} is foreign"
        );
    }
}

async fn all_volumes() -> BTreeSet<String> {
    volumes().await.into_iter().collect()
}
