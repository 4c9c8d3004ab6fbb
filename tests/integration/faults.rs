//! The engine misbehaves (bug cases BR-06, BR-08, BR-39): whose fault it was is told truly, in a
//! bounded time, and nothing stays behind.

mod gone;

mod late;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bollard::query_parameters::{RemoveContainerOptions, RemoveVolumeOptions};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::daemon::PATIENCE;
use crate::support::engine::{containers_of, docker, kill, volumes};
use crate::support::proxy::{Fault, Proxy};
use crate::support::wait::until;
use crate::support::watch::{
    Flight, container_id, limited, nothing_left, only_container, processes_of,
};
use crate::support::{Daemon, Settings};

const SLEEPS: &str = "import time; print('armed\\n', end=''); time.sleep(60)";

/// What the daemon needs to hand a container over and to remove it.
const SOON: Duration = Duration::from_secs(30);

async fn daemon_behind(proxy: &Proxy) -> Daemon {
    let daemon = Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    // The supervisor's volume is there after this, so that what follows meets the run's own calls.
    assert_works(&daemon).await;
    nothing_left(&daemon, SOON).await;
    daemon
}

async fn assert_works(daemon: &Daemon) {
    let result = daemon.execute("print('works')").await;
    assert_eq!(result["status"], "SUCCESS", "{result}");
    assert_eq!(result["stdout"], "works\n");
}

/// Ours, and nobody else's: no exit code, no word that blames the program.
fn assert_infrastructure(run: &Value) {
    let result = &run["result"];
    assert_eq!(run["status"], "FAIL", "{run}");
    assert_eq!(result["status"], "ERROR", "{run}");
    assert_eq!(result["cause"]["kind"], "infrastructure");
    assert_eq!(result["success"], false);
    assert_eq!(result["return_code"], Value::Null);
    assert_eq!(result["timed_out"], false);
    assert_eq!(result["limit"], Value::Null);
    let why = result["error_info"].as_str().unwrap();
    assert!(!why.contains('/'), "a path in: {why}");
    assert_eq!(run["final_error"], why);
}

fn assert_clean_up_is_pending(result: &Value) {
    let warnings = result["warnings"].as_array().unwrap();
    assert!(
        warnings
            .iter()
            .any(|text| text.as_str().unwrap().starts_with("Clean-up is pending")),
        "{warnings:?}"
    );
}

/// BR-08: no call to the engine may take its caller with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_the_engine_never_answers_ends_the_run_in_time_and_is_done_later() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let removals = proxy.fault("DELETE", "/containers/", Fault::Hang);
    for call in ["/kill", "/stop", "/wait"] {
        proxy.fault("POST", call, Fault::Hang);
    }
    let start = Instant::now();
    let flight = Flight::start(&daemon, limited(SLEEPS, 3.0)).await;
    let (run, ()) = tokio::join!(flight.end(&daemon), async {
        until(PATIENCE, async || removals.count(), |count| *count > 0).await;
        let asked = Instant::now();
        assert_eq!(daemon.get("/health").await.0, 200);
        assert_eq!(daemon.get(&format!("/runs/{}", flight.id)).await.0, 200);
        assert!(asked.elapsed() < Duration::from_secs(5));
    });
    let took = start.elapsed();
    assert!(took < Duration::from_secs(40), "{took:?}");
    let result = &run["result"];
    assert_eq!(result["status"], "TIMEOUT", "{run}");
    assert_eq!(result["stdout"], "armed\n");
    // Its uid is nobody else's as long as its container is there.
    let own_uid = "import os; print(os.getuid())";
    assert_eq!(daemon.execute(own_uid).await["stdout"], "50001\n");
    assert_eq!(containers_of(&daemon.instance()).await.len(), 2);
    proxy.behave();
    nothing_left(&daemon, SOON).await;
    assert_eq!(daemon.execute(own_uid).await["stdout"], "50000\n");
}

/// BR-08, for a run that is ended on request.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_run_keeps_its_result_when_the_engine_never_answers_its_removal() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    proxy.fault("DELETE", "/containers/", Fault::Hang);
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 60.0), "armed").await;
    let path = format!("/runs/{}/cancel", flight.id);
    assert_eq!(daemon.post(&path, &json!({})).await.0, 200);
    // While the removal still hangs: nobody waits for it without a bound.
    let run = flight.end(&daemon).await;
    assert_eq!(run["status"], "CANCELLED", "{run}");
    let result = &run["result"];
    assert_eq!(result["status"], "CANCELLED", "{run}");
    assert_eq!(result["stdout"], "armed\n");
    proxy.behave();
    nothing_left(&daemon, SOON).await;
}

/// An engine that removes more slowly than it makes is not asked for ever more.
#[tokio::test(flavor = "multi_thread")]
async fn more_removals_than_may_be_outstanding_are_waited_for_and_the_result_says_so() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    proxy.fault("DELETE", "/containers/", Fault::Hang);
    for _ in 0..16 {
        let result = daemon.execute("print()").await;
        assert_eq!(result["warnings"], json!([]), "nobody waits for a few");
    }
    let result = daemon.execute("print('one more')").await;
    assert_eq!(result["stdout"], "one more\n", "{result:#}");
    assert_eq!(result["status"], "SUCCESS");
    assert_clean_up_is_pending(&result);
    proxy.behave();
    nothing_left(&daemon, SOON).await;
}

/// Nobody's clock runs meanwhile, and when it answers they are carried out side by side.
#[tokio::test(flavor = "multi_thread")]
async fn runs_for_an_engine_that_never_answers_wait_together_and_not_one_after_the_other() {
    let proxy = Proxy::start();
    for method in ["GET", "HEAD"] {
        proxy.fault(method, "/", Fault::Hang);
    }
    let daemon = Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        toml: "[app]\nmax_concurrent_runs = 4".to_owned(),
        ..Settings::default()
    })
    .await;
    let bodies = (0..4).map(|_| Flight::start(&daemon, json!({ "code": "print()" })));
    let flights = join_all(bodies).await;
    let ask = || async { daemon.get("/ready").await.1.to_string() };
    until(PATIENCE, ask, |text| text.contains("did not answer within")).await;
    for flight in &flights {
        let run = daemon.get(&format!("/runs/{}", flight.id)).await.1;
        assert!(run["final_error"].is_null(), "{run:#}");
    }
    proxy.behave();
    let start = Instant::now();
    for run in join_all(flights.iter().map(|flight| flight.end(&daemon))).await {
        assert_eq!(run["status"], "SUCCESS", "{run:#}");
    }
    assert!(start.elapsed() < Duration::from_secs(30), "{start:?}");
    assert_works(&daemon).await;
    nothing_left(&daemon, SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_goes_away_during_an_execution_is_used_again_when_it_is_back() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let code = "import time; print('armed', flush=True); time.sleep(3); print('over')";
    let flight = Flight::start_until(&daemon, limited(code, 60.0), "armed").await;
    proxy.leave();
    let ask = || async { daemon.get("/ready").await };
    let is_told = |(status, ready): &(u16, Value)| {
        *status == 503 && ready.to_string().contains("not reachable")
    };
    until(PATIENCE, ask, is_told).await;
    assert_eq!(daemon.get("/live").await.0, 200);
    let waiting = Flight::start(&daemon, json!({ "code": "print('waited')" })).await;

    proxy.come_back();
    let run = flight.end(&daemon).await;
    assert_eq!(run["result"]["stdout"], "armed\nover\n", "{run:#}");
    let run = waiting.end(&daemon).await;
    assert_eq!(run["result"]["stdout"], "waited\n", "{run:#}");
    assert_works(&daemon).await;
    assert_eq!(daemon.get("/ready").await.0, 200);
    nothing_left(&daemon, SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_creation_or_start_is_infrastructure_and_says_what_to_do() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    for (call, words) in [
        ("/containers/create", "create a sandbox"),
        ("/start", "start a sandbox"),
    ] {
        let message = "mkdir /var/lib/docker/overlay2/x: no space left on device";
        proxy.fault("POST", call, Fault::Refuse(500, message));
        let run = daemon.run(json!({ "code": "print()" })).await;
        assert_infrastructure(&run);
        let why = run["final_error"].as_str().unwrap();
        assert!(why.contains(words), "{why}");
        assert!(why.contains("log"), "no remedy in: {why}");
        assert_eq!(run["result"]["started_at"], Value::Null);
        assert!(
            daemon.log().contains(message),
            "the reason is not in the log"
        );
        proxy.behave();
        nothing_left(&daemon, SOON).await;
        assert_works(&daemon).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creation_whose_answer_is_lost_is_found_by_its_name_and_leaves_no_container() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    proxy.fault("POST", "/containers/create", Fault::LoseAnswer);
    let starts = proxy.fault("POST", "/start", Fault::Pass);
    let run = daemon.run(json!({ "code": "print('once')" })).await;
    assert_eq!(run["result"]["stdout"], "once\n", "{run:#}");
    assert_eq!(starts.count(), 1);
    nothing_left(&daemon, SOON).await;
    proxy.behave();
    assert_works(&daemon).await;
}

/// BR-40: a run that ends between "create" and its answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_cancelled_while_its_container_is_being_made_leaves_no_container() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let delay = Fault::Delay(Duration::from_secs(2));
    let creations = proxy.fault("POST", "/containers/create", delay);
    let flight = Flight::start(&daemon, limited(SLEEPS, 60.0)).await;
    until(PATIENCE, async || creations.count(), |count| *count == 1).await;
    let path = format!("/runs/{}/cancel", flight.id);
    assert_eq!(daemon.post(&path, &json!({})).await.0, 200);
    let run = flight.end(&daemon).await;
    assert_eq!(run["status"], "CANCELLED", "{run}");
    // The engine makes the container now, whatever became of the run; then it is removed.
    until(PATIENCE, async || creations.over(), |count| *count == 1).await;
    nothing_left(&daemon, SOON).await;
}

/// An engine that stands still is not a timer, and not a verdict.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_stands_still_delays_a_result_and_no_deadline() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    // Thawed before the deadline: the program ended in the meantime and its own end counts.
    let code = "import time; print('armed\\n', end=''); time.sleep(0.5); print('over')";
    let flight = Flight::start_until(&daemon, limited(code, 20.0), "armed").await;
    proxy.freeze(true);
    let frozen = Instant::now();
    until(PATIENCE, async || frozen.elapsed(), |t| t.as_secs() >= 5).await;
    proxy.freeze(false);
    let run = flight.end(&daemon).await;
    assert_eq!(run["result"]["status"], "SUCCESS", "{run}");
    assert_eq!(run["result"]["stdout"], "armed\nover\n");
    let duration = run["result"]["duration_seconds"].as_f64().unwrap();
    assert!((0.5..5.0).contains(&duration), "{duration}");

    // Not thawed: the supervisor ends the program in time, seen on the host.
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 5.0), "armed").await;
    let container = container_id(&only_container(&daemon).await).await;
    proxy.freeze(true);
    // The supervisor itself stays: it holds what the program left.
    until(
        Duration::from_secs(8),
        async || processes_of(&container),
        |count| *count <= 1,
    )
    .await;
    let run = flight.end(&daemon).await;
    assert_eq!(run["result"]["status"], "TIMEOUT", "{run}");
    assert_eq!(run["result"]["stdout"], "armed\n");
    proxy.freeze(false);
    nothing_left(&daemon, SOON).await;
    assert_works(&daemon).await;
}

/// Invariant: nothing runs in a sandbox that is weaker than was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_the_engine_did_not_apply_is_named_and_nothing_is_started() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    for (asked, applied, name) in [
        (
            r#""ReadonlyRootfs":true"#,
            r#""ReadonlyRootfs":false"#,
            "ReadonlyRootfs",
        ),
        (
            r#""NetworkMode":"none""#,
            r#""NetworkMode":"host""#,
            "NetworkMode",
        ),
        (r#""no-new-privileges"#, r#""new-privileges"#, "SecurityOpt"),
    ] {
        let answer = move |text: String| text.replace(asked, applied);
        let altered = Fault::Alter {
            request: Arc::new(std::convert::identity),
            answer: Arc::new(answer),
        };
        let starts = proxy.fault("POST", "/start", Fault::Pass);
        let inspections = proxy.fault("GET", "/containers/fumehood-", altered);
        let run = daemon.run(json!({ "code": "print()" })).await;
        assert!(inspections.count() > 0);
        assert_infrastructure(&run);
        let why = run["final_error"].as_str().unwrap();
        assert!(why.contains(name), "{why}");
        assert!(why.contains("nothing was started"), "{why}");
        assert_eq!(starts.count(), 0);
        proxy.behave();
        nothing_left(&daemon, SOON).await;
    }
    assert_works(&daemon).await;
}

/// BR-06: a slow engine is not the program's fault either.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_creation_and_start_are_not_charged_to_the_program() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    for call in ["/containers/create", "/start"] {
        proxy.fault("POST", call, Fault::Delay(Duration::from_secs(4)));
    }
    let code = "import time; time.sleep(1); print('whole')";
    let result = daemon.result(limited(code, 3.8)).await;
    assert_eq!(result["status"], "SUCCESS", "{result}");
    assert_eq!(result["stdout"], "whole\n");
    let duration = result["duration_seconds"].as_f64().unwrap();
    assert!((1.0..3.8).contains(&duration), "{duration}");
}

/// The daemon's engine calls the supervisor's volume by another name of the same length, so that
/// the one that other daemons use stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_volume_that_somebody_removed_is_made_again_for_the_next_run() {
    const USUAL: &str = "fumehood-supervisor-";
    let ours: Arc<str> = format!("fumehood-gone{:06x}-", rand::random::<u32>() >> 8).into();
    let proxy = Proxy::start();
    for (method, part) in [
        ("POST", "/volumes"),
        ("GET", "/volumes"),
        ("POST", "/containers/create"),
        ("GET", "/containers/"),
    ] {
        let (there, back) = (Arc::clone(&ours), Arc::clone(&ours));
        let renamed = Fault::Alter {
            request: Arc::new(move |text| text.replace(USUAL, &there)),
            answer: Arc::new(move |text| text.replace(&*back, USUAL)),
        };
        // Archives hold bytes, not text, and no name of a volume.
        proxy.fault("GET", "/archive", Fault::Pass);
        proxy.fault(method, part, renamed);
    }
    let daemon = daemon_behind(&proxy).await;
    let find = async || {
        let names = volumes().await;
        names.into_iter().find(|name| name.starts_with(&*ours))
    };
    for _ in 0..2 {
        let volume = find().await.expect("the volume is there after a run");
        nothing_left(&daemon, SOON).await;
        let docker = docker().await;
        let options = None::<RemoveVolumeOptions>;
        docker.remove_volume(&volume, options).await.unwrap();
        assert_works(&daemon).await;
    }
    drop(daemon);
    let volume = find().await.unwrap();
    let options = None::<RemoveVolumeOptions>;
    docker()
        .await
        .remove_volume(&volume, options)
        .await
        .unwrap();
}
