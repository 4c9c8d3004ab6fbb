//! `Idempotency-Key` and `Prefer: wait`.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{ENDLESS, QUICK, Seen, all_runs, blocker, cancel, detail, one_at_a_time, sent};
use crate::support::{Daemon, Settings};

fn post(daemon: &Daemon, body: &Value) -> RequestBuilder {
    daemon.request(Method::POST, "/runs").json(body)
}

async fn with_key(daemon: &Daemon, key: &str, body: &Value) -> Seen {
    sent(post(daemon, body).header("Idempotency-Key", key)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_and_body_give_the_first_run_again_even_after_a_restart() {
    let mut daemon = Daemon::start().await;
    let body = json!({ "code": QUICK });
    let first = with_key(&daemon, "key-1", &body).await;
    assert_eq!(
        (first.status, &first.json()["status"]),
        (200, &json!("QUEUED"))
    );
    let id = first.json()["run_id"].as_str().unwrap().to_owned();
    daemon.ended(&id).await;
    let expected = json!({ "run_id": id, "status": "SUCCESS" });
    let again = with_key(&daemon, "key-1", &body).await;
    assert_eq!((again.status, again.json()), (200, expected.clone()));
    let other = with_key(&daemon, "key-1", &json!({ "code": "print(2)" })).await;
    let reused = detail("Idempotency-Key was used with another request body");
    assert_eq!((other.status, other.json()), (409, reused.clone()));

    daemon.stop();
    daemon.launch();
    let again = with_key(&daemon, "key-1", &body).await;
    assert_eq!((again.status, again.json()), (200, expected));
    let other = with_key(&daemon, "key-1", &json!({ "code": "print(2)" })).await;
    assert_eq!((other.status, other.json()), (409, reused));
    assert_eq!(all_runs(&daemon).await.len(), 1);

    // Without a key, or with another one, the same body is another run.
    let another = with_key(&daemon, "key-2", &body).await.json();
    let unkeyed = daemon.submit(body).await;
    let ids = BTreeSet::from([id, another["run_id"].as_str().unwrap().to_owned(), unkeyed]);
    assert_eq!(ids.len(), 3);
    for id in &ids {
        daemon.ended(id).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_sent_many_times_at_once_makes_one_run() {
    let daemon = Daemon::start().await;
    let body = json!({ "code": QUICK });
    let all = (0..20).map(|_| with_key(&daemon, "many", &body));
    let mut ids = BTreeSet::new();
    for seen in futures_util::future::join_all(all).await {
        assert_eq!(seen.status, 200, "{}", seen.text);
        ids.insert(seen.json()["run_id"].as_str().unwrap().to_owned());
    }
    assert_eq!((ids.len(), all_runs(&daemon).await.len()), (1, 1));
    daemon.ended(ids.first().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_no_keys_are_422_and_refused_requests_take_no_key() {
    let daemon = Daemon::start().await;
    let body = json!({ "code": QUICK });
    for key in ["", "a b", "é", &"k".repeat(256)] {
        let seen = with_key(&daemon, key, &body).await;
        assert_eq!(seen.status, 422, "{key}");
        let place = json!(["header", "idempotency-key"]);
        assert_eq!(seen.json()["detail"][0]["loc"], place);
    }
    let refused = with_key(&daemon, "k", &json!({ "dataset_path": "/etc" })).await;
    assert_eq!(refused.status, 400);
    let seen = with_key(&daemon, "k", &body).await;
    assert_eq!(seen.status, 200, "{}", seen.text);
    daemon.ended(seen.json()["run_id"].as_str().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_answers_at_the_end_or_when_its_time_is_over() {
    let daemon = one_at_a_time().await;
    let waiting = |body: &Value, preference: &str| {
        let request = post(&daemon, body).header("Prefer", preference);
        async move { (Instant::now(), sent(request).await) }
    };
    let (start, ended) = waiting(&json!({ "code": QUICK }), "wait=100").await;
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(ended.header("preference-applied"), Some("wait=100"));
    let run = ended.json();
    assert_eq!(
        (&run["status"], &run["result"]["stdout"]),
        (&json!("SUCCESS"), &json!("done\n"))
    );
    let id = run["run_id"].as_str().unwrap();
    let mut without = run.clone();
    without.as_object_mut().unwrap().remove("result");
    assert_eq!(daemon.get(&format!("/runs/{id}")).await.1, without);

    let (start, seen) = waiting(&json!({ "code": ENDLESS }), "respond-async, wait=2").await;
    assert!(start.elapsed() >= Duration::from_secs(2));
    assert!(start.elapsed() < Duration::from_secs(30));
    let running = seen.json();
    assert_eq!((seen.status, &running["result"]), (200, &Value::Null));
    assert_eq!(running["status"], "RUNNING");

    let (start, seen) = waiting(&json!({ "code": QUICK }), "wait=0").await;
    assert!(start.elapsed() < Duration::from_secs(5));
    let queued = seen.json();
    assert_eq!(
        (&queued["status"], &queued["result"]),
        (&json!("QUEUED"), &Value::Null)
    );
    for nonsense in ["wait=soon", "wait=-1", "wait", "return=minimal"] {
        let (_, seen) = waiting(&json!({ "code": QUICK }), nonsense).await;
        assert_eq!(
            (seen.status, seen.header("preference-applied")),
            (200, None)
        );
        assert_eq!(
            super::keys(&seen.json()),
            ["run_id", "status"],
            "{nonsense}"
        );
        cancel(&daemon, seen.json()["run_id"].as_str().unwrap()).await;
    }
    cancel(&daemon, running["run_id"].as_str().unwrap()).await;
    daemon.ended(queued["run_id"].as_str().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_the_run_is_cancelled() {
    let daemon = one_at_a_time().await;
    let first = blocker(&daemon).await;
    let body = json!({ "code": QUICK });
    let request = post(&daemon, &body)
        .header("Prefer", "wait=100")
        .header("Idempotency-Key", "w");
    let cancelling = async {
        // The waiting request is in the list as soon as it is accepted.
        let ask = || all_runs(&daemon);
        let bound = Duration::from_secs(30);
        let runs = crate::support::wait::until(bound, ask, |runs| runs.len() == 2).await;
        cancel(&daemon, runs[0]["run_id"].as_str().unwrap()).await
    };
    let (seen, cancelled) = tokio::join!(sent(request), cancelling);
    assert_eq!(cancelled.0, 200);
    let run = seen.json();
    assert_eq!(
        (&run["status"], &run["result"]),
        (&json!("CANCELLED"), &Value::Null)
    );
    cancel(&daemon, &first).await;
    daemon.ended(&first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_gets_its_run_although_a_new_one_would_be_refused_by_now() {
    let toml = "[app]\nmax_concurrent_runs = 1\nmax_queued_runs = 1".to_owned();
    let daemon = Daemon::start_with(Settings {
        toml,
        ..Settings::default()
    })
    .await;
    let first = blocker(&daemon).await;
    let set = daemon.data().join("set");
    std::fs::create_dir(&set).unwrap();
    let body = json!({ "dataset_path": "data/set", "code": QUICK });
    let accepted = with_key(&daemon, "k", &body).await;
    assert_eq!(accepted.status, 200, "{}", accepted.text);

    std::fs::remove_dir(&set).unwrap();
    let fresh = daemon.post("/runs", &body).await;
    assert_eq!(fresh, (400, detail("Invalid dataset directory")));
    let (status, _) = daemon.post("/runs", &json!({ "code": QUICK })).await;
    assert_eq!(status, 429, "the queue is full");
    let again = with_key(&daemon, "k", &body).await;
    assert_eq!((again.status, again.json()), (200, accepted.json()));
    // The mistakes of another body are still told before the key is.
    let other = with_key(&daemon, "k", &json!({ "dataset_path": 5 })).await;
    assert_eq!(other.status, 422, "{}", other.text);

    let id = accepted.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(cancel(&daemon, &id).await.0, 200);
    cancel(&daemon, &first).await;
    daemon.ended(&first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_asked_to_stop_answers_those_who_wait() {
    let daemon = one_at_a_time().await;
    let id = blocker(&daemon).await;
    let request = post(&daemon, &json!({ "code": QUICK })).header("Prefer", "wait=100");
    let stopping = async {
        let ask = || all_runs(&daemon);
        let bound = Duration::from_secs(30);
        crate::support::wait::until(bound, ask, |runs| runs.len() == 2).await;
        daemon.ask_to_stop();
    };
    let (seen, ()) = tokio::join!(sent(request), stopping);
    assert_eq!(seen.status, 200, "{}", seen.text);
    let run = seen.json();
    assert_eq!(
        (&run["status"], &run["result"]),
        (&json!("QUEUED"), &Value::Null)
    );
    assert_ne!(run["run_id"], id);
}
