//! What no answer holds: the environment, keys, source code, and where things are on the host.

use reqwest::Method;
use serde_json::{Value, json};

use super::{cancel, sent};
use crate::support::engine::{containers_of, inspect};
use crate::support::{Daemon, Settings};

/// Every canary begins so; the rest tells where it was planted.
const CANARY: &str = "canary-7f3a";

/// In the text of the program, and never printed by it.
const PROGRAM_MARK: &str = "PROGRAM-MARK-51c2";

fn canary(place: &str) -> String {
    format!("{CANARY}-{place}")
}

async fn with_canaries() -> Daemon {
    let environment = vec![
        ("OPENAI_API_KEY", canary("key")),
        ("AWS_SECRET_ACCESS_KEY", canary("aws")),
        ("PYTHONSTARTUP", canary("startup")),
        ("HTTPS_PROXY", canary("proxy")),
    ];
    let toml = format!("[llm]\nbase_url = 'https://{CANARY}-host.invalid/v1'");
    let mut daemon = Daemon::start_with(Settings {
        toml,
        environment,
        ..Settings::default()
    })
    .await;
    // What is read at the start is read with the file there.
    daemon.stop();
    let lines = format!("OPENAI_API_KEY={}\nDB=x\n", canary("dotenv"));
    std::fs::write(daemon.path().join(".env"), lines).unwrap();
    std::fs::create_dir(daemon.path().join(".git")).unwrap();
    std::fs::write(daemon.path().join(".git/config"), canary("git")).unwrap();
    std::fs::create_dir(daemon.data().join("set")).unwrap();
    daemon.launch();
    daemon
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_artifact_or_log_line_holds_a_secret_the_code_or_a_host_path() {
    let daemon = with_canaries().await;
    let code = format!(
        "# {PROGRAM_MARK}\nimport os\nprint(dict(os.environ))\n\
         for root, _, files in os.walk('/data'): print(root, files)\n\
         for f in ('/data/../.env', '.env', '../.env', '/proc/1/environ'):\n    \
             try: print(open(f).read())\n    \
             except OSError as e: print(e.errno)\n\
         open('out/environment.txt', 'w').write(str(os.environ))\n"
    );
    let good = json!({ "dataset_path": "data/set", "code": code, "bash_script": "# SCRIPT-MARK" });
    let run = daemon.run(good).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    let id = run["run_id"].as_str().unwrap().to_owned();
    let mut texts = vec![run.to_string()];
    for path in [
        "/health",
        "/live",
        "/ready",
        "/settings",
        "/runs",
        "/nothing",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/.env",
        "/runs/..%2f.env",
        "/%2e%2e/.env",
        &format!("/runs/{id}"),
        &format!("/runs/{id}/episodes"),
        &format!("/runs/{id}/artifacts"),
        &format!("/runs/{id}/events"),
        &format!("/runs/{id}/receipt"),
        &format!("/runs/{id}/artifacts/setup.sh"),
        &format!("/runs/{id}/artifacts/..%2f..%2f..%2f.env"),
    ] {
        let seen = sent(daemon.request(Method::GET, path)).await;
        assert!(seen.status < 500, "{path}: {}", seen.text);
        texts.push(format!("{path} {:?} {}", seen.headers, seen.text));
    }
    let wrong = [
        json!(code),
        json!([code]),
        json!({ "code": [code] }),
        json!({ "code": { "text": code }, "options": 1 }),
        json!({ "input_files": code, "bash_script": [code] }),
        json!({ "code": code, "input_files": { "a": [code] } }),
        json!({ "code": code, "dataset_path": 1 }),
        json!({ "code": code, "dataset_path": daemon.path().join(".env") }),
        json!({ "code": code, "dataset_path": "data/../.env" }),
        json!({ "code": code, "dataset_path": daemon.data().join("missing") }),
        json!({ "code": code, "options": { "cpus": 0 } }),
    ];
    for body in wrong {
        let (status, answer) = daemon.post("/runs", &body).await;
        assert!((400..500).contains(&status), "{answer}");
        texts.push(answer.to_string());
    }
    let host = daemon.path().to_str().unwrap();
    for text in &texts {
        assert!(!text.contains(host), "a host path in {text}");
    }
    texts.push(daemon.log());
    let execution = run["result"]["execution_id"].as_str().unwrap();
    for entry in std::fs::read_dir(daemon.artifacts(execution)).unwrap() {
        let path = entry.unwrap().path();
        texts.push(String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned());
    }
    for text in &texts {
        for secret in [CANARY, PROGRAM_MARK] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_hold_no_absolute_path_no_address_and_no_key() {
    let daemon = with_canaries().await;
    let (status, settings) = daemon.get("/settings").await;
    assert_eq!(status, 200);
    assert_eq!(settings["limits"]["timeout_seconds"], json!(120.0));
    assert_eq!(settings["limits"]["memory_mb"], 2048);
    assert_eq!(settings["ceilings"]["memory_mb"], 16_384);
    assert_eq!(settings["features"]["llm_base_url"], true);
    assert_eq!(settings["features"]["artifact_download"], false);
    assert_eq!(settings["llm_mode"], "mock");
    let mut pending = vec![&settings];
    while let Some(value) = pending.pop() {
        match value {
            Value::Object(fields) => pending.extend(fields.values()),
            Value::Array(items) => pending.extend(items),
            Value::String(text) => {
                assert!(!text.starts_with('/'), "{text}");
                for part in [CANARY, "://", "OPENAI_API_KEY", "127.0.0.1"] {
                    assert!(!text.contains(part), "{text}");
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_sees_no_secret_of_the_daemon() {
    let daemon = with_canaries().await;
    let code = format!("# {PROGRAM_MARK}\n{}", super::ENDLESS);
    let id = daemon.submit(json!({ "code": code })).await;
    super::events::until_printed(&daemon, &id, "up").await;
    let names = containers_of(&daemon.instance()).await;
    assert_eq!(names.len(), 1);
    let seen = serde_json::to_string(&inspect(&names[0]).await).unwrap();
    for secret in [CANARY, PROGRAM_MARK] {
        assert!(!seen.contains(secret), "{secret} in {seen}");
    }
    cancel(&daemon, &id).await;
    daemon.ended(&id).await;
}
