//! Which directories may be data sets, and that the one that was checked is the one that is
//! mounted (contract section 1; BR-26, BR-27, BR-29).

mod names;

mod swapped;

use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::engine::containers_of;
use crate::support::{Daemon, Settings};

const OUTSIDE: &str = "Dataset path is outside allowed data root";
const INVALID: &str = "Invalid dataset directory";
const TOO_LONG: &str = "User instruction exceeds maximum length";

/// Prints the names in the data set as a JSON list.
const LIST: &str = "import json, os\nprint(json.dumps(sorted(os.listdir('/data'))))\n";

fn make(directory: &Path, file: &str) {
    std::fs::create_dir_all(directory).unwrap();
    std::fs::write(directory.join(file), "x").unwrap();
}

/// Beside and inside the allowed root, everything that a path could be meant to reach.
fn furnish(daemon: &Daemon) {
    let (top, data) = (daemon.path(), daemon.data());
    make(&data.join("ok/deep"), "deep.csv");
    make(&data.join("ok"), "ok.csv");
    make(&top.join("data-evil"), "evil.csv");
    make(&top.join("secret"), "secret.csv");
    std::fs::write(data.join("file.csv"), "x").unwrap();
    symlink("/etc", data.join("link_to_etc")).unwrap();
    symlink("../secret", data.join("link_out")).unwrap();
    symlink("ok/deep", data.join("link_in")).unwrap();
    symlink("loop_b", data.join("loop_a")).unwrap();
    symlink("loop_a", data.join("loop_b")).unwrap();
    symlink("nowhere", data.join("dangling")).unwrap();
    symlink("data", top.join("alias")).unwrap();
}

async fn refusal(daemon: &Daemon, path: &str) -> String {
    let body = json!({ "dataset_path": path, "code": "print()" });
    let (status, answer) = daemon.post("/runs", &body).await;
    assert_eq!(status, 400, "{path:?}: {answer}");
    let keys: Vec<_> = answer.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["detail"]);
    answer["detail"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_outside_the_root_are_refused_with_one_neutral_text_before_a_container_exists() {
    let daemon = Daemon::start().await;
    furnish(&daemon);
    let absolute = |path: &str| daemon.path().join(path).to_str().unwrap().to_owned();
    for path in [
        "/",
        "/etc",
        "/etc/passwd",
        "/proc/self/root/etc",
        "/proc/self/cwd/..",
        "/var/run/docker.sock",
        "/does/not/exist",
        "../../.env",
        "..",
        ".",
        "relative/x",
        "~",
        "$HOME",
        "data-evil",
        "secret",
        "data/../secret",
        "data/ok/../../secret",
        "data/link_to_etc",
        "data/link_out",
        "data/link_out/../secret",
        "data/link_in/../../../secret",
        "data/../data-evil",
        "%2e%2e/secret",
        "data\\..\\secret",
        "file:///etc",
        &absolute("data-evil"),
        &absolute("secret"),
        &absolute("data/../secret"),
        &absolute("missing-and-outside"),
    ] {
        assert_eq!(refusal(&daemon, path).await, OUTSIDE, "{path:?}");
    }
    for path in [
        "",
        "data/missing",
        "data/ok/missing/deeper",
        "data/file.csv",
        "data/file.csv/x",
        "data/dangling",
        "data/a\0b",
        &absolute("data/missing"),
        &format!("data/{}", "x".repeat(300)),
        &format!("data/{}", "x".repeat(5000)),
    ] {
        assert_eq!(refusal(&daemon, path).await, INVALID, "{path:?}");
    }
    // A loop leads nowhere; either text says nothing about what is outside.
    let text = refusal(&daemon, "data/loop_a").await;
    assert!([OUTSIDE, INVALID].contains(&text.as_str()), "{text}");
    let (_, page) = daemon.get("/runs").await;
    assert_eq!(page["runs"], json!([]));
    assert_eq!(
        containers_of(&daemon.instance()).await,
        Vec::<String>::new()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_write_a_directory_inside_the_root_mounts_that_directory() {
    let daemon = Daemon::start().await;
    furnish(&daemon);
    let absolute = |path: &str| daemon.path().join(path).to_str().unwrap().to_owned();
    for (path, name, marker) in [
        ("data/ok", "ok", "ok.csv"),
        ("data", "data", "file.csv"),
        ("./data//ok/.", "ok", "ok.csv"),
        ("data/ok/deep/..", "ok", "ok.csv"),
        ("data/link_in", "deep", "deep.csv"),
        ("alias/ok/deep", "deep", "deep.csv"),
        ("secret/../data/ok", "ok", "ok.csv"),
        (&absolute("data/ok"), "ok", "ok.csv"),
        (&format!("/{}/", absolute("data/ok")), "ok", "ok.csv"),
    ] {
        let run = daemon
            .run(json!({ "dataset_path": path, "code": LIST }))
            .await;
        assert_eq!(run["status"], "SUCCESS", "{path}: {run:#}");
        let listed = run["result"]["stdout"].as_str().unwrap();
        assert!(
            listed.contains(&format!("\"{marker}\"")),
            "{path}: {listed}"
        );
        let shown = run["dataset_name"].as_str().unwrap();
        assert!(!shown.contains('/'), "{shown}");
        assert!(
            [name, path.rsplit('/').next().unwrap()].contains(&shown),
            "{path}: {shown}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_many_mistakes_is_told_the_first_in_the_documented_order() {
    let daemon = Daemon::start().await;
    furnish(&daemon);
    let long = "x".repeat(1001);
    let body = |path: &str, instruction: &Value| json!({ "code": "print()", "dataset_path": path, "user_instruction": instruction });
    let (status, answer) = daemon.post("/runs", &body("/etc", &json!(5))).await;
    assert_eq!(status, 422, "the schema comes first: {answer}");
    let wrong_option = json!({ "dataset_path": "/etc", "code": "1", "options": { "cpus": -1 } });
    assert_eq!(daemon.post("/runs", &wrong_option).await.0, 422);
    for (path, text) in [
        ("/etc", OUTSIDE),
        ("/does/not/exist", OUTSIDE),
        ("data/missing", INVALID),
        ("", INVALID),
        ("data/ok", TOO_LONG),
    ] {
        let (status, answer) = daemon.post("/runs", &body(path, &json!(long))).await;
        assert_eq!((status, answer), (400, json!({ "detail": text })), "{path}");
    }
    let (status, answer) = daemon.post("/runs", &body("data/ok", &json!("x"))).await;
    assert_eq!(status, 200, "{answer}");
    daemon.ended(answer["run_id"].as_str().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_roots_are_each_allowed_and_nothing_between_them() {
    let top = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    make(&top.path().join("lab/a"), "a.csv");
    make(&top.path().join("lab-b"), "b.csv");
    let second = top.path().join("lab");
    let toml = format!(
        "[app]\nallowed_data_root = ['data', '{}']",
        second.display()
    );
    let daemon = Daemon::start_with(Settings {
        toml,
        ..Settings::default()
    })
    .await;
    furnish(&daemon);
    for (path, marker) in [
        (second.join("a"), "a.csv"),
        (daemon.data().join("ok"), "ok.csv"),
    ] {
        let body = json!({ "dataset_path": path, "code": LIST });
        let result = daemon.result(body).await;
        let listed = result["stdout"].as_str().unwrap();
        assert!(listed.contains(marker), "{result:#}");
    }
    let between = top.path().to_str().unwrap();
    assert_eq!(refusal(&daemon, between).await, OUTSIDE);
    assert_eq!(refusal(&daemon, &format!("{between}/lab-b")).await, OUTSIDE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_vanished_denies_everything_until_it_is_back() {
    let daemon = Daemon::start().await;
    furnish(&daemon);
    let away = daemon.path().join("away");
    std::fs::rename(daemon.data(), &away).unwrap();
    for path in ["data", "data/ok", "away/ok", "secret"] {
        assert_eq!(refusal(&daemon, path).await, OUTSIDE, "{path}");
    }
    std::fs::rename(&away, daemon.data()).unwrap();
    let body = json!({ "dataset_path": "data/ok", "code": LIST });
    assert_eq!(daemon.run(body).await["status"], "SUCCESS");
}
