//! Programs that mean harm, or look as if they did.

use serde_json::{Value, json};

use crate::support::program::printed;
use crate::support::{Daemon, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_stops_itself_is_ended_at_its_limit() {
    let daemon = Daemon::start().await;
    let code = "
import os, signal
print('before', flush=True)
os.kill(0, signal.SIGSTOP)
print('after')
";
    let result = daemon
        .result(json!({"code": code, "options": {"timeout_seconds": 4}}))
        .await;
    assert_eq!(result["status"], "TIMEOUT");
    assert_eq!(result["stdout"], "before\n");
    assert!(result["duration_seconds"].as_f64().unwrap() < 5.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_crash_at_once_are_each_the_program_s_failure_and_leave_nothing() {
    let settings = Settings {
        toml: "[app]\nmax_concurrent_runs = 4".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let crashes = [
        ("import ctypes; ctypes.string_at(0)", -11),
        ("import os; os.abort()", -6),
        ("import os; os._exit(134)", 134),
        ("import os; os.kill(os.getpid(), 4)", -4),
    ];
    let runs = crashes.iter().cycle().take(16).map(|&(code, return_code)| {
        let daemon = &daemon;
        async move { (daemon.execute(code).await, code, return_code) }
    });
    for (result, code, return_code) in futures_util::future::join_all(runs).await {
        assert_eq!(result["status"], "FAILURE", "{code}");
        assert_eq!(result["return_code"], return_code, "{code}: {result:#}");
        assert_ne!(result["cause"]["kind"], "infrastructure");
        assert_eq!(result["limit"], Value::Null, "{code}: {result:#}");
        assert_eq!(result["output_files"], json!([]), "a core file?");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bombs_in_files_are_stored_as_bytes_and_never_opened() {
    let daemon = Daemon::start().await;
    let code = r#"
import gzip, io, pickle, zipfile
class Evil:
    def __reduce__(self): return (print, ("opened",))
open("out/summary.json", "wb").write(pickle.dumps(Evil()))
open("out/predictions.csv", "wb").write(gzip.compress(bytes(200 << 20)))
b = io.BytesIO()
with zipfile.ZipFile(b, "w", zipfile.ZIP_DEFLATED) as z: z.writestr("x", bytes(100 << 20))
open("out/bomb.zip", "wb").write(b.getvalue())
"#;
    let before = daemon.resident_bytes();
    let run = daemon.run(json!({ "code": code })).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    assert_eq!(run["final_metrics"], Value::Null);
    assert_eq!(
        run["result"]["output_files"],
        json!(["bomb.zip", "predictions.csv", "summary.json"])
    );
    assert!(daemon.resident_bytes() < before + (32 << 20));
    let names =
        std::fs::read_dir(daemon.artifacts(run["result"]["execution_id"].as_str().unwrap()));
    assert_eq!(names.unwrap().count(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn br_33_a_request_chooses_neither_user_nor_mounts_nor_program() {
    let settings = Settings {
        toml: "[execution]\nruntime = 'runc'".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let code = "import json, os; print(json.dumps([os.getuid() >= 50000, os.getcwd(), os.path.exists('/host')]))";
    let options = json!({
        "user": "0:0", "privileged": true, "entrypoint": ["/bin/sh"], "working_dir": "/proc/self/fd/8", "binds": ["/:/host"],
        "mounts": [{"Type": "bind", "Source": "/", "Target": "/host"}], "network": "host", "env": {"A": "b"}, "cap_add": ["ALL"],
        "HostConfig": {"Privileged": true}, "uid_base": 0, "run_id": "x",
    });
    let result = daemon
        .result(json!({"code": code, "options": options}))
        .await;
    assert_eq!(printed(&result), json!([true, "/work", false]));
    for options in [
        json!({"image": "alpine"}),
        json!({"image": "../x"}),
        json!({"runtime": "/bin/sh"}),
        json!({"runtime": "crun"}),
    ] {
        let (status, answer) = daemon
            .post("/runs", &json!({"code": code, "options": options}))
            .await;
        assert_eq!(status, 422, "{options}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_spin_on_a_small_share_lose_neither_output_nor_files_at_their_limit() {
    let daemon = Daemon::start().await;
    let code = "
import os
open('out/kept.txt', 'w').write('kept')
print('before', flush=True)
for _ in range(100):
    if os.fork() == 0:
        while True: pass
while True: pass
";
    let options = json!({"timeout_seconds": 8, "cpus": 0.25});
    let result = daemon
        .result(json!({"code": code, "options": options}))
        .await;
    assert_eq!(result["status"], "TIMEOUT", "{result:#}");
    assert_eq!(result["stdout"], "before\n");
    assert!(result["duration_seconds"].as_f64().unwrap() < 9.0);
    assert_eq!(result["output_files"], json!(["kept.txt"]), "{result:#}");
}
