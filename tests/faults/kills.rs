//! The daemon is killed at every state of a run (security.md 3.3): what its client was told holds,
//! nothing runs twice, nothing is left.

use fumehood::fault_point::FaultPoint;
use serde_json::{Value, json};

use crate::bench::stand::{SOON, Stand};
use crate::bench::starts::nonce;
use crate::support::daemon::PATIENCE;
use crate::support::proxy::Fault;
use crate::support::wait::until;
use crate::support::watch::{Flight, limited};

/// Prints, leaves a file, and prints again.
fn program(nonce: &str) -> String {
    format!(
        "print('begin {nonce}', flush=True)\n\
         open('out/predictions.csv', 'w').write('{nonce}')\n\
         print('end {nonce}')\n"
    )
}

/// The whole of what such a program leaves, as if nothing had happened.
async fn assert_whole(stand: &Stand, id: &str, nonce: &str) {
    let run = stand.daemon.ended(id).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}\n{}", stand.daemon.log());
    let episodes = stand.daemon.get(&format!("/runs/{id}/episodes")).await.1;
    let summary = &episodes["episodes"][0]["execution_result_summary"];
    let shown = summary["stdout_excerpt"].as_str().unwrap();
    assert_eq!(shown, format!("begin {nonce}\nend {nonce}\n"));
    let reference = run["prediction_artifact_reference"].as_str().unwrap();
    let written = std::fs::read_to_string(stand.daemon.artifacts(reference)).unwrap();
    assert_eq!(written, nonce);
    assert_eq!(stand.starts.of(nonce), 1);
    stand.engine.is_empty(SOON).await;
    assert_eq!(published(stand).len(), 1);
}

/// Names in the directory of published artifacts, half-done ones included.
fn published(stand: &Stand) -> Vec<String> {
    let entries = std::fs::read_dir(stand.daemon.artifacts("")).into_iter();
    let names = entries.flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.into_string().ok()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn r0_killed_before_the_commit_a_run_was_never_there_and_the_same_key_makes_one() {
    let mut stand = Stand::new().await;
    let nonce = nonce();
    let body = json!({ "code": program(&nonce) });
    stand.die_at(FaultPoint::BeforeAccept);
    assert_eq!(stand.try_submit(&body, Some("key")).await, None);
    stand.died().await;
    stand.daemon.launch();
    assert_eq!(stand.runs().await, Vec::<Value>::new());
    let id = stand.try_submit(&body, Some("key")).await.unwrap();
    assert_eq!(stand.only_run().await, id);
    assert_whole(&stand, &id, &nonce).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r1_killed_after_the_commit_a_run_is_carried_out_once_and_the_same_key_finds_it() {
    let mut stand = Stand::new().await;
    let nonce = nonce();
    let body = json!({ "code": program(&nonce) });
    stand.die_at(FaultPoint::AfterAccept);
    assert_eq!(stand.try_submit(&body, Some("key")).await, None);
    stand.died().await;
    stand.daemon.launch();
    let id = stand.only_run().await;
    assert_eq!(stand.try_submit(&body, Some("key")).await, Some(id.clone()));
    assert_whole(&stand, &id, &nonce).await;
    assert_eq!(stand.only_run().await, id);
}

/// The queue, with 50 in it.
#[tokio::test(flavor = "multi_thread")]
async fn q_killed_with_fifty_waiting_they_start_in_order_and_waiting_is_not_charged() {
    let one = "[app]\nmax_concurrent_runs = 1";
    let mut stand = Stand::with(Default::default(), one).await;
    let first = limited("import time; print('armed'); time.sleep(60)", 60.0);
    let first = Flight::start_until(&stand.daemon, first, "armed").await;
    let mut waiting = Vec::new();
    for _ in 0..50 {
        // A limit that is much shorter than the wait.
        let body = limited("print('turn')", 5.0);
        waiting.push(stand.daemon.submit(body).await);
    }
    stand.daemon.kill();
    stand.daemon.launch();
    let path = format!("/runs/{}/cancel", first.id);
    stand.daemon.post(&path, &json!({})).await;
    let mut starts = Vec::new();
    for id in &waiting {
        let run = stand.daemon.ended(id).await;
        assert_eq!(run["status"], "SUCCESS", "{run:#}");
        let episodes = stand.daemon.get(&format!("/runs/{id}/episodes")).await.1;
        starts.push(episodes["start_time"].as_str().unwrap().to_owned());
    }
    assert!(starts.is_sorted(), "{starts:?}");
    stand.engine.is_empty(SOON).await;
}

/// At each point, with one daemon after another: a run ends once, is started once, and leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_point_after_its_start_a_run_ends_once_and_leaves_nothing() {
    let mut stand = Stand::new().await;
    let points = FaultPoint::ALL;
    let after_start = points.iter().skip_while(|p| **p != FaultPoint::AfterStart);
    let mut ended: Vec<(String, Value)> = Vec::new();
    for point in after_start {
        let nonce = nonce();
        stand.die_at(*point);
        let body = json!({ "code": program(&nonce) });
        let submitted = stand.try_submit(&body, Some(&nonce)).await;
        stand.died().await;
        stand.daemon.launch();
        let id = stand.try_submit(&body, Some(&nonce)).await.unwrap();
        assert!(submitted.is_none_or(|known| known == id), "{point:?}");
        let run = stand.daemon.ended(&id).await;
        let started = stand.starts.of(&nonce);
        assert_eq!(run["status"], "SUCCESS", "{point:?}: {run:#}");
        assert_eq!(started, 1, "{point:?}");
        stand.engine.is_empty(SOON).await;
        let half_done = published(&stand);
        let half_done = half_done.iter().filter(|name| !name.starts_with("exec_"));
        assert_eq!(half_done.count(), 0, "{point:?}");
        ended.push((id, run));
        // What had ended stays as it was.
        for (id, earlier) in &ended {
            assert_eq!(&stand.daemon.ended(id).await, earlier, "{point:?}");
        }
    }
    stand.assert_heals().await;
}

/// The next daemon is told to expect a start. That it did not come to it, its supervisor says: the run is not
/// lost, and not started a second time.
#[tokio::test(flavor = "multi_thread")]
async fn s_killed_in_the_moment_of_the_start_a_run_is_started_once() {
    let mut stand = Stand::new().await;
    let nonce = nonce();
    let id = stand
        .killed_at(FaultPoint::BeforeProgram, &program(&nonce))
        .await;
    assert_whole(&stand, &id, &nonce).await;
}

/// A run that is killed at this point ends as if nothing had happened.
async fn survives(point: FaultPoint) {
    let mut stand = Stand::new().await;
    let nonce = nonce();
    let id = stand.killed_at(point, &program(&nonce)).await;
    assert_whole(&stand, &id, &nonce).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_killed_while_it_prepares_a_run_is_prepared_afresh() {
    for point in [FaultPoint::AfterStart, FaultPoint::AfterStage] {
        survives(point).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c_killed_between_the_request_for_a_container_and_its_answer_there_is_one_in_the_end() {
    for point in [FaultPoint::BeforeCreate, FaultPoint::AfterCreate] {
        survives(point).await;
    }
    let mut stand = Stand::new().await;
    stand.assert_heals().await;
    let nonce = nonce();
    let creations = stand
        .proxy
        .fault("POST", "/containers/create", Fault::HangAfter);
    let id = stand
        .daemon
        .submit(json!({ "code": program(&nonce) }))
        .await;
    until(PATIENCE, async || creations.over(), |over| *over == 1).await;
    stand.daemon.kill();
    stand.behave();
    stand.daemon.launch();
    assert_whole_of_two(&stand, &id, &nonce).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_killed_while_a_program_runs_it_is_attached_to_again_and_keeps_its_deadline() {
    survives(FaultPoint::AfterProgram).await;
    let mut stand = Stand::new().await;
    let nonce = nonce();
    let begin = format!("print('begin {nonce}', flush=True)\nimport time; time.sleep(10)\n");
    let code = begin + &program(&nonce);
    let inside = Flight::start_until(&stand.daemon, limited(&code, 60.0), "begin").await;
    let late = limited("import time; print('armed'); time.sleep(60)", 8.0);
    let late = Flight::start_until(&stand.daemon, late, "armed").await;
    stand.daemon.kill();
    stand.daemon.launch();
    let run = inside.end(&stand.daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    let whole = format!("begin {nonce}\nbegin {nonce}\nend {nonce}\n");
    assert_eq!(run["result"]["stdout"], whole);
    assert_eq!(stand.starts.of(&nonce), 1);
    let run = late.end(&stand.daemon).await;
    assert_eq!(run["result"]["status"], "TIMEOUT", "{run:#}");
    let took = run["result"]["duration_seconds"].as_f64().unwrap();
    assert!(
        (7.9..12.0).contains(&took),
        "never more than its limit: {took}"
    );
    stand.engine.is_empty(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s2_a_program_that_ends_while_the_daemon_is_down_keeps_its_result_and_its_files() {
    let mut stand = Stand::new().await;
    let nonce = nonce();
    let code = format!(
        "import time; print('armed', flush=True); time.sleep(2)\n{}",
        program(&nonce)
    );
    let flight = Flight::start_until(&stand.daemon, limited(&code, 60.0), "armed").await;
    stand.daemon.kill();
    let begun = std::time::Instant::now();
    until(PATIENCE, async || begun.elapsed().as_secs(), |s| *s >= 4).await;
    stand.daemon.launch();
    let run = flight.end(&stand.daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    let whole = format!("armed\nbegin {nonce}\nend {nonce}\n");
    assert_eq!(run["result"]["stdout"], whole);
    assert_eq!(run["result"]["output_files"], json!(["predictions.csv"]));
    assert_eq!(stand.starts.of(&nonce), 1);
    stand.engine.is_empty(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_killed_after_the_exit_the_artifacts_are_collected_by_the_next_daemon() {
    survives(FaultPoint::BeforeCollect).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_while_artifacts_arrive_they_are_collected_from_scratch() {
    for point in [FaultPoint::InCollect, FaultPoint::BeforePublish] {
        survives(point).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t_killed_after_the_rename_the_end_is_recorded_with_the_same_files() {
    survives(FaultPoint::AfterPublish).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d_killed_after_the_end_was_recorded_only_the_clean_up_is_left_to_do() {
    let mut stand = Stand::new().await;
    let nonce = nonce();
    // The engine does not remove anything before the kill.
    stand.assert_heals().await;
    stand.proxy.fault("DELETE", "/containers/", Fault::Hang);
    stand.die_at(FaultPoint::AfterEnd);
    let body = json!({ "code": program(&nonce) });
    let id = stand.try_submit(&body, Some("key")).await;
    stand.died().await;
    assert_eq!(stand.engine.containers().await.len(), 1);
    stand.behave();
    stand.daemon.launch();
    let again = stand.try_submit(&body, Some("key")).await.unwrap();
    assert!(id.is_none_or(|id| id == again));
    assert_whole_of_two(&stand, &again, &nonce).await;
}

/// As for one run, after another one.
async fn assert_whole_of_two(stand: &Stand, id: &str, nonce: &str) {
    let run = stand.daemon.ended(id).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    let reference = run["prediction_artifact_reference"].as_str().unwrap();
    let written = std::fs::read_to_string(stand.daemon.artifacts(reference)).unwrap();
    assert_eq!(written, nonce);
    assert_eq!(stand.starts.of(nonce), 1);
    stand.engine.is_empty(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n_killed_after_everything_is_over_nothing_changes() {
    let mut stand = Stand::new().await;
    let nonce = nonce();
    let id = stand
        .daemon
        .submit(json!({ "code": program(&nonce) }))
        .await;
    let before = stand.daemon.ended(&id).await;
    stand.engine.is_empty(SOON).await;
    stand.daemon.kill();
    stand.daemon.launch();
    assert_eq!(stand.daemon.ended(&id).await, before);
    assert_whole(&stand, &id, &nonce).await;
}
