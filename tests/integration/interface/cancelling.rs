//! `POST /runs/{id}/cancel`

use serde_json::{Value, json};

use super::{ENDLESS, QUICK, blocker, cancel, detail, one_at_a_time};
use crate::support::Daemon;
use crate::support::daemon::PATIENCE;
use crate::support::engine::containers_of;
use crate::support::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_run_is_cancelled_at_once_and_never_started() {
    let daemon = one_at_a_time().await;
    let first = blocker(&daemon).await;
    let waiting = daemon.submit(json!({ "code": QUICK })).await;
    let behind = daemon.submit(json!({ "code": QUICK })).await;
    let answer = cancel(&daemon, &waiting).await;
    let expected = json!({ "run_id": waiting, "status": "CANCELLED" });
    assert_eq!(answer, (200, expected));
    let run = daemon.get(&format!("/runs/{waiting}")).await.1;
    assert_eq!(run["status"], "CANCELLED");
    assert_eq!(
        (&run["success"], &run["iterations"]),
        (&json!(false), &json!(0))
    );
    let (_, episodes) = daemon.get(&format!("/runs/{waiting}/episodes")).await;
    assert_eq!(episodes["episodes"], json!([]));
    assert_eq!(episodes["start_time"], Value::Null);
    let again = cancel(&daemon, &waiting).await;
    assert_eq!(again, (409, detail("Run has already ended")));

    assert_eq!(cancel(&daemon, &first).await.0, 200);
    let next = daemon.ended(&behind).await;
    assert_eq!(next["status"], "SUCCESS", "the queue goes on: {next:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_program_is_ended_with_what_it_printed_and_wrote() {
    let daemon = Daemon::start().await;
    // It ignores what it can, and leaves a child of its own session behind.
    let code = "import os, signal, sys, time\n\
        for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP): signal.signal(s, signal.SIG_IGN)\n\
        if os.fork() == 0: os.setsid(); time.sleep(3600)\n\
        open('out/half.txt', 'w').write('kept')\n\
        print('begun')\n\
        time.sleep(3600)\n";
    let id = daemon.submit(json!({ "code": code })).await;
    super::events::until_printed(&daemon, &id, "begun").await;
    assert_eq!(containers_of(&daemon.instance()).await.len(), 1);

    let (status, answer) = cancel(&daemon, &id).await;
    assert_eq!((status, &answer["run_id"]), (200, &json!(id)));
    let run = daemon.ended(&id).await;
    assert_eq!(run["status"], "CANCELLED", "{run:#}");
    assert_eq!(
        (&run["success"], &run["iterations"]),
        (&json!(false), &json!(1))
    );
    assert_eq!(run["final_error"], "cancelled");
    let (_, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
    let episode = &episodes["episodes"][0];
    assert_eq!(episode["execution_status"], "CANCELLED");
    let result = &episode["execution_result_summary"];
    assert_eq!(result["stdout_excerpt"], "begun\n");
    assert_eq!(result["return_code"], Value::Null);
    assert_eq!(result["output_files"], json!(["half.txt"]));
    let instance = daemon.instance();
    until(PATIENCE, || containers_of(&instance), Vec::is_empty).await;
    let again = cancel(&daemon, &id).await;
    assert_eq!(again, (409, detail("Run has already ended")));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_cancels_of_one_run_at_every_moment_give_one_ending() {
    let daemon = Daemon::start().await;
    for _ in 0..3 {
        let id = daemon.submit(json!({ "code": ENDLESS })).await;
        let all = (0..8).map(|_| cancel(&daemon, &id));
        for (status, answer) in futures_util::future::join_all(all).await {
            assert!([200, 409].contains(&status), "{answer}");
        }
        assert_eq!(daemon.ended(&id).await["status"], "CANCELLED");
    }
    let id = daemon.run(json!({ "code": QUICK })).await["run_id"].take();
    let answer = cancel(&daemon, id.as_str().unwrap()).await;
    assert_eq!(answer, (409, detail("Run has already ended")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_stops_while_a_cancelled_runs_sandbox_is_made_leaves_no_container() {
    for _ in 0..8 {
        // Its end checks what is on the engine.
        let daemon = Daemon::start().await;
        let id = blocker(&daemon).await;
        assert_eq!(cancel(&daemon, &id).await.0, 200);
        assert_eq!(daemon.ended(&id).await["status"], "CANCELLED");
    }
}
