//! Receipts: what they say of a real execution, and that whoever has one can check it with nothing
//! but the program.

mod chain;

mod key;

mod read_back;

mod tampering;

use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::command_line::{Called, command_in};
use crate::support::data::repository;
use crate::support::engine::docker;
use crate::support::{Daemon, Settings};

/// What no receipt may hold: in programs, their output, and the daemon's environment.
const SECRET: &str = "canary-2f81";

/// A receipt as the daemon serves it.
async fn receipt(daemon: &Daemon, run: &str) -> String {
    let path = format!("/runs/{run}/receipt");
    let response = daemon.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200, "{run}");
    assert_eq!(response.headers()["content-type"], "application/json");
    response.text().await.unwrap()
}

fn statement(receipt: &str) -> Value {
    serde_json::from_str::<Value>(receipt).unwrap()["statement"].take()
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// What a daemon says that its key is.
fn public_key(daemon: &Daemon) -> String {
    let called = call(daemon.path(), &["receipt", "key"]);
    assert_eq!(called.code, 0, "{called:?}");
    called.stdout.trim_end().to_owned()
}

fn call(directory: &Path, arguments: &[&str]) -> Called {
    command_in(directory, arguments).output().unwrap().into()
}

/// Somebody who was given receipts and files, and has no daemon.
#[derive(Debug)]
struct Auditor {
    directory: tempfile::TempDir,
}

impl Auditor {
    fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // What verifying must not depend on.
        std::fs::write(directory.path().join("fumehood.toml"), "nonsense").unwrap();
        Self { directory }
    }

    fn keep(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn verify(&self, arguments: &[&str]) -> Called {
        let all: Vec<&str> = ["verify"].iter().chain(arguments).copied().collect();
        call(self.directory.path(), &all)
    }

    /// Verifies with no more than so much memory, in MiB.
    fn verify_with_memory(&self, mebibytes: u32, arguments: &[&str]) -> Called {
        let all: Vec<&str> = ["verify"].iter().chain(arguments).copied().collect();
        let plain = command_in(self.directory.path(), &all);
        let kibibytes = (mebibytes << 10).to_string();
        let limited = "ulimit -v \"$1\" && shift && exec \"$@\"";
        Command::new("sh")
            .args(["-c", limited, "sh", &kibibytes])
            .arg(plain.get_program())
            .args(plain.get_args())
            .current_dir(self.directory.path())
            .output()
            .unwrap()
            .into()
    }

    /// Verifies one text, expects that it is refused, and gives the reasons.
    fn refusal(&self, receipt: impl AsRef<[u8]>, arguments: &[&str]) -> String {
        self.keep("refused.json", receipt);
        let all: Vec<&str> = ["refused.json"].iter().chain(arguments).copied().collect();
        let called = self.verify(&all);
        assert_eq!(called.code, 1, "{called:?}");
        called.stderr
    }
}

/// A run that gives, prints and leaves something, with a data set.
async fn full_run(daemon: &Daemon) -> Value {
    let set = daemon.data().join("set");
    std::fs::create_dir_all(set.join("deep")).unwrap();
    std::fs::write(set.join("train.csv"), "a,b\n1,2\n").unwrap();
    std::fs::write(set.join("deep/test.csv"), "a\n").unwrap();
    let code = format!(
        "# {SECRET}\nimport os\nprint('{SECRET}')\nos.makedirs('out/models')\n\
         open('out/models/model.pkl', 'w').write('a model')\n\
         open('out/predictions.csv', 'w').write('id,value\\n')\n"
    );
    let body = json!({
        "code": code,
        "dataset_path": "data/set",
        "input_files": { "helper.py": format!("# {SECRET}") },
        "bash_script": format!("# {SECRET}"),
        "options": { "timeout_seconds": 20, "memory_mb": 300, "max_processes": 40 },
    });
    let run = daemon.run(body).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_says_what_was_isolated_and_everybody_can_check_it() {
    let daemon = Daemon::start_with(Settings {
        environment: vec![("OPENAI_API_KEY", SECRET.to_owned())],
        ..Settings::default()
    })
    .await;
    let run = full_run(&daemon).await;
    let id = run["run_id"].as_str().unwrap();
    let execution = run["result"]["execution_id"].as_str().unwrap();
    let receipt = receipt(&daemon, id).await;
    let stated = statement(&receipt);

    assert_eq!(stated["schema"], "fumehood-receipt");
    assert_eq!(stated["chain"], json!({ "number": 1, "previous": null }));
    assert_eq!(stated["daemon"]["instance"], daemon.instance().as_str());
    assert_eq!(stated["daemon"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(stated["execution"]["run_id"], id);
    assert_eq!(stated["execution"]["id"], execution);
    assert_eq!(stated["outcome"]["status"], "SUCCESS");
    assert_eq!(stated["outcome"]["ending"]["exit_code"], 0);
    assert_eq!(stated["outcome"]["artifacts"], run["result"]["artifacts"]);
    let sandbox = json!({ "state": "used", "start": "cold", "dataset_mount": "created" });
    assert_eq!(stated["sandbox"], sandbox);
    assert_eq!(stated["dataset"]["listing"]["entries"], 3);
    assert_eq!(stated["dataset"]["listing"]["complete"], true);
    assert_eq!(stated["dataset"]["listing"]["bytes"], 10);
    let inputs = &stated["inputs"];
    let secret = sha256(format!("# {SECRET}").as_bytes());
    assert_eq!(inputs["files"][0]["path"], "helper.py");
    assert_eq!(inputs["files"][0]["sha256"], secret.as_str());
    assert_eq!(inputs["setup_script"]["sha256"], secret.as_str());
    assert_eq!(stated["limits"]["wall_milliseconds"], 20_000);
    assert_isolated(&stated).await;
    assert_nothing_private(&daemon, &stated);

    let auditor = Auditor::new();
    auditor.keep("receipt.json", &receipt);
    let artifacts = daemon.artifacts(execution);
    let key = public_key(&daemon);
    let artifacts = artifacts.to_str().unwrap();
    let called = auditor.verify(&["receipt.json", "--key", &key, "--artifacts", artifacts]);
    assert_eq!(called.code, 0, "{called:?}");
    assert_eq!(called.stderr, "");
    for words in [execution, id, &key, "all 2 are as they were recorded"] {
        assert!(called.stdout.contains(words), "{words}: {called:?}");
    }
    let without_key = auditor.verify(&["receipt.json"]);
    assert_eq!(without_key.code, 0, "{without_key:?}");
    assert!(without_key.stdout.contains("--key"), "{without_key:?}");
}

/// What the engine and the supervisor say of the sandbox, against what is known otherwise.
async fn assert_isolated(stated: &Value) {
    let docker = docker().await;
    let engine = docker.version().await.unwrap();
    let (applied, found) = (
        &stated["isolation"]["applied"],
        &stated["isolation"]["found"],
    );
    assert_eq!(
        applied["engine"]["version"],
        engine.version.unwrap().as_str()
    );
    assert_eq!(
        applied["engine"]["kernel"],
        engine.kernel_version.unwrap().as_str()
    );
    let runtime = applied["runtime"]["name"].as_str().unwrap();
    let default = docker.info().await.unwrap().default_runtime;
    assert_eq!(Some(runtime), default.as_deref());
    let reference = stated["image"]["reference"].as_str().unwrap();
    let image = docker.inspect_image(reference).await.unwrap().id.unwrap();
    assert_eq!(stated["image"]["digest"], image.as_str());
    let profile = std::fs::read(repository().join("images/seccomp.json")).unwrap();
    assert_eq!(applied["seccomp_profile_sha256"], sha256(&profile).as_str());
    assert_eq!(applied["capabilities_dropped"], json!(["ALL"]));
    assert_eq!(applied["capabilities_added"], json!([]));
    assert_eq!(applied["network"], "none");
    for (key, value) in [
        ("privileged", false),
        ("no_new_privileges", true),
        ("read_only_root", true),
    ] {
        assert_eq!(applied[key], value, "{key}");
    }
    for (namespace, value) in [
        ("ipc", "private"),
        ("pid", "private"),
        ("cgroup", "private"),
    ] {
        assert_eq!(applied["namespaces"][namespace], value, "{namespace}");
    }
    assert_eq!(applied["sysctls"], json!([]));
    assert_eq!(applied["devices"], 0);
    let limits = &applied["limits"];
    assert_eq!(limits["memory_bytes"], 300 << 20);
    assert_eq!(limits["memory_and_swap_bytes"], limits["memory_bytes"]);
    assert_eq!(limits["processes"], 41);
    let mounts = applied["mounts"].as_array().unwrap();
    let mounts: Vec<_> = mounts
        .iter()
        .map(|mount| {
            (
                mount["target"].as_str().unwrap(),
                mount["read_only"].as_bool().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("/data", true),
        ("/fumehood", true),
        ("/tmp", false),
        ("/work", false),
    ];
    assert_eq!(mounts, expected);
    let user = format!("{0}:{0}", found["uid"]);
    assert_eq!(applied["user"], user.as_str());
    assert_eq!(found["capabilities"], "0000000000000000");
    assert_eq!(found["seccomp_mode"], 2);
    assert_eq!(found["no_new_privileges"], true);
    assert_eq!(found["root_read_only"], true);
    assert_eq!(found["network_interfaces"], json!(["lo"]));
    assert_eq!(
        found["dataset"],
        json!({ "read_only": true, "readable": true })
    );
}

/// No absolute path but those inside a sandbox, and nothing that was secret.
fn assert_nothing_private(daemon: &Daemon, stated: &Value) {
    let text = stated.to_string();
    let directory = daemon.path().to_str().unwrap();
    for private in [SECRET, directory, "receipt-key", "docker.sock"] {
        assert!(!text.contains(private), "{private}: {text}");
    }
    let mut pending = vec![stated];
    while let Some(value) = pending.pop() {
        match value {
            Value::String(text) if text.starts_with('/') => {
                let inside = ["/data", "/fumehood", "/tmp", "/work"];
                assert!(inside.contains(&text.as_str()), "{text}");
            }
            Value::Array(list) => pending.extend(list),
            Value::Object(map) => pending.extend(map.values()),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_receipt_of_an_execution_can_be_asked_for_by_its_id() {
    let daemon = Daemon::start().await;
    let mut runs = Vec::new();
    for _ in 0..2 {
        runs.push(daemon.run(json!({ "code": "print()" })).await);
    }
    let id = |run: usize| runs[run]["run_id"].as_str().unwrap();
    let execution = |run: usize| runs[run]["result"]["execution_id"].as_str().unwrap();
    let path = |run: usize, named: &str| format!("/runs/{}/receipt?execution={named}", id(run));
    let (status, named) = daemon.get(&path(0, execution(0))).await;
    assert_eq!(
        (status, named),
        daemon.get(&format!("/runs/{}/receipt", id(0))).await
    );
    for other in [
        execution(1),
        "exec_00000000",
        "",
        "%00",
        "../../x",
        "'%20OR%201=1",
    ] {
        let (status, answer) = daemon.get(&path(0, other)).await;
        assert_eq!(
            (status, answer),
            (404, json!({ "detail": "Receipt not found" })),
            "{other}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_execution_that_never_had_a_sandbox_gets_a_receipt_that_says_so() {
    let daemon = Daemon::start_with(Settings {
        toml: "[execution]\nimages = ['no/such:image']".to_owned(),
        ..Settings::default()
    })
    .await;
    let missing = json!({ "code": "print()", "options": { "image": "no/such:image" } });
    for (body, status) in [(json!({ "code": " \n" }), "FAILURE"), (missing, "ERROR")] {
        let run = daemon.run(body).await;
        let receipt = receipt(&daemon, run["run_id"].as_str().unwrap()).await;
        let stated = statement(&receipt);
        assert_eq!(stated["outcome"]["status"], status);
        assert_eq!(stated["outcome"]["ending"]["kind"], "not_started");
        assert_eq!(stated["sandbox"]["state"], "none");
        assert_eq!(stated["isolation"], Value::Null);
        let auditor = Auditor::new();
        auditor.keep("receipt.json", &receipt);
        assert_eq!(auditor.verify(&["receipt.json"]).code, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_execution_that_is_over_there_is_no_receipt() {
    let daemon = Daemon::start().await;
    let unknown = daemon.get("/runs/123e4567-e89b-42d3-a456-426614174000/receipt");
    assert_eq!(unknown.await, (404, json!({ "detail": "Run not found" })));
    let id = daemon
        .submit(json!({ "code": "import time; time.sleep(60)" }))
        .await;
    let (status, answer) = daemon.get(&format!("/runs/{id}/receipt")).await;
    assert_eq!(
        (status, answer),
        (404, json!({ "detail": "Receipt not found" }))
    );
    daemon.post(&format!("/runs/{id}/cancel"), &json!({})).await;
    daemon.ended(&id).await;
}
