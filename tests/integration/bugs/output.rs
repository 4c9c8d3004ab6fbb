//! Output: every byte, in order, whatever it is.

use futures_util::StreamExt as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::support::{Daemon, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn br_12_bytes_of_every_value_become_strict_json_and_lose_no_run() {
    let daemon = Daemon::start().await;
    let code = r#"
import os
os.write(1, bytes(range(256)) * 4)
os.write(2, b"\x00\x1b[31mred\x1b[0m\r\n\xed\xa0\x80 caf\xe9")
"#;
    let run = daemon.run(json!({ "code": code })).await;
    let result = &run["result"];
    assert_eq!(
        (&run["status"], &result["return_code"]),
        (&json!("SUCCESS"), &json!(0))
    );
    let all: Vec<u8> = (0..=255).collect();
    let expected = String::from_utf8_lossy(&all.repeat(4)).into_owned();
    assert_eq!(result["stdout"], expected);
    assert_eq!(result["stdout_bytes"], 1024);
    assert_eq!(
        result["stderr"],
        "\0\u{1b}[31mred\u{1b}[0m\r\n\u{fffd}\u{fffd}\u{fffd} caf\u{fffd}"
    );
    let id = run["run_id"].as_str().unwrap();
    let (status, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
    assert_eq!(status, 200, "{episodes}");
    assert!(!daemon.log().contains("[31mred"), "output is in the log");
}

#[tokio::test(flavor = "multi_thread")]
async fn br_12_output_that_imitates_the_wire_is_only_output() {
    let daemon = Daemon::start().await;
    // Headers of the engine's stream, and frames of every small length.
    let code = r"
import os, struct
for kind in range(4):
    os.write(1, bytes([kind, 0, 0, 0]) + struct.pack('>I', 6) + b'forged')
for n in range(64):
    os.write(2, struct.pack('>I', n) + struct.pack('<I', n) + b'FUME' + bytes(n))
os.write(1, b'end')
";
    let result = daemon.execute(code).await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    assert_eq!(result["stdout_bytes"], 4 * 14 + 3);
    assert_eq!(
        result["stdout"].as_str().unwrap().matches("forged").count(),
        4
    );
    assert!(result["stdout"].as_str().unwrap().ends_with("forgedend"));
    assert_eq!(result["stderr_bytes"], 64 * 12 + 63 * 64 / 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn br_13_last_bytes_of_a_fast_program_are_kept() {
    let settings = Settings {
        toml: "[app]\nmax_concurrent_runs = 20\n[execution]\nmemory_mb = 256".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let code = "
import os
os.write(1, b'x' * 70000 + b'TAIL-1')
os.write(2, b'TAIL-2')
os._exit(0)
";
    let body = json!({ "code": code });
    let expected = format!("{}TAIL-1", "x".repeat(70_000));
    let mut results = futures_util::stream::iter(0..100)
        .map(|_| daemon.result(body.clone()))
        .buffer_unordered(20);
    while let Some(result) = results.next().await {
        assert_eq!(result["status"], "SUCCESS", "{result:#}");
        assert!(result["stdout"] == expected, "the tail of stdout is lost");
        assert_eq!(result["stderr"], "TAIL-2");
        assert!(result["duration_seconds"].as_f64().unwrap() < 60.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn br_49_a_long_output_has_no_gap_and_a_large_file_arrives_whole() {
    let daemon = Daemon::start().await;
    let code = r"
import hashlib, os, sys
sys.stdout.reconfigure(write_through=False)
for i in range(600000):
    sys.stdout.write(f'{i:07d} ' + '.' * 100 + '\n')
h = hashlib.sha256()
with open('out/w.bin', 'wb') as f:
    for _ in range(600):
        b = os.urandom(1 << 20); h.update(b); f.write(b)
print('SHA', h.hexdigest(), file=sys.stderr, flush=True)
sys.exit(3)
";
    let body = json!({"code": code, "options": {"memory_mb": 2048, "workspace_mb": 1024}});
    let result = daemon.result(body).await;
    assert_eq!(
        (&result["status"], &result["return_code"]),
        (&json!("FAILURE"), &json!(3))
    );
    assert_eq!(result["limit"], json!(null), "{}", result["cause"]);
    assert_eq!(result["stdout_bytes"], 600_000 * 109);
    let head = result["stdout"].as_str().unwrap();
    let head = head.strip_suffix("\n...[TRUNCATED]").unwrap();
    assert_eq!(head.len(), 102_400);
    let line = |number: usize| format!("{number:07} {}\n", ".".repeat(100));
    let whole: String = (0..1000).map(line).collect();
    assert!(whole.starts_with(head), "the head has a gap");
    let end: String = (599_900..600_000).map(line).collect();
    assert!(end.ends_with(result["stdout_tail"].as_str().unwrap()));
    let path = daemon
        .artifacts(result["execution_id"].as_str().unwrap())
        .join("w.bin");
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(path).unwrap(), &mut hash).unwrap();
    let hash = hex::encode(hash.finalize());
    assert_eq!(result["stderr"], format!("SHA {hash}\n"));
    assert_eq!(result["artifacts"][0]["sha256"], hash);
}
