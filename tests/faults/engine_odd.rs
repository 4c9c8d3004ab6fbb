//! The engine is slow, garbles, refuses, or somebody else meddles with it (security.md 3.4, F8 to F12).

use std::time::{Duration, Instant};

use bollard::query_parameters::{
    RemoveContainerOptions, RemoveImageOptions, TagImageOptions, TagImageOptionsBuilder,
};
use fumehood::sandbox::docker::images::default_reference;
use serde_json::{Value, json};

use crate::bench::disk::SmallDisk;
use crate::bench::engine::Setup;
use crate::bench::stand::{SOON, Stand, assert_infrastructure};
use crate::bench::starts::nonce;
use crate::support::daemon::PATIENCE;
use crate::support::proxy::Fault;
use crate::support::wait::until;
use crate::support::watch::{Flight, limited};

const SLEEPS: &str = "import time; print('armed\\n', end='', flush=True); time.sleep(60)";

/// The calls of one run, by kind.
const CALLS: [(&str, &str, &str); 6] = [
    ("look an image up", "GET", "/images/"),
    ("look the volume up", "GET", "/volumes/"),
    ("create", "POST", "/containers/create"),
    ("inspect", "GET", "/containers/fumehood-"),
    ("start", "POST", "/start"),
    ("remove", "DELETE", "/containers/"),
];

/// What an engine can answer that is no answer.
fn garbled() -> [(&'static str, Fault); 5] {
    [
        ("500", Fault::Refuse(500, "an internal error")),
        ("truncated", Fault::Truncate(1)),
        ("empty", Fault::Truncate(0)),
        ("lost", Fault::LoseAnswer),
        ("slow", Fault::Delay(Duration::from_secs(3))),
    ]
}

/// More calls than one attempt makes, with its repetitions.
const TRIED_AGAIN: usize = 5;

/// Every kind of call, spoilt in every way. What the engine refuses costs the run; for what it does
/// not answer the run waits, and tries again.
#[tokio::test(flavor = "multi_thread")]
async fn f8_whatever_the_engine_answers_a_run_is_never_started_twice_and_never_blamed() {
    let stand = Stand::new().await;
    stand.assert_heals().await;
    for (call, method, part) in CALLS {
        for (how, fault) in garbled() {
            let nonce = nonce();
            let hits = stand.proxy.fault(method, part, fault);
            let begun = Instant::now();
            let body = json!({ "code": format!("print('{nonce}')") });
            let flight = Flight::start(&stand.daemon, body).await;
            let path = format!("/runs/{}", flight.id);
            // To its end, or until it has gone on waiting.
            let seen = async || {
                let status = stand.daemon.get(&path).await.1["status"].clone();
                (status, hits.count())
            };
            let is_clear = |(status, tried): &(Value, usize)| {
                *tried >= TRIED_AGAIN || (*status != "QUEUED" && *status != "RUNNING")
            };
            until(PATIENCE, seen, is_clear).await;
            stand.behave();
            let run = flight.end(&stand.daemon).await;
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(90), "{call} {how}: {took:?}");
            let started = stand.starts.of(&nonce);
            if run["status"] == "SUCCESS" {
                assert_eq!(run["result"]["stdout"], format!("{nonce}\n"));
                assert_eq!(started, 1, "{call} {how}: {run:#}");
            } else {
                assert_eq!(how, "500", "{call}: {run:#}");
                assert_infrastructure(&run);
                assert_eq!(started, 0, "{call}: {run:#}");
            }
            stand.engine.is_empty(SOON).await;
        }
    }
    stand.assert_heals().await;
}

/// Calls that may be repeated are, so that one bad answer costs nobody a run. Not what the engine says
/// of a creation or a start: that it refuses is an answer.
#[tokio::test(flavor = "multi_thread")]
async fn f8_one_bad_answer_to_any_call_costs_no_run() {
    let stand = Stand::new().await;
    stand.assert_heals().await;
    for (call, method, part) in CALLS {
        for (how, fault) in garbled() {
            let nonce = nonce();
            stand.proxy.fault_once(method, part, fault);
            let body = json!({ "code": format!("print('{nonce}')") });
            let run = stand.daemon.run(body).await;
            let started = stand.starts.of(&nonce);
            if how == "500" && ["create", "start"].contains(&call) {
                assert_infrastructure(&run);
                assert_eq!(started, 0, "{call} {how}");
            } else {
                assert_eq!(run["status"], "SUCCESS", "{call} {how}: {run:#}");
                assert_eq!(started, 1, "{call} {how}");
            }
            stand.behave();
            stand.engine.is_empty(SOON).await;
        }
    }
}

/// Two runs at a time, and not long waited for a kill.
const IMPATIENT: &str = "[app]\nmax_concurrent_runs = 2\n[engine]\nkill_seconds = 2";

/// A run whose supervisor never says that its program is over: frozen, as in an uninterruptible
/// sleep.
async fn frozen(stand: &Stand, seconds: f64) -> Flight {
    let flight = Flight::start_until(&stand.daemon, limited(SLEEPS, seconds), "armed").await;
    let name = stand.engine.only_container().await;
    stand.engine.pause(&name).await;
    flight
}

#[track_caller]
fn assert_warned(run: &Value) {
    let warnings = run["result"]["warnings"].to_string();
    assert!(warnings.contains("set aside until"), "{run:#}");
}

/// The engine is there and does not confirm the end: that is no time limit, after which nothing runs.
#[tokio::test(flavor = "multi_thread")]
async fn f9_a_kill_that_is_not_confirmed_quarantines_its_slot_and_blocks_nobody() {
    let stand = Stand::with(Setup::default(), IMPATIENT).await;
    stand.assert_heals().await;
    for (method, part) in [("POST", "/kill"), ("DELETE", "/containers/")] {
        stand.proxy.fault(method, part, Fault::Hang);
    }
    let run = frozen(&stand, 3.0).await.end(&stand.daemon).await;
    assert_infrastructure(&run);
    let why = run["final_error"].as_str().unwrap();
    assert!(why.contains("could not be confirmed"), "{why}");
    assert_warned(&run);
    let (status, ready) = stand.daemon.get("/ready").await;
    assert_eq!((status, &ready["set_aside"]), (200, &json!(1)), "{ready}");
    let others = (0..4).map(|_| stand.daemon.run(json!({ "code": "print()" })));
    for other in futures_util::future::join_all(others).await {
        assert_eq!(other["status"], "SUCCESS", "{other:#}");
    }
    stand.behave();
    stand.engine.is_empty(SOON).await;
    let set_aside = async || stand.daemon.get("/ready").await.1["set_aside"].clone();
    until(PATIENCE, set_aside, Value::is_null).await;
}

/// Nobody was told that it was done, and everybody can see that it was.
#[tokio::test(flavor = "multi_thread")]
async fn f9_a_kill_whose_answer_is_lost_is_a_time_limit_like_any_other() {
    let stand = Stand::with(Setup::default(), IMPATIENT).await;
    stand.assert_heals().await;
    stand.proxy.fault("POST", "/kill", Fault::LoseAnswer);
    let run = frozen(&stand, 3.0).await.end(&stand.daemon).await;
    assert_eq!(run["result"]["status"], "TIMEOUT", "{run:#}");
    let warnings = run["result"]["warnings"].to_string();
    assert!(!warnings.contains("set aside"), "{run:#}");
    assert_eq!(stand.daemon.get("/ready").await.1["set_aside"], Value::Null);
    stand.behave();
    stand.engine.is_empty(SOON).await;
}

/// Whoever wished the end of a run gets it, whatever becomes of its sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn f9_a_cancelled_run_whose_end_is_not_confirmed_stays_cancelled_and_says_so() {
    let stand = Stand::with(Setup::default(), IMPATIENT).await;
    stand.assert_heals().await;
    stand.proxy.fault("POST", "/kill", Fault::Hang);
    let flight = frozen(&stand, 60.0).await;
    let cancelling = format!("/runs/{}/cancel", flight.id);
    assert_eq!(stand.daemon.post(&cancelling, &json!({})).await.0, 200);
    let run = flight.end(&stand.daemon).await;
    assert_eq!(run["status"], "CANCELLED", "{run:#}");
    assert_warned(&run);
    stand.behave();
    stand.engine.is_empty(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f10_a_container_that_somebody_removes_ends_its_run_as_infrastructure() {
    let stand = Stand::new().await;
    let flight = Flight::start_until(&stand.daemon, limited(SLEEPS, 60.0), "armed").await;
    let name = stand.engine.only_container().await;
    let force = RemoveContainerOptions {
        force: true,
        ..Default::default()
    };
    let docker = stand.engine.docker().await;
    docker.remove_container(&name, Some(force)).await.unwrap();
    let run = flight.end(&stand.daemon).await;
    assert_infrastructure(&run);
    assert_eq!(run["result"]["stdout"], "armed\n");
    stand.assert_heals().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f11_an_image_that_is_gone_is_named_and_is_used_again_when_it_is_back() {
    let stand = Stand::new().await;
    stand.assert_heals().await;
    let (docker, image) = (stand.engine.docker().await, default_reference());
    // Only its name goes away: bringing the image itself again takes long.
    let tag = |repository: &str, tag: &str| -> TagImageOptions {
        TagImageOptionsBuilder::default()
            .repo(repository)
            .tag(tag)
            .build()
    };
    docker
        .tag_image(&image, Some(tag("kept", "1")))
        .await
        .unwrap();
    let untag = None::<RemoveImageOptions>;
    docker
        .remove_image(&image, untag.clone(), None)
        .await
        .unwrap();
    let run = stand.daemon.run(json!({ "code": "print()" })).await;
    let (status, ready) = stand.daemon.get("/ready").await;
    let (repository, version) = image.rsplit_once(':').unwrap();
    let back = docker
        .tag_image("kept:1", Some(tag(repository, version)))
        .await;
    back.unwrap();
    docker.remove_image("kept:1", untag, None).await.unwrap();
    assert_infrastructure(&run);
    let why = run["final_error"].as_str().unwrap();
    assert!(why.contains(&image), "{why}");
    assert_eq!(status, 503, "{ready}");
    stand.assert_heals().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f12_a_full_disk_of_the_engine_is_not_charged_to_a_run_and_needs_no_restart() {
    // Room for the image, once as an archive and once as files.
    let disk = SmallDisk::new(2048);
    let setup = Setup {
        data: Some(disk.path().to_owned()),
        ..Setup::default()
    };
    let stand = Stand::with(setup, "").await;
    stand.assert_heals().await;
    disk.fill(0);
    let run = stand.daemon.run(json!({ "code": "print()" })).await;
    assert_infrastructure(&run);
    assert_eq!(run["result"]["started_at"], Value::Null, "{run:#}");
    assert_eq!(stand.daemon.get("/live").await.0, 200);
    disk.relieve();
    stand.assert_heals().await;
}
