//! The engine is killed, stopped, frozen or gone (security.md 3.4, F1 to F7): whose fault it was is told
//! truly, and everything heals without a restart of the daemon.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bench::engine::Setup;
use crate::bench::stand::{SOON, Stand, assert_infrastructure};
use crate::support::daemon::PATIENCE;
use crate::support::wait::until;
use crate::support::watch::{Flight, limited, processes_of};

const SLEEPS: &str = "import time; print('armed\\n', end='', flush=True); time.sleep(60)";

async fn id_of_only_container(stand: &Stand) -> String {
    let name = stand.engine.only_container().await;
    let docker = stand.engine.docker().await;
    docker
        .inspect_container(&name, None)
        .await
        .unwrap()
        .id
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn f1_a_killed_engine_ends_a_run_as_infrastructure_and_the_program_at_its_deadline() {
    let mut stand = Stand::new().await;
    let flight = Flight::start_until(&stand.daemon, limited(SLEEPS, 6.0), "armed").await;
    let container = id_of_only_container(&stand).await;
    stand.engine.kill();
    let run = flight.end(&stand.daemon).await;
    assert_infrastructure(&run);
    assert_eq!(run["result"]["stdout"], "armed\n");
    // The engine stays away: the supervisor, which holds the result, is all that is left.
    let bound = Duration::from_secs(12);
    until(bound, async || processes_of(&container), |n| *n <= 1).await;
    stand.engine.launch().await;
    stand.assert_heals().await;
}

/// An engine without live-restore ends what it finds when it is started.
#[tokio::test(flavor = "multi_thread")]
async fn f1_an_engine_that_is_back_has_taken_the_program_along_which_is_not_blamed() {
    let mut stand = Stand::new().await;
    let flight = Flight::start_until(&stand.daemon, limited(SLEEPS, 60.0), "armed").await;
    stand.engine.kill();
    stand.engine.launch().await;
    let begun = Instant::now();
    let run = flight.end(&stand.daemon).await;
    assert!(begun.elapsed() < Duration::from_secs(45), "{begun:?}");
    assert_infrastructure(&run);
    assert_eq!(run["result"]["stdout"], "armed\n");
    stand.assert_heals().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f2_with_live_restore_a_run_outlives_its_engine_and_keeps_all_its_output() {
    let live_restore = Setup {
        live_restore: true,
        ..Setup::default()
    };
    let mut stand = Stand::with(live_restore, "").await;
    let code = "import time\nprint('armed', flush=True)\n\
                for n in range(8):\n    print(n, flush=True)\n    time.sleep(0.5)\n";
    let flight = Flight::start_until(&stand.daemon, limited(code, 60.0), "armed").await;
    stand.engine.kill();
    stand.engine.launch().await;
    let run = flight.end(&stand.daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    assert_eq!(run["result"]["stdout"], "armed\n0\n1\n2\n3\n4\n5\n6\n7\n");
    stand.assert_heals().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f3_a_program_that_ends_while_the_engine_is_down_keeps_its_end() {
    let live_restore = Setup {
        live_restore: true,
        ..Setup::default()
    };
    let mut stand = Stand::with(live_restore, "").await;
    let code =
        "import sys, time\nprint('armed', flush=True)\ntime.sleep(2)\nprint('last')\nsys.exit(7)\n";
    let flight = Flight::start_until(&stand.daemon, limited(code, 60.0), "armed").await;
    stand.engine.kill();
    let begun = Instant::now();
    until(PATIENCE, async || begun.elapsed().as_secs(), |s| *s >= 4).await;
    stand.engine.launch().await;
    let run = flight.end(&stand.daemon).await;
    assert_eq!(run["result"]["return_code"], 7, "{run:#}");
    assert_eq!(run["result"]["status"], "FAILURE");
    let is_whole = run["result"]["stdout"] == "armed\nlast\n";
    let is_marked = run["result"]["output_incomplete"] == true;
    assert!(is_whole || is_marked, "{run:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f4_an_engine_that_is_stopped_ends_a_run_as_infrastructure() {
    let mut stand = Stand::new().await;
    let flight = Flight::start_until(&stand.daemon, limited(SLEEPS, 60.0), "armed").await;
    stand.engine.stop().await;
    stand.engine.launch().await;
    let run = flight.end(&stand.daemon).await;
    assert_infrastructure(&run);
    assert_eq!(run["result"]["stdout"], "armed\n");
    stand.assert_heals().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f5_a_killed_shim_ends_a_run_as_infrastructure() {
    let stand = Stand::new().await;
    let flight = Flight::start_until(&stand.daemon, limited(SLEEPS, 60.0), "armed").await;
    let name = stand.engine.only_container().await;
    let shim = stand.engine.shim_of(&name).await;
    stand.engine.kill_process(shim);
    let run = flight.end(&stand.daemon).await;
    assert_infrastructure(&run);
    assert_eq!(run["result"]["stdout"], "armed\n");
    stand.assert_heals().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f6_while_the_engine_is_away_the_queue_holds_and_ready_says_so() {
    let stand = Stand::new().await;
    stand.assert_heals().await;
    stand.proxy.leave();
    let mut held = Vec::new();
    for number in 0..5 {
        let code = format!("print({number})");
        held.push(stand.daemon.submit(json!({ "code": code })).await);
    }
    let away = Instant::now();
    let ready = async || stand.daemon.get("/ready").await;
    let is_held = |(status, answer): &(u16, Value)| *status == 503 && answer["since"].is_string();
    let (_, told) = until(PATIENCE, ready, is_held).await;
    assert!(told.to_string().contains("not reachable"), "{told}");
    until(PATIENCE, async || away.elapsed().as_secs(), |s| *s >= 10).await;
    for id in &held {
        let run = stand.daemon.get(&format!("/runs/{id}")).await.1;
        // One may have been started before anybody knew; it waits where it is.
        let status = run["status"].as_str().unwrap();
        assert!(["QUEUED", "RUNNING"].contains(&status), "{run:#}");
    }
    stand.proxy.come_back();
    for id in &held {
        let run = stand.daemon.ended(id).await;
        assert_eq!(run["status"], "SUCCESS", "{run:#}");
    }
    stand.assert_heals().await;
    until(PATIENCE, ready, |(status, _)| *status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f6_while_the_engine_is_away_runs_are_told_so_and_its_return_needs_no_restart() {
    let stand = Stand::new().await;
    stand.assert_heals().await;
    stand.proxy.leave();
    let (status, ready) = stand.daemon.get("/ready").await;
    assert_eq!(status, 503, "{ready}");
    assert!(ready.to_string().contains("not reachable"), "{ready}");
    assert_eq!(stand.daemon.get("/live").await.0, 200);
    stand.proxy.come_back();
    stand.assert_heals().await;
    assert_eq!(stand.daemon.get("/ready").await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn f7_a_frozen_engine_delays_no_deadline_and_is_used_again_when_it_thaws() {
    let stand = Stand::new().await;
    stand.assert_heals().await;
    let flight = Flight::start_until(&stand.daemon, limited(SLEEPS, 5.0), "armed").await;
    let container = id_of_only_container(&stand).await;
    let begun = Instant::now();
    stand.engine.freeze();
    // A second one meets nothing but silence, and is not waited for without a bound.
    let second = Flight::start(&stand.daemon, json!({ "code": "print('late')" })).await;
    let bound = Duration::from_secs(9);
    until(bound, async || processes_of(&container), |n| *n <= 1).await;
    let run = flight.end(&stand.daemon).await;
    assert_eq!(run["result"]["status"], "TIMEOUT", "{run:#}");
    assert_eq!(run["result"]["stdout"], "armed\n");
    assert!(begun.elapsed() < Duration::from_secs(60), "{begun:?}");
    assert_eq!(stand.daemon.get("/live").await.0, 200);
    stand.engine.thaw();
    let late: Value = second.end(&stand.daemon).await;
    // Held until the engine was back, or told the truth; never blamed on the program.
    if late["status"] != "SUCCESS" {
        assert_infrastructure(&late);
    }
    stand.engine.is_empty(SOON).await;
    stand.assert_heals().await;
}
