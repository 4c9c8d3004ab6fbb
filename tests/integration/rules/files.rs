//! Files: given ones, the data set, outputs, and how they are copied.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::{Value, json};

use crate::support::Daemon;
use crate::support::data::tree_hash;
use crate::support::program::{paths, printed};

#[tokio::test(flavor = "multi_thread")]
async fn rule_3_input_files_are_there_before_the_start() {
    let daemon = Daemon::start().await;
    let body = json!({
        "code": "
import json
names = ['a.csv', 'deep/er/b.bin', 'x.txt', 'empty', 'out/seed.txt', 'grüße.txt']
print(json.dumps({n: open(n, 'rb').read().hex() for n in names}))
",
        "input_files": {
            "a.csv": "x,y\n1,2\n", "deep/er/b.bin": {"base64": "AP8K"}, "y/../x.txt": "x",
            "./empty": "", "out/seed.txt": "s", "grüße.txt": "☃",
        },
    });
    let result = daemon.result(body).await;
    let expected = json!({
        "a.csv": hex::encode("x,y\n1,2\n"), "deep/er/b.bin": "00ff0a", "x.txt": "78",
        "empty": "", "out/seed.txt": "73", "grüße.txt": hex::encode("☃"),
    });
    assert_eq!(printed(&result), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_3_a_file_name_outside_the_workspace_is_refused_and_nothing_runs() {
    let daemon = Daemon::start().await;
    let names = [
        "../escape.txt",
        "a/../../escape.txt",
        ".",
        "..",
        "",
        "/etc/passwd",
        "a\0b",
        "script.py",
        "./script.py",
        "x/../setup.sh",
        "setup.sh",
        "out/",
    ];
    for name in names {
        let body = json!({"code": "print(1)", "input_files": {name: "x"}});
        let (status, answer) = daemon.post("/runs", &body).await;
        assert_eq!(status, 400, "{name:?}: {answer}");
        let detail = answer["detail"].as_str().unwrap();
        let text = format!("Insecure file path detected: Invalid path {name} escapes workspace.");
        assert_eq!(detail, text);
    }
    let (_, runs) = daemon.get("/runs").await;
    assert_eq!(runs["runs"], json!([]), "{runs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_8_outputs_are_what_is_below_out_and_new_or_changed_at_the_top() {
    let daemon = Daemon::start().await;
    let body = json!({
        "code": "
import os
os.makedirs('out/models/deep'); os.makedirs('other')
for name in ('out/b.csv', 'out/models/deep/m.bin', 'top.txt', 'other/hidden.txt', 'changed.txt', 'out/top2.txt', 'top2.txt'):
    open(name, 'w').write(name)
",
        "input_files": {"unchanged.txt": "same", "changed.txt": "before", "other2/in.txt": "x"},
        "expected_output_files": ["b.csv", "out/b.csv", "models/deep/m.bin", "m.bin", "top.txt", "hidden.txt", "unchanged.txt"],
        "bash_script": "echo never run > out/ran",
    });
    let result = daemon.result(body).await;
    let files = [
        "b.csv",
        "changed.txt",
        "models/deep/m.bin",
        "top.txt",
        "top2.txt",
    ];
    assert_eq!(result["output_files"], json!(files), "{result:#}");
    assert_eq!(result["status"], "INVALID_OUTPUT");
    assert_eq!(
        result["missing_expected_files"],
        json!(["m.bin", "hidden.txt"])
    );
    let directory = daemon.artifacts(result["execution_id"].as_str().unwrap());
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!(
        read("top2.txt"),
        "out/top2.txt",
        "what is below out goes first"
    );
    assert_eq!(read("setup.sh"), "echo never run > out/ran");
    assert_eq!(read("changed.txt"), "changed.txt");
    for absent in ["script.py", "unchanged.txt", "hidden.txt", "ran"] {
        assert!(!directory.join(absent).exists(), "{absent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_9_artifacts_are_copied_after_every_ending() {
    let daemon = Daemon::start().await;
    for (end, status) in [
        ("pass", "SUCCESS"),
        ("raise SystemExit(1)", "FAILURE"),
        ("import os; os.abort()", "FAILURE"),
        ("import time; time.sleep(60)", "TIMEOUT"),
    ] {
        let code = format!(
            "
import os
for name, mode in (('plain', 0o600), ('program', 0o4755), ('group', 0o2676)):
    open('out/' + name, 'w').write(name)
    os.chmod('out/' + name, mode)
    os.utime('out/' + name, ns=(0, 1000000000123456789))
{end}
"
        );
        let body = json!({"code": code, "options": {"timeout_seconds": 6}});
        let result = daemon.result(body).await;
        assert_eq!(result["status"], status, "{result:#}");
        assert_eq!(paths(&result["artifacts"]), ["group", "plain", "program"]);
        let directory = daemon.artifacts(result["execution_id"].as_str().unwrap());
        for (name, mode) in [("plain", 0o644), ("program", 0o755), ("group", 0o644)] {
            let metadata = directory.join(name).metadata().unwrap();
            assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{name}");
            assert_eq!(metadata.mtime(), 1_000_000_000);
            assert_eq!(metadata.mtime_nsec(), 123_456_789);
            assert_eq!(std::fs::read_to_string(directory.join(name)).unwrap(), name);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_11_the_data_set_is_readable_at_data_and_nothing_else_of_the_root_is() {
    let daemon = Daemon::start().await;
    for name in ["mine", "other"] {
        std::fs::create_dir(daemon.data().join(name)).unwrap();
        std::fs::write(daemon.data().join(name).join("x.csv"), name).unwrap();
    }
    let before = tree_hash(&daemon.data());
    let code = "
import json, os
def attempt(f):
    try: f(); return 'done'
    except OSError as e: return e.errno
print(json.dumps({'files': os.listdir('/data'), 'text': open('/data/x.csv').read(), 'up': sorted(os.listdir('/data/..')) == sorted(os.listdir('/')),
  'write': attempt(lambda: open('/data/new', 'w')), 'remove': attempt(lambda: os.unlink('/data/x.csv'))}))
";
    let body = json!({"code": code, "dataset_path": "data/mine"});
    let run = daemon.run(body).await;
    let told = printed(&run["result"]);
    assert_eq!(told["files"], json!(["x.csv"]));
    assert_eq!(told["text"], "mine");
    assert_eq!(told["up"], true);
    for attempt in ["write", "remove"] {
        assert!(
            [13, 30].contains(&told[attempt].as_i64().unwrap()),
            "{told}"
        );
    }
    assert_eq!(tree_hash(&daemon.data()), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_12_metrics_and_references_come_from_what_the_script_leaves() {
    let daemon = Daemon::start().await;
    let code = r#"
import os
os.makedirs('out/models')
open('out/predictions.csv', 'w').write('p\n1\n')
open('out/models/m.bin', 'w').write('m')
open('out/summary.json', 'w').write('{"success": true, "model_path": "models/m.bin", "metrics": {"f1": 0.10000000000000000555, "n": 123456789012345678901, "by": {"a": [1]}}}')
"#;
    let run = daemon.run(json!({ "code": code })).await;
    let id = run["result"]["execution_id"].as_str().unwrap();
    assert_eq!(
        run["prediction_artifact_reference"],
        format!("{id}/predictions.csv")
    );
    assert_eq!(run["model_artifact_reference"], format!("{id}/models"));
    let metrics = r#"{"f1":0.10000000000000000555,"n":123456789012345678901,"by":{"a":[1]}}"#;
    assert_eq!(run["final_metrics"].to_string(), metrics);

    let run = daemon.run(json!({"code": "print('nothing left')"})).await;
    for field in [
        "prediction_artifact_reference",
        "model_artifact_reference",
        "final_metrics",
    ] {
        assert_eq!(run[field], Value::Null, "{field}");
    }
}
