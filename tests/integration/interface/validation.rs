//! What is wrong with a body, in the words of the interface.

use serde_json::{Value, json};

use super::{QUICK, all_runs, detail, post_text};
use crate::support::Daemon;
use crate::support::engine::containers_of;

/// Type, location and message of every error of an answer.
#[track_caller]
fn errors(answer: &Value) -> Vec<(String, Value, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = answer["detail"].as_array();
    let list = list.unwrap_or_else(|| panic!("no list of errors: {answer}"));
    list.iter()
        .map(|error| {
            assert!(error.get("input").is_some(), "{error}");
            (
                text(&error["type"]),
                error["loc"].clone(),
                text(&error["msg"]),
            )
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_fields_are_422_with_type_place_and_message() {
    let daemon = Daemon::start().await;
    let string = "Input should be a valid string";
    let dictionary = "Input should be a valid dictionary";
    let required = "Field required";
    for (body, kind, place, message) in [
        (
            json!({}),
            "missing",
            json!(["body", "dataset_path"]),
            required,
        ),
        (json!(null), "missing", json!(["body"]), required),
        (
            json!({ "dataset_path": 5 }),
            "string_type",
            json!(["body", "dataset_path"]),
            string,
        ),
        (
            json!({ "dataset_path": null }),
            "string_type",
            json!(["body", "dataset_path"]),
            string,
        ),
        (
            json!({ "dataset_path": ["x"] }),
            "string_type",
            json!(["body", "dataset_path"]),
            string,
        ),
        (
            json!({ "dataset_path": "data", "user_instruction": {} }),
            "string_type",
            json!(["body", "user_instruction"]),
            string,
        ),
        (
            json!({ "dataset_path": "data", "options": null }),
            "dict_type",
            json!(["body", "options"]),
            dictionary,
        ),
        (
            json!({ "dataset_path": "data", "options": [] }),
            "dict_type",
            json!(["body", "options"]),
            dictionary,
        ),
        (
            json!({ "dataset_path": "data", "code": false }),
            "string_type",
            json!(["body", "code"]),
            string,
        ),
        (
            json!({ "code": QUICK, "input_files": [] }),
            "dict_type",
            json!(["body", "input_files"]),
            dictionary,
        ),
        (
            json!({ "code": QUICK, "input_files": { "a": 1 } }),
            "string_type",
            json!(["body", "input_files", "a"]),
            string,
        ),
        (
            json!({ "code": QUICK, "expected_output_files": "x" }),
            "list_type",
            json!(["body", "expected_output_files"]),
            "Input should be a valid list",
        ),
        (
            json!({ "code": QUICK, "expected_output_files": ["a", 1] }),
            "string_type",
            json!(["body", "expected_output_files", 1]),
            string,
        ),
        (
            json!({ "code": QUICK, "bash_script": 1 }),
            "string_type",
            json!(["body", "bash_script"]),
            string,
        ),
    ] {
        let (status, answer) = daemon.post("/runs", &body).await;
        assert_eq!(status, 422, "{body}: {answer}");
        let expected = (kind.to_owned(), place, message.to_owned());
        assert_eq!(errors(&answer), [expected], "{body}");
    }
    let seen = post_text(&daemon, "").await;
    let nothing = ("missing".to_owned(), json!(["body"]), required.to_owned());
    assert_eq!((seen.status, errors(&seen.json())), (422, vec![nothing]));
    assert_eq!(all_runs(&daemon).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_options_are_422_and_name_the_option() {
    let daemon = Daemon::start().await;
    for (name, values) in [
        (
            "timeout_seconds",
            r#"0 -1 1e999 1e30 -1e999 "5" true [] {} 86401"#,
        ),
        (
            "memory_mb",
            r#"0 -1 1.5 1e999 "512" true [] 63 99999999 99999999999999999999999"#,
        ),
        ("cpus", r#"0 -0.5 0.001 1e999 "1" false 1000000"#),
        ("max_processes", r#"0 3 -5 2.5 "8" 99999999 {}"#),
        ("workspace_mb", r#"0 -1 0.5 "1" 99999999"#),
        ("max_iterations", r#"0 51 -1 1.5 "3""#),
        ("mock_llm", r#"7 "perhaps" [] {}"#),
        ("llm_mode", r#""fake" 1 [] true"#),
        ("image", r#""ubuntu:latest" "" 1 ["x"]"#),
        ("runtime", r#""no-such-runtime" 1 []"#),
        ("disable_judge", r#"{} 9 "perhaps""#),
    ] {
        for value in values.split(' ') {
            let body = format!(r#"{{"code": "print()", "options": {{"{name}": {value}}}}}"#);
            let seen = post_text(&daemon, body).await;
            assert_eq!(seen.status, 422, "{name}={value}: {}", seen.text);
            let places: Vec<_> = errors(&seen.json()).into_iter().map(|e| e.1).collect();
            assert_eq!(places, [json!(["body", "options", name])], "{value}");
        }
    }
    let both = json!({ "code": QUICK, "options": { "cpus": 0, "memory_mb": -1 } });
    let (status, answer) = daemon.post("/runs", &both).await;
    assert_eq!(
        (status, errors(&answer).len()),
        (422, 2),
        "all of them at once"
    );
    assert_eq!(all_runs(&daemon).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_and_options_and_a_sent_run_id_are_ignored() {
    let daemon = Daemon::start().await;
    let sent = "123e4567-e89b-42d3-a456-426614174000";
    let run = daemon
        .run(json!({
            "code": QUICK,
            "user_instruction": null,
            "surprise": { "deep": [1, 2] },
            "options": {
                "run_id": sent, "network": "host", "privileged": true, "binds": ["/:/host"],
                "memory_mb": null, "llm_mode": "mock", "mock_llm": false,
            },
        }))
        .await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    assert_ne!(run["run_id"], sent);
    assert_eq!(
        run["execution_backend"], "mock",
        "llm_mode wins over mock_llm"
    );
    assert_eq!(daemon.get(&format!("/runs/{sent}")).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn input_files_that_leave_the_workspace_are_400_and_nothing_runs() {
    let daemon = Daemon::start().await;
    for name in [
        "",
        ".",
        "..",
        "../x",
        "a/../../x",
        "/etc/passwd",
        "a\0b",
        "script.py",
        "./script.py",
        "setup.sh",
        "a/../script.py",
    ] {
        let body = json!({ "code": QUICK, "input_files": { name: "x" } });
        let (status, answer) = daemon.post("/runs", &body).await;
        assert_eq!(status, 400, "{name:?}: {answer}");
        let text = answer["detail"].as_str().unwrap();
        assert!(
            text.starts_with("Insecure file path detected: Invalid path "),
            "{text}"
        );
        assert!(text.ends_with(" escapes workspace."), "{text}");
    }
    let body = json!({ "code": QUICK, "input_files": { "a": "1", "a/b": "2" } });
    let (status, answer) = daemon.post("/runs", &body).await;
    assert_eq!(status, 400, "{answer}");
    let body = json!({ "code": QUICK, "input_files": { "a": { "base64": "?" } } });
    let (status, answer) = daemon.post("/runs", &body).await;
    assert_eq!(
        (status, &answer["detail"][0]["type"]),
        (422, &json!("base64_decode"))
    );
    assert_eq!(all_runs(&daemon).await, Vec::<Value>::new());
    assert_eq!(
        containers_of(&daemon.instance()).await,
        Vec::<String>::new()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_instruction_is_counted_in_characters() {
    let daemon = Daemon::start().await;
    let body = |instruction: String| json!({ "code": QUICK, "user_instruction": instruction });
    for fits in ["é".repeat(1000), "🚀".repeat(1000), String::new()] {
        assert_eq!(daemon.run(body(fits)).await["status"], "SUCCESS");
    }
    let long = daemon.post("/runs", &body("é".repeat(1001))).await;
    assert_eq!(
        long,
        (400, detail("User instruction exceeds maximum length"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_code_starts_nothing_and_without_code_there_has_to_be_a_writer() {
    let daemon = Daemon::start().await;
    for code in ["", " \t\r\n ", "\u{2003}\n"] {
        let result = daemon.execute(code).await;
        assert_eq!(result["success"], false);
        assert_eq!(result["error_info"], "Code artifact is empty.", "{code:?}");
        assert_eq!(result["usage"], Value::Null);
    }
    let body = json!({ "dataset_path": "data", "options": { "llm_mode": "real" } });
    let (status, answer) = daemon.post("/runs", &body).await;
    assert_eq!(status, 400);
    assert!(
        answer["detail"].as_str().unwrap().contains("\"code\""),
        "{answer}"
    );
}
