//! A daemon behind a proxy in front of the second engine.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use fumehood::fault_point::FaultPoint;
use fumehood::fault_point::bench::{CLOCK, DIE_AT, DIED_AT};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::engine::{SecondEngine, Setup};
use super::starts::Starts;
use crate::support::daemon::PATIENCE;
use crate::support::proxy::Proxy;
use crate::support::wait::until;
use crate::support::{Daemon, Settings};

/// What the daemon needs to hand its containers over and to have them removed.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// In the order in which they have to go away.
pub(crate) struct Stand {
    pub(crate) daemon: Daemon,
    pub(crate) starts: Starts,
    pub(crate) proxy: Proxy,
    pub(crate) engine: SecondEngine,
    orders: TempDir,
}

impl Stand {
    /// With the usual settings.
    pub(crate) async fn new() -> Self {
        Self::with(Setup::default(), "").await
    }

    /// With settings of its own.
    pub(crate) async fn with(setup: Setup, toml: &str) -> Self {
        let engine = SecondEngine::start(setup).await;
        let proxy = Proxy::before(&engine.socket());
        let starts = Starts::count(&proxy);
        let orders = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let variable = orders.path().to_str().unwrap().to_owned();
        let daemon = Daemon::start_with(Settings {
            engine: Some(proxy.socket()),
            toml: toml.to_owned(),
            environment: vec![("FAULT_BENCH_DIRECTORY", variable)],
            ..Settings::default()
        })
        .await;
        Self {
            daemon,
            starts,
            proxy,
            engine,
            orders,
        }
    }

    /// From now on the daemon dies when it is at this point.
    pub(crate) fn die_at(&self, point: FaultPoint) {
        let _ = fs::remove_file(self.order(DIED_AT));
        fs::write(self.order(DIE_AT), point.name()).unwrap();
    }

    /// It does not die any more.
    pub(crate) fn spare(&self) {
        let _ = fs::remove_file(self.order(DIE_AT));
    }

    /// Whether it has died there.
    pub(crate) fn has_died(&self) -> bool {
        self.order(DIED_AT).exists()
    }

    /// Waits until it has died there, and sees to it that the next one does not.
    pub(crate) async fn died(&mut self) {
        let mark = self.order(DIED_AT);
        until(PATIENCE, async || mark.exists(), |died| *died).await;
        fs::remove_file(self.order(DIE_AT)).unwrap();
        self.daemon.kill();
    }

    /// From now on its wall clock is wrong by so many seconds.
    pub(crate) fn set_clock(&self, seconds_ahead: i64) {
        // In one step: nobody reads half a number.
        let new = self.order("clock.new");
        fs::write(&new, seconds_ahead.to_string()).unwrap();
        fs::rename(new, self.order(CLOCK)).unwrap();
    }

    /// Lets it die at a point with one run of this code in hand, and starts it again; gives the id
    /// of the run as the next daemon lists it.
    pub(crate) async fn killed_at(&mut self, point: FaultPoint, code: &str) -> String {
        self.die_at(point);
        let submitted = self.try_submit(&json!({ "code": code }), None).await;
        self.died().await;
        self.daemon.launch();
        match submitted {
            Some(id) => id,
            None => self.only_run().await,
        }
    }

    /// Submits a run to a daemon that may die meanwhile; its id, if it was acknowledged.
    pub(crate) async fn try_submit(&self, body: &Value, key: Option<&str>) -> Option<String> {
        let mut request = self.daemon.request(reqwest::Method::POST, "/runs");
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let response = request.json(body).send().await.ok()?;
        let status = response.status().as_u16();
        let answer: Value = response.json().await.ok()?;
        assert_eq!(status, 200, "{answer}");
        Some(answer["run_id"].as_str().unwrap().to_owned())
    }

    /// The only run that the daemon knows.
    pub(crate) async fn only_run(&self) -> String {
        let runs = self.runs().await;
        assert_eq!(runs.len(), 1, "{runs:?}");
        runs[0]["run_id"].as_str().unwrap().to_owned()
    }

    /// The newest runs that it knows.
    pub(crate) async fn runs(&self) -> Vec<Value> {
        let (status, list) = self.daemon.get("/runs?limit=100").await;
        assert_eq!(status, 200, "{list}");
        list["runs"].as_array().unwrap().clone()
    }

    /// Starts a daemon where this one was and kills it after a while, whatever it does by then.
    pub(crate) async fn interrupted_start(&self, after: Duration) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fumehood"))
            .args(["serve", "--log", "error"])
            .current_dir(self.daemon.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        tokio::time::sleep(after).await;
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The engine behaves again. Starts are still counted.
    pub(crate) fn behave(&self) {
        self.proxy.behave();
        self.starts.go_on(&self.proxy);
    }

    /// A program still works, and nothing is left after it.
    pub(crate) async fn assert_heals(&self) {
        let result = self.daemon.execute("print('works')").await;
        assert_eq!(result["status"], "SUCCESS", "{result:#}");
        assert_eq!(result["stdout"], "works\n");
        self.engine.is_empty(SOON).await;
    }

    fn order(&self, name: &str) -> PathBuf {
        self.orders.path().join(name)
    }
}

/// Ours, and nobody else's: no exit code, no limit, no word that blames the program.
#[track_caller]
pub(crate) fn assert_infrastructure(run: &Value) {
    let result = &run["result"];
    assert_eq!(run["status"], "FAIL", "{run:#}");
    assert_eq!(result["status"], "ERROR", "{run:#}");
    assert_eq!(result["cause"]["kind"], "infrastructure", "{run:#}");
    assert_eq!(result["return_code"], Value::Null, "{run:#}");
    assert_eq!(result["timed_out"], false, "{run:#}");
    assert_eq!(result["limit"], Value::Null, "{run:#}");
}
