//! Killed without a warning while a program runs, or after it has ended.

use std::time::{Duration, Instant};

use fumehood_protocol::ToSupervisor;
use serde_json::{Value, json};

use super::{assert_untouched, body, daemon_with, lines, only_handoff};
use crate::support::daemon::PATIENCE;
use crate::support::engine::{Starts, containers_of, running_containers_of};
use crate::support::proxy::{Fault, Proxy, Retelling};
use crate::support::wait::until;
use crate::support::watch::{Flight, limited, nothing_left, only_container, printed};
use crate::support::{Daemon, Settings};

/// Waits while no daemon is there: what a program does meanwhile is what the test is about.
async fn without_a_daemon(for_long: Duration) {
    let begun = Instant::now();
    until(PATIENCE, async || begun.elapsed(), |now| *now >= for_long).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_daemon_finishes_what_ran_with_all_its_output_and_files() {
    let mut daemon = Daemon::start().await;
    let starts = Starts::watch(&daemon.instance()).await;
    let flight = Flight::start_until(&daemon, body(), "line 20").await;
    let execution = only_handoff(&daemon).await;
    let container = only_container(&daemon).await;
    daemon.kill();
    // Written while nobody reads.
    without_a_daemon(Duration::from_secs(1)).await;
    daemon.launch();
    let (status, run) = daemon.get(&format!("/runs/{}", flight.id)).await;
    assert_eq!((status, &run["status"]), (200, &json!("RUNNING")));
    assert_eq!(only_container(&daemon).await, container);
    let run = flight.end(&daemon).await;
    assert_untouched(&run);
    assert_eq!(run["result"]["execution_id"], execution);
    assert_eq!(starts.of(&execution), 1);
    nothing_left(&daemon, Duration::from_secs(10)).await;
    assert_eq!(daemon.handoffs(), Vec::<String>::new());

    // Recorded once, with the receipt of an execution that had a sandbox.
    let episodes = daemon.get(&format!("/runs/{}/episodes", flight.id)).await.1;
    assert_eq!(episodes["episodes"].as_array().unwrap().len(), 1);
    let receipt = daemon.get(&format!("/runs/{}/receipt", flight.id)).await;
    assert_eq!(receipt.0, 200, "{}", receipt.1);
    assert!(receipt.1.to_string().contains("no_new_privileges"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_its_events_sees_all_of_them_again() {
    let mut daemon = Daemon::start().await;
    let flight = Flight::start_until(&daemon, body(), "line 20").await;
    daemon.kill();
    daemon.launch();
    let seen = printed(&daemon, &flight.id, "line 99").await;
    for line in ["line 0", "line 20", "line 50"] {
        assert!(seen.contains(line), "{line} is missing in {seen}");
    }
    assert_untouched(&flight.end(&daemon).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ends_while_no_daemon_is_there_keeps_its_result() {
    let mut daemon = Daemon::start().await;
    let flight = Flight::start_until(&daemon, body(), "line 60").await;
    daemon.kill();
    without_a_daemon(Duration::from_secs(4)).await;
    daemon.launch();
    assert_untouched(&flight.end(&daemon).await);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// What was acknowledged before the death was put away, and what came after it is sent again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_there_as_well_as_what_was_not() {
    const PIECE: usize = 128 << 10;
    let mut daemon = daemon_with("[execution]\nmax_stdout_size_bytes = 3145728").await;
    let code = format!(
        "import sys, time\n\
         for number in range(20):\n    \
             sys.stdout.write(f'{{number:07}}\\n' * {})\n    sys.stdout.flush()\n    \
             print(f'piece {{number}}', file=sys.stderr)\n    time.sleep(0.2)\n",
        PIECE / 8
    );
    let flight = Flight::start_until(&daemon, limited(&code, 60.0), "piece 12").await;
    let file = daemon.path().join("state/handoffs");
    let file = file.join(only_handoff(&daemon).await);
    let put_away: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert!(put_away["progress"]["received"].as_u64().unwrap() > 0);
    daemon.kill();
    without_a_daemon(Duration::from_secs(2)).await;
    daemon.launch();
    let run = flight.end(&daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{}", run["result"]["cause"]);
    let stdout = run["result"]["stdout"].as_str().unwrap();
    assert_eq!(stdout.len(), 20 * PIECE);
    for (number, piece) in stdout.as_bytes().chunks(PIECE).enumerate() {
        let line = format!("{number:07}\n");
        let is_whole = piece.chunks(8).all(|found| found == line.as_bytes());
        assert!(is_whole, "{number}");
    }
    assert_eq!(run["result"]["warnings"], json!([]));
}

/// It died between the two: its files had their name, and the run had no end yet.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_were_published_and_not_recorded_are_published_anew() {
    let mut daemon = Daemon::start().await;
    let flight = Flight::start_until(&daemon, body(), "line 20").await;
    let published = daemon.artifacts(&only_handoff(&daemon).await);
    daemon.kill();
    std::fs::create_dir(&published).unwrap();
    std::fs::write(published.join("count.txt"), "5").unwrap();
    std::fs::write(published.join("more.txt"), "half").unwrap();
    daemon.launch();
    assert_untouched(&flight.end(&daemon).await);
    assert_eq!(
        std::fs::read_to_string(published.join("count.txt")).unwrap(),
        "100"
    );
    assert!(!published.join("more.txt").exists());
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// A daemon that dies again and again takes nothing with it either.
#[tokio::test(flavor = "multi_thread")]
async fn one_run_survives_several_daemons() {
    let mut daemon = Daemon::start().await;
    let flight = Flight::start(&daemon, body()).await;
    for line in ["line 10", "line 30", "line 50", "line 70", "line 90"] {
        printed(&daemon, &flight.id, line).await;
        daemon.kill();
        daemon.launch();
    }
    assert_untouched(&flight.end(&daemon).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn past_its_deadline_a_program_is_out_of_time_and_what_it_printed_is_there() {
    let mut daemon = Daemon::start().await;
    let code = "import time; print('armed'); time.sleep(60)";
    let flight = Flight::start_until(&daemon, limited(code, 3.0), "armed").await;
    daemon.kill();
    without_a_daemon(Duration::from_secs(4)).await;
    daemon.launch();
    let run = flight.end(&daemon).await;
    let result = &run["result"];
    assert_eq!(result["status"], "TIMEOUT", "{run}");
    assert_eq!(result["timed_out"], true);
    assert_eq!(result["error_info"], "Execution timed out after 3 seconds.");
    assert_eq!(result["stdout"], "armed\n");
    let seconds = result["duration_seconds"].as_f64().unwrap();
    assert!((2.9..4.0).contains(&seconds), "{seconds}");
    assert_eq!(run["final_error"], "timeout");
}

/// The limit goes on while no daemon is there, and does not begin anew with the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_no_more_time_than_it_had() {
    let mut daemon = Daemon::start().await;
    let begun = Instant::now();
    let code = "import time; print('armed'); time.sleep(60)";
    let flight = Flight::start_until(&daemon, limited(code, 6.0), "armed").await;
    daemon.kill();
    without_a_daemon(Duration::from_secs(2)).await;
    daemon.launch();
    let run = flight.end(&daemon).await;
    assert_eq!(run["result"]["status"], "TIMEOUT", "{run}");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(11), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_an_earlier_daemon_can_be_cancelled() {
    let mut daemon = Daemon::start().await;
    let code = "import time; print('armed'); time.sleep(60)";
    let flight = Flight::start_until(&daemon, limited(code, 60.0), "armed").await;
    daemon.kill();
    daemon.launch();
    let path = format!("/runs/{}/cancel", flight.id);
    let (status, answer) = daemon.post(&path, &json!({})).await;
    assert_eq!(status, 200, "{answer}");
    let run = flight.end(&daemon).await;
    assert_eq!(run["status"], "CANCELLED", "{run}");
    assert_eq!(run["result"]["stdout"], "armed\n");
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

/// Nobody has given them a program, and they may be of another version: new ones are made.
#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_that_waited_are_swept_and_those_that_run_are_not() {
    let mut daemon = daemon_with("[pool]\nsize = 2").await;
    let ready = async || daemon.get("/ready").await.1["pool"]["waiting"].clone();
    until(PATIENCE, ready, |waiting| *waiting == 2).await;
    let flight = Flight::start_until(&daemon, body(), "line 10").await;
    let execution = only_handoff(&daemon).await;
    let before = containers_of(&daemon.instance()).await;
    let waited = before.iter().filter(|name| !name.ends_with(&execution));
    let waited: Vec<String> = waited.cloned().collect();
    assert!(!waited.is_empty(), "{before:?}");
    daemon.kill();
    daemon.launch();
    let after = running_containers_of(&daemon.instance()).await;
    assert!(
        after.iter().any(|name| name.ends_with(&execution)),
        "{after:?}"
    );
    assert!(after.iter().all(|name| !waited.contains(name)), "{after:?}");
    assert_untouched(&flight.end(&daemon).await);
}

/// What is taken over is told from what another daemon has on the same engine.
#[tokio::test(flavor = "multi_thread")]
async fn the_sandboxes_of_another_instance_are_left_alone() {
    let mut daemon = Daemon::start().await;
    let other = Daemon::start().await;
    let (own, others) = tokio::join!(
        Flight::start_until(&daemon, body(), "line 10"),
        Flight::start_until(&other, body(), "line 10"),
    );
    let container = only_container(&other).await;
    daemon.kill();
    daemon.launch();
    assert_eq!(only_container(&other).await, container);
    let ends: [Value; 2] = tokio::join!(own.end(&daemon), others.end(&other)).into();
    for run in &ends {
        assert_untouched(run);
    }
    assert_eq!(ends[0]["result"]["stdout"], lines());
}

/// Between what is put away for the next daemon and the message to start, which is lost here on its way:
/// nothing of the program has run.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_was_never_told_to_start_is_started_by_the_next_daemon() {
    let proxy = Proxy::start();
    let lost = Retelling::to(|message| {
        if matches!(message, ToSupervisor::Start(_)) {
            *message = ToSupervisor::Ack(0);
        }
    });
    proxy.fault("POST", "/attach", Fault::Retell(lost));
    let mut daemon = Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    let flight = Flight::start(&daemon, body()).await;
    let execution = only_handoff(&daemon).await;
    only_container(&daemon).await;
    daemon.kill();
    proxy.behave();
    daemon.launch();
    let run = flight.end(&daemon).await;
    assert_untouched(&run);
    assert_eq!(run["result"]["execution_id"], execution);
    nothing_left(&daemon, Duration::from_secs(10)).await;
    assert_eq!(daemon.handoffs(), Vec::<String>::new());
}
