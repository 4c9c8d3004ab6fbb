//! The shape of statements, and what is never in them.

use serde_json::{Value, json};

use super::*;
use crate::execution::cause::Verdict;
use crate::receipt::testing::{evidence, execution_id, result, run_id};

const PUBLIC_KEY: &str = "00ff";

fn shown(known: Known<'_>) -> Value {
    let instance = InstanceId::parse("abcdefghijkl").unwrap();
    let issuer = Issuer {
        instance: &instance,
        public_key: PUBLIC_KEY,
    };
    let account = Account {
        run: run_id(),
        execution: &execution_id(3),
        known,
    };
    statement(&account, issuer).unwrap()
}

fn ended(result: &ExecutionResult, evidence: &Evidence) -> Value {
    shown(Known::Ended {
        iteration: 2,
        code_sha256: "12",
        code_bytes: 5,
        result,
        evidence,
    })
}

#[test]
fn everything_that_is_known_of_an_execution_is_in_it() {
    let document = ended(&result(&execution_id(3)), &evidence());
    let expected = json!({
        "kind": "exit", "exit_code": 0, "signal": null,
    });
    assert_eq!(document["outcome"]["ending"], expected);
    assert_eq!(document["outcome"]["status"], "SUCCESS");
    assert_eq!(document["outcome"]["cause"], "exited");
    assert_eq!(document["outcome"]["duration_milliseconds"], 1250);
    assert_eq!(
        document["outcome"]["started_at"],
        "1970-01-01T00:00:00.000000Z"
    );
    assert_eq!(
        document["outcome"]["finished_at"],
        "1970-01-01T00:00:01.250000Z"
    );
    assert_eq!(
        document["outcome"]["artifacts"][1]["path"],
        "predictions.csv"
    );
    let daemon = json!({
        "instance": "abcdefghijkl", "public_key": PUBLIC_KEY, "version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(document["daemon"], daemon);
    let execution = json!({
        "id": "exec_00000003", "iteration": 2, "run_id": "123e4567-e89b-42d3-a456-426614174000",
    });
    assert_eq!(document["execution"], execution);
    assert_eq!(document["image"]["reference"], "fumehood/python:1");
    assert_eq!(
        document["image"]["digest"],
        document["isolation"]["applied"]["image"]
    );
    assert_eq!(
        document["inputs"]["code"],
        json!({ "sha256": "12", "size": 5 })
    );
    assert_eq!(document["inputs"]["files"][0]["path"], "helper.py");
    assert_eq!(document["inputs"]["setup_script"]["size"], 5);
    assert_eq!(document["dataset"]["listing"]["entries"], 2);
    assert_eq!(document["limits"]["wall_milliseconds"], 120_000);
    assert_eq!(document["isolation"]["found"]["seccomp_mode"], 2);
    let sandbox = json!({ "state": "used", "start": "preloaded", "dataset_mount": "placed" });
    assert_eq!(document["sandbox"], sandbox);
    assert_eq!(
        (&document["schema"], &document["schema_version"]),
        (&json!(SCHEMA), &json!(1))
    );
}

#[test]
fn nothing_that_a_program_printed_is_in_it_and_every_key_comes_after_the_chain() {
    let document = ended(&result(&execution_id(3)), &evidence());
    assert!(!document.to_string().contains("PRINTED"));
    for key in document.as_object().unwrap().keys() {
        assert!(key.as_str() > "chain", "{key}");
    }
}

#[test]
fn an_execution_without_a_sandbox_says_so() {
    let evidence = Evidence {
        isolation: None,
        ..evidence()
    };
    let refused = Verdict::refused("Code artifact is empty.".to_owned());
    let result = ExecutionResult {
        status: refused.status,
        return_code: refused.return_code,
        sandbox: None,
        started_at: None,
        artifacts: Vec::new(),
        ..result(&execution_id(3))
    };
    let document = ended(&result, &evidence);
    let sandbox = json!({ "state": "none", "start": null, "dataset_mount": null });
    assert_eq!(document["sandbox"], sandbox);
    assert_eq!(document["isolation"], Value::Null);
    assert_eq!(document["image"]["digest"], Value::Null);
    assert_eq!(document["outcome"]["status"], "FAILURE");
    let ending = json!({ "kind": "not_started", "exit_code": null, "signal": null });
    assert_eq!(document["outcome"]["ending"], ending);
}

#[test]
fn of_a_lost_execution_nothing_is_claimed() {
    let document = shown(Known::Lost);
    assert_eq!(document["outcome"]["status"], "LOST");
    assert_eq!(document["outcome"]["ending"]["kind"], "unknown");
    assert_eq!(document["sandbox"]["state"], "unknown");
    for unknown in ["dataset", "inputs", "isolation", "limits"] {
        assert_eq!(document[unknown], Value::Null);
    }
}

#[test]
fn every_ending_is_told_from_the_others() {
    for (code, kind, exit_code, signal) in [
        (Some(0), "exit", json!(0), Value::Null),
        (Some(255), "exit", json!(255), Value::Null),
        (Some(-1), "signal", Value::Null, json!(1)),
        (Some(-9), "signal", Value::Null, json!(9)),
        (None, "stopped", Value::Null, Value::Null),
    ] {
        let result = ExecutionResult {
            return_code: code,
            ..result(&execution_id(3))
        };
        let ending = &ended(&result, &evidence())["outcome"]["ending"];
        let expected = json!({ "kind": kind, "exit_code": exit_code, "signal": signal });
        assert_eq!(*ending, expected);
    }
}
