//! The engine goes away while artifacts are copied (bug case BR-39, during collection): the
//! program's own end stands, and what is missing is not its fault.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::daemon::PATIENCE;
use crate::support::proxy::Proxy;
use crate::support::wait::until;
use crate::support::watch::{Flight, nothing_left};
use crate::support::{Daemon, Settings};

/// Runs a program with much to copy, and breaks its stream in the middle of that; gives the run.
async fn cut_while_copying(exit_code: u8, expected: Value) -> Value {
    let proxy = Proxy::start();
    let daemon = Daemon::start_with(Settings {
        engine: Some(proxy.socket()),
        ..Settings::default()
    })
    .await;
    let code = format!(
        "import os\npiece = os.urandom(1 << 20)\nprint('written')\n\
         with open('out/big', 'wb') as f:\n    for _ in range(700): f.write(piece)\n\
         os._exit({exit_code})"
    );
    let body = json!({ "code": code, "expected_output_files": expected });
    let flight = Flight::start(&daemon, body).await;
    let copied = || {
        let models = std::fs::read_dir(daemon.artifacts(""))
            .into_iter()
            .flatten();
        let files: Vec<PathBuf> = models.map(|e| e.unwrap().path().join("big")).collect();
        let sizes = files.iter().filter_map(|file| file.metadata().ok());
        sizes.map(|metadata| metadata.len()).sum::<u64>()
    };
    until(PATIENCE, async || copied(), |bytes| *bytes > 0).await;
    proxy.cut();
    let mut run = flight.end(&daemon).await;
    nothing_left(&daemon, Duration::from_secs(10)).await;
    let result = &run["result"];
    assert_eq!(result["stdout"], "written\n", "{run}");
    assert_eq!(result["return_code"], exit_code, "{run}");
    assert_eq!(result["artifacts"], json!([]), "half a file was published");
    let warnings = result["warnings"].to_string();
    assert!(
        warnings.contains("the artifacts are incomplete"),
        "{warnings}"
    );
    run["result"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_while_artifacts_are_copied_leaves_the_true_exit_code() {
    let result = cut_while_copying(3, json!([])).await;
    assert_eq!(result["status"], "FAILURE", "{result}");
    assert_eq!(result["cause"]["kind"], "exited");
}

#[tokio::test(flavor = "multi_thread")]
async fn expected_files_that_we_lost_are_not_called_missing_by_the_programs_fault() {
    let result = cut_while_copying(0, json!(["big"])).await;
    assert_eq!(result["status"], "ERROR", "{result}");
    assert_eq!(result["success"], false);
    assert_eq!(result["cause"]["kind"], "infrastructure");
    assert_eq!(result["missing_expected_files"], json!(["big"]));
    let why = result["error_info"].as_str().unwrap();
    assert!(why.contains("big") && why.contains("not at fault"), "{why}");
}
