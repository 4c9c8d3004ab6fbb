//! A daemon and its doctor: no run is taken before what is mandatory was seen.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::daemon::PATIENCE;
use crate::support::engine::has_runtime;
use crate::support::proxy::{Fault, Proxy};
use crate::support::wait::until;
use crate::support::watch::nothing_left;
use crate::support::{Daemon, Settings};

async fn examined_daemon(proxy: &Proxy) -> Daemon {
    Daemon::start_with(Settings {
        toml: "[doctor]\nat_start = true".to_owned(),
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await
}

async fn until_ready(daemon: &Daemon) {
    let ask = || async { daemon.get("/ready").await };
    until(PATIENCE, ask, |(status, _)| *status == 200).await;
}

async fn until_reason(daemon: &Daemon, words: &str) -> Value {
    let ask = || async { daemon.get("/ready").await.1 };
    until(PATIENCE, ask, |answer| answer.to_string().contains(words)).await
}

/// Refused with the neutral text, and a time to come again.
async fn assert_refused(daemon: &Daemon) {
    let request = daemon.request(reqwest::Method::POST, "/runs");
    let response = request.json(&json!({ "code": "print()" })).send();
    let response = response.await.unwrap();
    assert_eq!(response.status().as_u16(), 503);
    assert!(response.headers().contains_key("retry-after"));
    let answer: Value = response.json().await.unwrap();
    assert_eq!(
        answer,
        json!({ "detail": "Service temporarily unavailable" })
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_waits_until_the_sandboxes_were_examined_and_the_daemon_answers_meanwhile() {
    let proxy = Proxy::start();
    let daemon = examined_daemon(&proxy).await;
    assert_eq!(daemon.get("/health").await.0, 200);
    let (status, answer) = daemon.get("/ready").await;
    assert_eq!(status, 503, "{answer}");
    let reason = answer["reasons"][0].as_str().unwrap();
    assert!(reason.contains("not been examined yet"), "{reason}");
    let result = daemon.execute("print('works')").await;
    assert_eq!(daemon.get("/ready").await.0, 200);
    assert_eq!(result["stdout"], "works\n", "{result:#}");
    nothing_left(&daemon, PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_on_a_host_that_lacks_a_wall_takes_no_run_and_says_which() {
    let proxy = Proxy::start();
    proxy.weaken(|body| body["HostConfig"]["PidsLimit"] = 10_000.into());
    let mut daemon = examined_daemon(&proxy).await;
    let answer = until_reason(&daemon, "row 38").await;
    assert_eq!(answer["status"], "unavailable");
    assert!(!answer["reasons"].to_string().contains('/'), "{answer}");
    assert_refused(&daemon).await;
    assert_eq!(daemon.get("/live").await.0, 200);
    assert!(daemon.log().contains("no run is taken"));
    // It stays so until it is looked at again, as a new start does at once.
    proxy.behave();
    assert_refused(&daemon).await;
    daemon.stop();
    daemon.launch();
    until_ready(&daemon).await;
    assert_eq!(daemon.execute("print(1)").await["stdout"], "1\n");
    nothing_left(&daemon, PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_engine_is_examined_anew_before_it_gets_runs() {
    let proxy = Proxy::start();
    let daemon = examined_daemon(&proxy).await;
    until_ready(&daemon).await;
    proxy.weaken(|body| body["HostConfig"]["OomScoreAdj"] = 0.into());
    let other = Fault::Rewrite {
        request: Arc::new(|_: &str, _: &mut Value| {}),
        answer: Arc::new(|_: &str, answer: &mut Value| answer["ID"] = "another".into()),
    };
    proxy.fault("GET", "/info", other);
    until_reason(&daemon, "row 37").await;
    assert_refused(&daemon).await;
    // The first engine again: examined once more.
    proxy.behave();
    until_ready(&daemon).await;
    assert_eq!(daemon.execute("print(1)").await["stdout"], "1\n");
    nothing_left(&daemon, PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_comes_later_is_examined_when_it_is_there() {
    let proxy = Proxy::start();
    proxy.leave();
    let daemon = examined_daemon(&proxy).await;
    until_reason(&daemon, "not reachable").await;
    assert_refused(&daemon).await;
    proxy.come_back();
    until_ready(&daemon).await;
    assert_eq!(daemon.execute("print(1)").await["stdout"], "1\n");
    nothing_left(&daemon, PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_that_is_switched_off_is_warned_about() {
    let daemon = Daemon::start().await;
    assert_eq!(daemon.execute("print(1)").await["stdout"], "1\n");
    let log = || async { daemon.log() };
    until(PATIENCE, log, |log| log.contains("doctor.at_start is off")).await;
}

/// A request asks for a minimum: it gets that or more, or it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_tier_that_the_host_lacks_is_refused_and_one_that_it_has_is_given() {
    let proxy = Proxy::start();
    let lacking = Fault::Rewrite {
        request: Arc::new(|_: &str, _: &mut Value| {}),
        answer: Arc::new(|_: &str, answer: &mut Value| {
            if let Some(runtimes) = answer["Runtimes"].as_object_mut() {
                runtimes.remove("runsc");
            }
        }),
    };
    proxy.fault("GET", "/info", lacking);
    let daemon = examined_daemon(&proxy).await;
    until_ready(&daemon).await;
    let asks = |runtime: &str| {
        let code = "import os; print(os.uname().release)";
        json!({ "code": code, "options": {"runtime": runtime} })
    };
    let (status, answer) = daemon.post("/runs", &asks("runsc")).await;
    assert_eq!(status, 422, "{answer}");
    assert_eq!(
        answer["detail"][0]["loc"],
        json!(["body", "options", "runtime"])
    );
    assert_eq!(answer["detail"][0]["type"], "literal_error");
    let result = daemon.result(asks("runc")).await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");

    if !has_runtime("runsc").await {
        eprintln!("SKIPPED: the engine has no runsc");
        return;
    }
    proxy.behave();
    let both = || async { daemon.get("/settings").await.1["runtimes"].to_string() };
    until(PATIENCE, both, |names| names.contains("runsc")).await;
    let result = daemon.result(asks("runsc")).await;
    // What gVisor's own kernel calls itself.
    let release = result["stdout"].as_str().unwrap();
    assert!(release.starts_with("4."), "{result:#}");
    nothing_left(&daemon, PATIENCE).await;
}
