//! The twelve execution rules (contract section 2), as somebody outside sees them.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Instant;

use bollard::query_parameters::EventsOptions;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::data::tree_hash;
use crate::support::engine::docker;
use crate::support::program::{paths, printed};
use crate::support::{Daemon, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn rule_1_a_program_starts_in_a_fresh_workspace_of_its_own() {
    let daemon = Daemon::start().await;
    let code = "
import json, os, sys
print(json.dumps({
    'cwd': os.getcwd(), 'files': sorted(os.listdir('.')), 'out': os.listdir('out'), 'argv': sys.argv,
    'name': __name__, 'stdin': sys.stdin.buffer.read().hex(), 'unbuffered': sys.stdout.write_through,
    'parent': os.getppid(), 'processes': sorted(int(n) for n in os.listdir('/proc') if n.isdigit()) == [1, os.getpid()],
}))
open('left behind', 'w').close()
";
    let mut ids = Vec::new();
    for _ in 0..2 {
        let result = daemon.execute(code).await;
        let expected = json!({
            "cwd": "/work", "files": [".cache", ".home", "out", "script.py"], "out": [], "argv": ["script.py"],
            "name": "__main__", "stdin": "", "unbuffered": true, "parent": 1, "processes": true,
        });
        assert_eq!(printed(&result), expected);
        let id = result["execution_id"].as_str().unwrap().to_owned();
        let rest = id.strip_prefix("exec_").unwrap();
        assert_eq!(rest.len(), 8);
        assert!(
            rest.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        );
        assert_eq!(result["workspace_dir"], format!("outputs/models/{id}"));
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_2_a_program_of_white_space_is_refused_without_a_start() {
    let daemon = Daemon::start().await;
    for code in ["", " \n\t\r\n ", "\u{a0}\u{2003}"] {
        let result = daemon.execute(code).await;
        assert_eq!(result["success"], false);
        assert_eq!(result["error_info"], "Code artifact is empty.");
        assert_eq!(result["started_at"], Value::Null);
        assert_eq!(result["usage"], Value::Null);
    }
    assert_eq!(containers_made(&daemon).await, 0);
    daemon.execute("pass").await;
    assert_ne!(containers_made(&daemon).await, 0, "the count counts");
}

/// How many containers a daemon ever made, in the engine's own book.
async fn containers_made(daemon: &Daemon) -> usize {
    let label = format!("fumehood.instance={}", daemon.instance());
    let filters = [("label", label), ("event", "create".to_owned())];
    let filters = filters.map(|(name, value)| (name.to_owned(), vec![value]));
    let until = std::time::SystemTime::now();
    let seconds = until
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        + 1;
    let options = EventsOptions {
        since: Some((seconds - 300).to_string()),
        until: Some(seconds.to_string()),
        filters: Some(filters.into()),
    };
    docker().await.events(Some(options)).count().await
}

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
async fn rule_4_at_the_timeout_the_program_is_gone_and_what_it_printed_is_kept() {
    let daemon = Daemon::start().await;
    let code = "
import os, signal, sys, time
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
open('out/kept.txt', 'w').write('kept')
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
print('printed and not flushed')
while True:
    time.sleep(1)
";
    let begun = Instant::now();
    let body = json!({"code": code, "options": {"timeout_seconds": 1.5}});
    let run = daemon.run(body).await;
    let result = &run["result"];
    assert!(begun.elapsed().as_secs_f64() < 10.0);
    assert_eq!(
        (&run["status"], &result["status"]),
        (&json!("FAIL"), &json!("TIMEOUT"))
    );
    assert_eq!(result["timed_out"], true);
    assert_eq!(result["return_code"], Value::Null);
    let text = "Execution timed out after 1.5 seconds.";
    assert_eq!(result["error_info"], text);
    assert_eq!(result["stderr"], text);
    assert_eq!(
        result["stdout"],
        "printed and not flushed\n".repeat(4),
        "one line from each process"
    );
    assert_eq!(result["output_files"], json!(["kept.txt"]));
    let wall = result["duration_seconds"].as_f64().unwrap();
    assert!((1.5..2.5).contains(&wall), "{wall}");
    let cause = &result["cause"];
    assert_eq!(
        (&cause["kind"], &cause["limit"]),
        (&json!("limit"), &json!("time"))
    );
    assert_eq!(cause["configured"], 1.5);
    assert!(cause["observed"].as_f64().unwrap() >= 1.5);
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_4_a_program_that_wrote_to_stderr_keeps_its_own_words_at_the_timeout() {
    let daemon = Daemon::start().await;
    let code = "import sys, time\nsys.stderr.write('mine')\ntime.sleep(60)";
    let body = json!({"code": code, "options": {"timeout_seconds": 1}});
    let result = daemon.result(body).await;
    assert_eq!(result["stderr"], "mine");
    assert_eq!(result["error_info"], "Execution timed out after 1 seconds.");
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_5_output_is_cut_at_the_cap_and_the_program_runs_on() {
    let settings = Settings {
        toml: "[execution]\nmax_stdout_size_bytes = 1000\nmax_stderr_size_bytes = 10".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let code = "
import sys
sys.stdout.write('o' * 1000)
sys.stderr.write('0123456789')
";
    let exact = daemon.execute(code).await;
    assert_eq!(exact["stdout"], "o".repeat(1000));
    assert_eq!(exact["stderr"], "0123456789");
    assert_eq!(
        (&exact["stdout_bytes"], &exact["stdout_tail"]),
        (&json!(1000), &Value::Null)
    );

    let code = "
import sys
sys.stdout.write('é' * 499 + 'x' + '☃' * 20000 + 'END')
sys.stderr.buffer.write(b'\\xff\\xfe12345678901')
open('out/after', 'w').close()
";
    let cut = daemon.execute(code).await;
    assert_eq!(cut["status"], "SUCCESS");
    // 499 * 2 + 1 bytes, and a snowman that does not fit.
    assert_eq!(
        cut["stdout"],
        format!("{}x\n...[TRUNCATED]", "é".repeat(499))
    );
    assert_eq!(cut["stdout_bytes"], 999 + 60_000 + 3);
    let tail = cut["stdout_tail"].as_str().unwrap();
    assert!(tail.len() <= 8192 && tail.len() > 8180 && tail.ends_with("☃END"));
    assert_eq!(cut["stderr"], "\u{fffd}\u{fffd}12345678\n...[TRUNCATED]");
    assert_eq!(cut["stderr_bytes"], 13);
    assert_eq!(cut["output_files"], json!(["after"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_6_every_way_to_end_has_its_status() {
    let daemon = Daemon::start().await;
    let table = [
        (
            "pass",
            json!([]),
            "SUCCESS",
            json!(0),
            json!([]),
            json!(null),
            "exited",
        ),
        (
            "import sys; sys.exit(3)",
            json!([]),
            "FAILURE",
            json!(3),
            json!([]),
            json!(null),
            "exited",
        ),
        (
            "import sys; sys.exit(255)",
            json!(["a"]),
            "FAILURE",
            json!(255),
            json!(["a"]),
            json!(null),
            "exited",
        ),
        (
            "1/0",
            json!([]),
            "FAILURE",
            json!(1),
            json!([]),
            json!(null),
            "exited",
        ),
        (
            "import os; os.abort()",
            json!([]),
            "FAILURE",
            json!(-6),
            json!([]),
            json!(null),
            "signal",
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            json!([]),
            "FAILURE",
            json!(-9),
            json!([]),
            json!(null),
            "signal",
        ),
        (
            "open('out/b', 'w').close()",
            json!(["a", "b", "sub/c"]),
            "INVALID_OUTPUT",
            json!(0),
            json!(["a", "sub/c"]),
            json!("Missing expected output files: a, sub/c"),
            "exited",
        ),
    ];
    for (code, expected, status, return_code, missing, error_info, kind) in table {
        let body = json!({"code": code, "expected_output_files": expected});
        let run = daemon.run(body).await;
        let result = &run["result"];
        assert_eq!(result["status"], status, "{code}: {result:#}");
        assert_eq!(result["return_code"], return_code, "{code}");
        assert_eq!(result["missing_expected_files"], missing, "{code}");
        assert_eq!(result["error_info"], error_info, "{code}");
        assert_eq!(result["cause"]["kind"], kind, "{code}");
        assert_eq!(result["limit"], Value::Null, "{code}");
        assert_eq!(result["success"], status == "SUCCESS", "{code}");
        let run_status = if status == "SUCCESS" {
            "SUCCESS"
        } else {
            "FAIL"
        };
        assert_eq!(run["status"], run_status, "{code}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_7_the_run_ends_with_its_main_process_whatever_holds_its_output() {
    let daemon = Daemon::start().await;
    let code = "
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1)
            print('late', flush=True)
            time.sleep(600)
        os._exit(0)
print('main ends', flush=True)
os._exit(7)
";
    let result = daemon.execute(code).await;
    assert_eq!(result["return_code"], 7);
    assert_eq!(result["stdout"], "main ends\n");
    assert!(result["duration_seconds"].as_f64().unwrap() < 1.0);
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
        let body = json!({"code": code, "options": {"timeout_seconds": 2}});
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
