//! Paths, methods, and the fields of every answer.

use reqwest::Method;
use serde_json::{Value, json};

use super::{blocker, cancel, detail, keys, one_at_a_time, sent};
use crate::support::Daemon;

const UNKNOWN: &str = "123e4567-e89b-42d3-a456-426614174000";

const RUN_FIELDS: [&str; 15] = [
    "run_id",
    "status",
    "success",
    "task_summary",
    "selected_library",
    "iterations",
    "final_metrics",
    "prediction_artifact_reference",
    "model_artifact_reference",
    "execution_duration",
    "final_error",
    "dataset_name",
    "judge_decisions",
    "execution_backend",
    "model_usage",
];

const RESULT_FIELDS: [&str; 23] = [
    "success",
    "status",
    "return_code",
    "stdout",
    "stderr",
    "duration_seconds",
    "timed_out",
    "output_files",
    "missing_expected_files",
    "error_info",
    "workspace_dir",
    "limit",
    "cause",
    "warnings",
    "stdout_bytes",
    "stderr_bytes",
    "stdout_tail",
    "stderr_tail",
    "usage",
    "started_at",
    "finished_at",
    "artifacts",
    "artifacts_skipped",
];

const EPISODE_FIELDS: [&str; 14] = [
    "episode_id",
    "run_id",
    "iteration",
    "timestamp",
    "status",
    "execution_status",
    "execution_result_summary",
    "error_context_summary",
    "judge_decision",
    "judge_reason",
    "missing_expected_files",
    "summary",
    "suggested_fix",
    "error_category",
];

#[track_caller]
fn has_fields(value: &Value, fields: &[&str]) {
    let found = keys(value);
    for field in fields {
        assert!(found.contains(field), "{field} is missing in {value:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_live_and_ready_answer_as_documented() {
    let daemon = Daemon::start().await;
    let version = env!("CARGO_PKG_VERSION");
    let health = json!({ "status": "ok", "version": version });
    assert_eq!(daemon.get("/health").await, (200, health));
    assert_eq!(daemon.get("/live").await, (200, json!({ "status": "ok" })));
    let pool = json!({ "size": 0, "waiting": 0 });
    let ready = json!({ "status": "ready", "pool": pool });
    assert_eq!(daemon.get("/ready").await, (200, ready));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_paths_methods_and_runs_have_their_answers() {
    let daemon = Daemon::start().await;
    let ask = |method, path: &str| sent(daemon.request(method, path));
    for path in [
        "/",
        "/nothing",
        "/runs/a/b/c",
        "/health/x",
        "/execute",
        "/shell",
        "/files",
        "/runs/",
    ] {
        let seen = ask(Method::GET, path).await;
        assert_eq!(
            (seen.status, seen.json()),
            (404, detail("Not Found")),
            "{path}"
        );
    }
    for id in [UNKNOWN, "x", "%00", "%ff", "*", "..%2f..%2fetc%2fpasswd"] {
        for below in ["", "/episodes", "/artifacts", "/events"] {
            let path = format!("/runs/{id}{below}");
            let seen = ask(Method::GET, &path).await;
            assert_eq!(
                (seen.status, seen.json()),
                (404, detail("Run not found")),
                "{path}"
            );
        }
        let answer = cancel(&daemon, id).await;
        assert_eq!(answer, (404, detail("Run not found")), "{id}");
    }
    let run = format!("/runs/{UNKNOWN}");
    let cancelling = format!("{run}/cancel");
    for (method, path, allow) in [
        (Method::POST, "/health", "GET"),
        (Method::DELETE, "/runs", "GET, POST"),
        (Method::PUT, &run, "GET"),
        (Method::GET, &cancelling, "POST"),
        (Method::PATCH, "/settings", "GET"),
        (Method::OPTIONS, "/runs", "GET, POST"),
    ] {
        let seen = ask(method, path).await;
        assert_eq!(
            (seen.status, seen.json()),
            (405, detail("Method Not Allowed")),
            "{path}"
        );
        assert_eq!(seen.header("allow"), Some(allow), "{path}");
    }
    // Off unless configured: no file leaves through the interface.
    for path in ["/datasets/upload", "/settings/x"] {
        let seen = ask(Method::POST, path).await;
        assert_eq!((seen.status, seen.json()), (404, detail("Not Found")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_documented_field_is_there_from_the_first_moment_to_the_last() {
    let daemon = one_at_a_time().await;
    let first = blocker(&daemon).await;
    std::fs::create_dir(daemon.data().join("set")).unwrap();
    let code = "import json, os\n\
        os.makedirs('out/models')\n\
        open('out/models/m.bin', 'w').write('model')\n\
        open('out/predictions.csv', 'w').write('a\\n1\\n')\n\
        open('out/summary.json', 'w').write(json.dumps(\n\
            {'success': True, 'model_path': 'models/m.bin', 'metrics': {'accuracy': 0.5}}))\n";
    let body = json!({ "dataset_path": "data/set", "code": code });
    let (status, created) = daemon.post("/runs", &body).await;
    assert_eq!(status, 200);
    assert_eq!(keys(&created), ["run_id", "status"]);
    assert_eq!(created["status"], "QUEUED");
    let id = created["run_id"].as_str().unwrap().to_owned();
    let uuid: Vec<_> = id.split('-').map(str::len).collect();
    assert_eq!(uuid, [8, 4, 4, 4, 12]);
    assert_eq!(id.as_bytes()[14], b'4', "a version 4 UUID");

    let (_, queued) = daemon.get(&format!("/runs/{id}")).await;
    assert_eq!(keys(&queued), RUN_FIELDS);
    assert_eq!(queued["status"], "QUEUED");
    assert_eq!(queued["dataset_name"], "set");
    assert_eq!(queued["execution_backend"], "mock");
    for field in [
        "success",
        "iterations",
        "final_metrics",
        "final_error",
        "execution_duration",
    ] {
        assert_eq!(queued[field], Value::Null, "{field}");
    }
    let (status, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
    let expected = json!({ "run_id": id, "start_time": null, "end_time": null,
        "selected_library": null, "episodes": [], "final_result": null });
    assert_eq!((status, episodes), (200, expected));
    let (status, artifacts) = daemon.get(&format!("/runs/{id}/artifacts")).await;
    let expected = json!({ "run_id": id, "prediction_artifact_reference": null,
        "model_artifact_reference": null, "artifacts": [] });
    assert_eq!((status, artifacts), (200, expected));

    cancel(&daemon, &first).await;
    let ended = daemon.ended(&id).await;
    assert_eq!(keys(&ended), RUN_FIELDS);
    assert_eq!(ended["status"], "SUCCESS", "{ended:#}");
    assert_eq!(
        (&ended["success"], &ended["iterations"]),
        (&json!(true), &json!(1))
    );
    assert_eq!(ended["final_metrics"], json!({ "accuracy": 0.5 }));
    assert_eq!(ended["judge_decisions"], json!([]));

    let (_, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
    assert_eq!(episodes["final_result"], "SUCCESS");
    assert!(episodes["start_time"].as_str() <= episodes["end_time"].as_str());
    let episode = &episodes["episodes"][0];
    has_fields(episode, &EPISODE_FIELDS);
    let summary = [
        "success",
        "return_code",
        "duration_seconds",
        "stdout_excerpt",
        "stderr_excerpt",
        "output_files",
        "error_info",
    ];
    assert_eq!(keys(&episode["execution_result_summary"]), summary);
    assert_eq!(episode["error_context_summary"], Value::Null);

    let (_, artifacts) = daemon.get(&format!("/runs/{id}/artifacts")).await;
    let listed = artifacts["artifacts"].as_array().unwrap();
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().all(|a| keys(a) == ["path", "size", "sha256"]));
    let reference = artifacts["prediction_artifact_reference"].as_str().unwrap();
    assert!(reference.starts_with("exec_") && reference.ends_with("/predictions.csv"));
    assert_eq!(
        artifacts["model_artifact_reference"],
        ended["model_artifact_reference"]
    );
    // Without permission in the configuration no byte of a file leaves.
    for path in [
        "artifacts/predictions.csv",
        "artifacts.tar",
        "predictions/download",
    ] {
        let (status, answer) = daemon.get(&format!("/runs/{id}/{path}")).await;
        assert_eq!((status, answer), (404, detail("Not Found")), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_has_every_field_and_names_its_error() {
    let daemon = Daemon::start().await;
    let run = daemon
        .run(json!({ "code": "raise KeyError('targt')" }))
        .await;
    has_fields(&run, &RUN_FIELDS);
    has_fields(&run["result"], &RESULT_FIELDS);
    let cause = [
        "kind",
        "limit",
        "configured",
        "observed",
        "evidence",
        "message",
    ];
    assert_eq!(keys(&run["result"]["cause"]), cause);
    assert_eq!(
        (&run["status"], &run["success"]),
        (&json!("FAIL"), &json!(false))
    );
    assert_eq!(run["final_error"], "runtime_error");
    let id = run["run_id"].as_str().unwrap();
    let (_, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
    let episode = &episodes["episodes"][0];
    assert_eq!(
        (&episode["status"], &episode["execution_status"]),
        (&json!("FAIL"), &json!("FAILURE"))
    );
    let context = &episode["error_context_summary"];
    let fields = ["error_category", "error_message", "suggested_fix"];
    assert_eq!(keys(context), fields);
    assert_eq!(context["error_category"], "runtime_error");
    let stderr = episode["execution_result_summary"]["stderr_excerpt"].as_str();
    assert!(stderr.unwrap().contains("KeyError: 'targt'"), "{episode:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_json_that_no_browser_guesses_and_no_cache_keeps() {
    let daemon = Daemon::start().await;
    for path in ["/health", "/runs", "/nothing", "/settings"] {
        let seen = sent(daemon.request(Method::GET, path)).await;
        assert_eq!(seen.header("content-type"), Some("application/json"));
        assert_eq!(seen.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(seen.header("cache-control"), Some("no-store"));
        let policy = "default-src 'none'; frame-ancestors 'none'";
        assert_eq!(seen.header("content-security-policy"), Some(policy));
        let resource = seen.header("cross-origin-resource-policy");
        assert_eq!(resource, Some("same-origin"));
        assert_eq!(seen.header("referrer-policy"), Some("no-referrer"));
    }
}
