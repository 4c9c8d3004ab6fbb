//! Requests and programs that mean harm, or look as if they did. Most such programs are in the area
//! `hostile`.

use serde_json::json;

use crate::support::program::printed;
use crate::support::{Daemon, Settings};

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
