//! The key of the model is read once, and then in no environment of the daemon (security.md row 77).

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::{KEY, with_model};
use crate::support::data::give;
use crate::support::model::{self, Model, programs};
use crate::support::{Daemon, Settings};

/// What the kernel shows of a process: its environment, its arguments, and its open pipes.
fn shown(daemon: &Daemon) -> String {
    let of = |name: &str| std::fs::read(format!("/proc/{}/{name}", daemon.pid())).unwrap();
    let bytes = [of("environ"), of("cmdline")].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A good run with a model that was asked with this key.
async fn assert_asks_with_its_key(daemon: &Daemon, model: Model) {
    let dataset = give(daemon, "wine");
    let options = json!({"disable_judge": true});
    let body = json!({"dataset_path": dataset, "options": options});
    let run = daemon.run(body).await;
    assert_eq!(run["status"], "SUCCESS", "{run}");
    for request in model.stop() {
        assert!(request.head.contains(&format!("Bearer {KEY}")));
    }
}

/// A program that gives the daemon's program this text on standard input.
fn fed(directory: &Path, text: &str) -> PathBuf {
    let built = env!("CARGO_BIN_EXE_fumehood");
    let script = directory.join("fed");
    let feeding = format!("#!/bin/sh\nexec {built} \"$@\" --llm-key-stdin <<'END'\n{text}\nEND\n");
    std::fs::write(&script, feeding).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_in_a_variable_is_read_once_and_then_in_none() {
    let model = Model::start(programs(&[model::GOOD]));
    let daemon = Daemon::start_with(with_model(&model)).await;
    let shown = shown(&daemon);
    assert!(
        !shown.contains("OPENAI_API_KEY") && !shown.contains(KEY),
        "{shown}"
    );
    assert!(shown.contains("--llm-key-stdin"));
    // Nor does it wait somewhere for whoever reads: the pipe was read to its end.
    let stdin = std::fs::read_to_string(format!("/proc/{}/fdinfo/0", daemon.pid())).unwrap();
    assert!(!stdin.contains(KEY));
    assert_asks_with_its_key(&daemon, model).await;
}

/// Whoever looks for it there would find it: this is a variable that is not the key's.
#[tokio::test(flavor = "multi_thread")]
async fn a_variable_that_is_not_the_keys_stays_where_it_is() {
    let model = Model::start(programs(&[model::GOOD]));
    let mut settings = with_model(&model);
    settings.toml = settings
        .toml
        .replace("[llm]", "[llm]\napi_key_env = 'OTHER'");
    let daemon = Daemon::start_with(settings).await;
    let shown = shown(&daemon);
    assert!(shown.contains(&format!("OPENAI_API_KEY={KEY}")));
    assert!(!shown.contains("--llm-key-stdin"));
    // It is not sent either.
    let dataset = give(&daemon, "wine");
    daemon.run(json!({"dataset_path": dataset})).await;
    for request in model.stop() {
        let head = request.head.to_lowercase();
        assert!(!head.contains("authorization"), "{head}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_on_standard_input_is_used_and_one_in_the_variable_is_taken_out_all_the_same() {
    for variable in [None, Some("CANARY_another_key_that_is_not_meant")] {
        let directory = tempfile::tempdir().unwrap();
        let model = Model::start(programs(&[model::GOOD]));
        let environment = variable.map(|key| ("OPENAI_API_KEY", key.to_owned()));
        let daemon = Daemon::start_with(Settings {
            program: Some(fed(directory.path(), KEY)),
            environment: environment.into_iter().collect(),
            ..with_model(&model)
        })
        .await;
        let shown = shown(&daemon);
        assert!(!shown.contains("CANARY"), "{shown}");
        assert_eq!(shown.matches("--llm-key-stdin").count(), 1);
        assert_asks_with_its_key(&daemon, model).await;
    }
}
