//! The whole interface, over a real store and without a socket.

mod fixture;

mod tenants;

mod hostile;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use self::fixture::Fixture;
use crate::execution::runtime::Offered;
use crate::receipt::Receipt;

fn detail(text: &str) -> Value {
    json!({ "detail": text })
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there() {
    let fixture = Fixture::new().await;
    for path in [
        "/",
        "/x",
        "/runs/",
        "/health/",
        "/runs/a/b",
        "/..%2f..%2fetc",
    ] {
        let seen = fixture.get(path).await;
        assert_eq!(
            (seen.status, seen.json()),
            (404, detail("Not Found")),
            "{path}"
        );
    }
    let known = "/runs/123e4567-e89b-42d3-a456-426614174000";
    for id in [
        known,
        "/runs/x",
        "/runs/..",
        "/runs/%2e%2e",
        "/runs/*",
        "/runs/%00",
        "/runs/%ff",
    ] {
        for below in ["", "/episodes", "/artifacts", "/events", "/receipt"] {
            let seen = fixture.get(&format!("{id}{below}")).await;
            assert_eq!(
                (seen.status, seen.json()),
                (404, detail("Run not found")),
                "{id}{below}"
            );
        }
        let seen = fixture.ask("POST", &format!("{id}/cancel")).await;
        assert_eq!((seen.status, seen.json()), (404, detail("Run not found")));
    }
    for (method, path, allow) in [
        ("POST", "/health", "GET"),
        ("DELETE", "/runs", "GET, POST"),
        ("PUT", known, "GET"),
        ("GET", &format!("{known}/cancel"), "POST"),
        ("OPTIONS", "/settings", "GET"),
    ] {
        let seen = fixture.ask(method, path).await;
        assert_eq!(
            (seen.status, seen.json()),
            (405, detail("Method Not Allowed")),
            "{path}"
        );
        assert_eq!(seen.header("allow"), Some(allow));
    }
    let seen = fixture.ask("HEAD", "/health").await;
    assert_eq!((seen.status, seen.header("allow")), (405, Some("GET")));
}

#[tokio::test]
async fn a_receipt_is_served_as_it_was_signed_once_an_execution_is_over() {
    let fixture = Fixture::new().await;
    let going_on = fixture.run(&json!({ "code": "hang SECRET" })).await;
    let seen = fixture.get(&format!("/runs/{going_on}/receipt")).await;
    let not_yet = (404, detail("Receipt not found"));
    assert_eq!((seen.status, seen.json()), not_yet);
    let cancelled = format!("/runs/{going_on}/cancel");
    assert_eq!(fixture.ask("POST", &cancelled).await.status, 200);

    let wait = [("prefer", "wait=30")];
    let run = fixture.post(&json!({ "code": "SECRET" }), &wait).await;
    let run = run.json()["run_id"].as_str().unwrap().to_owned();
    let seen = fixture.get(&format!("/runs/{run}/receipt")).await;
    assert_eq!(seen.status, 200);
    assert_eq!(seen.header("content-type"), Some("application/json"));
    let receipt = Receipt::open(seen.text.as_bytes()).unwrap();
    assert_eq!(receipt.run(), run);
    let head = fixture.ask("HEAD", &format!("/runs/{run}/receipt")).await;
    assert_eq!((head.status, head.header("allow")), (405, Some("GET")));
}

#[tokio::test]
async fn health_and_settings() {
    let fixture = Fixture::new().await;
    let version = env!("CARGO_PKG_VERSION");
    let seen = fixture.get("/health").await;
    assert_eq!(
        seen.text,
        format!(r#"{{"status":"ok","version":"{version}"}}"#)
    );
    assert_eq!(fixture.get("/live").await.text, r#"{"status":"ok"}"#);
    assert_eq!(
        fixture.get("/ready").await.text,
        r#"{"status":"ready","pool":{"size":2,"waiting":0}}"#
    );
    let settings = fixture.get("/settings").await.json();
    assert_eq!(settings["ceilings"]["memory_mb"], 16_384);
    assert_eq!(settings["features"]["uploads"], false);
    assert_eq!(settings["images"], json!(["built:1"]));

    let fixture = Fixture::with(|_| {}, vec!["the engine does not answer".to_owned()]).await;
    let seen = fixture.get("/ready").await;
    let body = json!({"status": "unavailable", "reasons": ["the engine does not answer"]});
    assert_eq!((seen.status, seen.json()), (503, body));
}

#[tokio::test]
async fn a_run_from_its_acceptance_to_its_end() {
    let fixture = Fixture::new().await;
    let data = fixture.dir.path().join("data/iris");
    let seen = fixture
        .post(&json!({"code": "SECRET", "dataset_path": data}), &[])
        .await;
    assert_eq!(seen.status, 200);
    let id = seen.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(
        seen.text,
        format!(r#"{{"run_id":"{id}","status":"QUEUED"}}"#)
    );

    let events = fixture.get(&format!("/runs/{id}/events")).await;
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    let output = "event: output\ndata: {\"stream\":\"stdout\",\"text\":\"hello\"}\n\n";
    assert!(events.text.contains(output), "{}", events.text);
    let ended = "event: status\ndata: {\"status\":\"SUCCESS\"}\n\n";
    assert!(events.text.ends_with(ended), "{}", events.text);

    let run = fixture.get(&format!("/runs/{id}")).await;
    let expected = format!(
        r#"{{"run_id":"{id}","status":"SUCCESS","success":true,"task_summary":null,"selected_library":null,"iterations":1,"final_metrics":{{"big":1e+300,"n":5}},"prediction_artifact_reference":"exec_x/predictions.csv","model_artifact_reference":null,"execution_duration":null,"final_error":null,"dataset_name":"iris","judge_decisions":[],"execution_backend":"mock","model_usage":null}}"#
    );
    assert_eq!(run.text, expected);
    let episodes = fixture.get(&format!("/runs/{id}/episodes")).await.json();
    assert_eq!(episodes["episodes"][0]["iteration"], 1);
    assert_eq!(episodes["episodes"][0]["execution_status"], "ERROR");
    assert_eq!(episodes["final_result"], "SUCCESS");
    let artifacts = fixture.get(&format!("/runs/{id}/artifacts")).await.json();
    assert_eq!(
        artifacts["artifacts"],
        json!([{"path": "1.csv", "size": 3, "sha256": "00"}])
    );
    let seen = fixture.ask("POST", &format!("/runs/{id}/cancel")).await;
    assert_eq!(
        (seen.status, seen.json()),
        (409, detail("Run has already ended"))
    );
}

#[tokio::test]
async fn a_client_can_wait_for_the_end() {
    let fixture = Fixture::new().await;
    let seen = fixture
        .post(&json!({"code": "ok"}), &[("prefer", "wait=30")])
        .await;
    assert_eq!(seen.header("preference-applied"), Some("wait=30"));
    let run = seen.json();
    assert_eq!(
        (&run["status"], &run["result"]["status"]),
        (&json!("SUCCESS"), &json!("ERROR"))
    );
    assert_eq!(run["result"]["cause"]["kind"], "infrastructure");
    let hang = json!({"code": "hang SECRET"});
    let run = fixture.post(&hang, &[("prefer", "wait=0")]).await.json();
    assert_eq!(
        (&run["success"], &run["result"]),
        (&Value::Null, &Value::Null)
    );
    fixture.shutdown.cancel();
    let seen = fixture.post(&hang, &[("prefer", "wait=600")]).await;
    assert_eq!(
        (seen.status, &seen.json()["status"]),
        (200, &json!("QUEUED"))
    );
}

#[tokio::test]
async fn runs_are_listed_newest_first_and_can_be_cancelled() {
    let fixture = Fixture::new().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(fixture.run(&json!({"code": "hang SECRET"})).await);
    }
    let seen = fixture
        .ask("POST", &format!("/runs/{}/cancel", ids[4]))
        .await;
    let expected = format!(r#"{{"run_id":"{}","status":"CANCELLED"}}"#, ids[4]);
    assert_eq!((seen.status, seen.text), (200, expected));
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = fixture.get(&format!("/runs?limit=2{cursor}")).await.json();
        let runs = page["runs"].as_array().unwrap().clone();
        found.extend(
            runs.iter()
                .map(|run| run["run_id"].as_str().unwrap().to_owned()),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    ids.reverse();
    assert_eq!(found, ids);
    let page = fixture.get("/runs?status=CANCELLED").await.json();
    assert_eq!(page["runs"].as_array().unwrap().len(), 1);
    let seen = fixture.get("/runs?limit=x&status=y").await;
    assert_eq!(
        (seen.status, seen.json()["detail"].as_array().unwrap().len()),
        (422, 2)
    );
}

#[tokio::test]
async fn a_repeated_request_is_one_run() {
    let fixture = Fixture::new().await;
    let key = [("idempotency-key", "k-1")];
    let body = json!({"code": "ok"});
    let first = fixture.post(&body, &key).await.json();
    let again = fixture.post(&body, &key).await;
    assert_eq!(
        (again.status, &again.json()["run_id"]),
        (200, &first["run_id"])
    );
    let other = fixture.post(&json!({"code": "ok "}), &key).await;
    let text = "Idempotency-Key was used with another request body";
    assert_eq!((other.status, other.json()), (409, detail(text)));
    assert_ne!(
        fixture.post(&body, &[]).await.json()["run_id"],
        first["run_id"]
    );
    let seen = fixture.post(&body, &[("idempotency-key", "a b")]).await;
    assert_eq!(
        seen.json()["detail"][0]["loc"],
        json!(["header", "idempotency-key"])
    );
}

#[tokio::test]
async fn what_cannot_be_accepted_says_when_to_come_back() {
    let fixture = Fixture::with(|config| config.app.max_queued_runs = 1, Vec::new()).await;
    let hang = json!({"code": "hang SECRET"});
    let mut last = fixture.post(&hang, &[]).await;
    for _ in 0..4 {
        last = fixture.post(&hang, &[]).await;
    }
    assert_eq!(
        (last.status, last.json()),
        (429, detail("Too many runs are waiting"))
    );
    assert!(last.header("retry-after").is_some());
    fixture.runs.shutdown(std::time::Duration::ZERO).await;
    let seen = fixture.post(&hang, &[]).await;
    assert_eq!(
        (seen.status, seen.json()),
        (503, detail("Service is shutting down"))
    );
    assert!(seen.header("retry-after").is_some());
}

#[tokio::test]
async fn no_body_however_odd_is_our_failure() {
    let fixture = Fixture::new().await;
    let send = async |content_type: &str, body: Vec<u8>| {
        let request = Request::post("/runs").header("content-type", content_type);
        fixture.call(request.body(Body::from(body)).unwrap()).await
    };
    let json_type = "application/json";
    let seen = send(json_type, Vec::new()).await;
    let text =
        r#"{"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]}"#;
    assert_eq!((seen.status, seen.text.as_str()), (422, text));
    let seen = send(json_type, br#"{"bash_script":"SECRET","x":1}"#.to_vec()).await;
    let text = r#"{"detail":[{"type":"missing","loc":["body","dataset_path"],"msg":"Field required","input":{"bash_script":null,"x":1}}]}"#;
    assert_eq!((seen.status, seen.text.as_str()), (422, text));
    for (content_type, body, kind) in [
        (json_type, "{".to_owned(), "json_invalid"),
        (json_type, "[".repeat(90_000), "json_invalid"),
        (json_type, r#"{"code":"\ud800"}"#.to_owned(), "json_invalid"),
        (
            json_type,
            r#"{"options":{"cpus":NaN}}"#.to_owned(),
            "json_invalid",
        ),
        (json_type, "[1]".to_owned(), "model_attributes_type"),
        (
            "text/plain",
            r#"{"code":"SECRET"}"#.to_owned(),
            "model_attributes_type",
        ),
    ] {
        let seen = send(content_type, body.into_bytes()).await;
        assert_eq!(
            (seen.status, &seen.json()["detail"][0]["type"]),
            (422, &json!(kind))
        );
    }
    let seen = send(json_type, b"\"\xff\xff\"".to_vec()).await;
    assert_eq!(seen.status, 422);
    for (path, text) in [
        ("/etc", "Dataset path is outside allowed data root"),
        ("../../.env", "Dataset path is outside allowed data root"),
        ("", "Invalid dataset directory"),
        ("a\0b", "Invalid dataset directory"),
        ("x".repeat(90_000).as_str(), "Invalid dataset directory"),
    ] {
        let seen = fixture.post(&json!({"dataset_path": path}), &[]).await;
        assert_eq!((seen.status, seen.json()), (400, detail(text)));
    }
    let seen = send(json_type, vec![b' '; 100_001]).await;
    assert_eq!(
        (seen.status, seen.json()),
        (413, detail("Request body too large"))
    );
    let declared = Request::post("/runs").header("content-length", "100001");
    let seen = fixture.call(declared.body(Body::empty()).unwrap()).await;
    assert_eq!(seen.status, 413);
    assert_eq!(fixture.get("/runs").await.json()["runs"], json!([]));
}

#[tokio::test]
async fn a_body_that_does_not_arrive_starts_nothing() {
    use futures_util::{StreamExt as _, stream};
    let fixture = Fixture::with(|config| config.api.read_timeout_seconds = 1, Vec::new()).await;
    let piece = || Ok::<_, std::io::Error>(br#"{"code":"#.to_vec());
    let silent = stream::iter([piece()]).chain(stream::pending());
    let request = Request::post("/runs")
        .body(Body::from_stream(silent))
        .unwrap();
    let seen = fixture.call(request).await;
    assert_eq!(
        (seen.status, seen.json()),
        (408, detail("Request body timed out"))
    );
    let broken = stream::iter([piece(), Err(std::io::ErrorKind::ConnectionReset.into())]);
    let request = Request::post("/runs")
        .body(Body::from_stream(broken))
        .unwrap();
    assert_eq!(fixture.call(request).await.status, 400);
    assert_eq!(fixture.get("/runs").await.json()["runs"], json!([]));
}

#[tokio::test]
async fn a_closed_gate_is_answered_with_the_neutral_text_before_any_check() {
    let fixture = Fixture::new().await;
    let gate = fixture.runs.gate();
    gate.close(vec!["SECRET".to_owned()]);
    for body in [json!({"code": "ok"}), json!({"options": 1})] {
        let seen = fixture.post(&body, &[]).await;
        let refused = (503, detail("Service temporarily unavailable"));
        assert_eq!((seen.status, seen.json()), refused);
        assert_eq!(seen.header("retry-after"), Some("5"));
    }
    gate.admit(Offered {
        runtimes: vec!["runc".to_owned(), "runsc".to_owned()],
        default: None,
    });
    let body = json!({"code": "ok", "options": {"runtime": "runsc"}});
    fixture.run(&body).await;
    let settings = fixture.get("/settings").await.json();
    assert_eq!(settings["runtimes"], json!(["runc", "runsc"]));
}
