//! The twelve execution rules (contract section 2), as somebody outside sees them. Rule 10 is
//! [`crate::environment`].

mod files;

use std::time::Instant;

use bollard::query_parameters::EventsOptions;
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::support::engine::docker;
use crate::support::program::printed;
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
print('printed, not flushed; ', end='')
while True:
    time.sleep(1)
";
    let begun = Instant::now();
    let body = json!({"code": code, "options": {"timeout_seconds": 4.5}});
    let run = daemon.run(body).await;
    let result = &run["result"];
    assert!(begun.elapsed().as_secs_f64() < 20.0);
    assert_eq!(
        (&run["status"], &result["status"]),
        (&json!("FAIL"), &json!("TIMEOUT"))
    );
    assert_eq!(result["timed_out"], true);
    assert_eq!(result["return_code"], Value::Null);
    let text = "Execution timed out after 4.5 seconds.";
    assert_eq!(result["error_info"], text);
    assert_eq!(result["stderr"], text);
    assert_eq!(
        result["stdout"],
        "printed, not flushed; ".repeat(4),
        "one from each process"
    );
    assert_eq!(result["output_files"], json!(["kept.txt"]));
    let wall = result["duration_seconds"].as_f64().unwrap();
    assert!((4.5..5.5).contains(&wall), "{wall}");
    let cause = &result["cause"];
    assert_eq!(
        (&cause["kind"], &cause["limit"]),
        (&json!("limit"), &json!("time"))
    );
    assert_eq!(cause["configured"], 4.5);
    assert!(cause["observed"].as_f64().unwrap() >= 4.5);
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_4_a_program_that_wrote_to_stderr_keeps_its_own_words_at_the_timeout() {
    let daemon = Daemon::start().await;
    let code = "import sys, time\nsys.stderr.write('mine')\ntime.sleep(60)";
    let body = json!({"code": code, "options": {"timeout_seconds": 4}});
    let result = daemon.result(body).await;
    assert_eq!(result["stderr"], "mine");
    assert_eq!(result["error_info"], "Execution timed out after 4 seconds.");
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
            time.sleep(8)
            print('late', flush=True)
            time.sleep(600)
        os._exit(0)
print('main ends', flush=True)
os._exit(7)
";
    let result = daemon.execute(code).await;
    assert_eq!(result["return_code"], 7);
    assert_eq!(result["stdout"], "main ends\n");
    assert!(result["duration_seconds"].as_f64().unwrap() < 8.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_7_a_program_that_closes_its_output_is_still_waited_for() {
    let daemon = Daemon::start().await;
    let code = "
import os, time
os.write(1, b'before')
os.close(0); os.close(1); os.close(2)
time.sleep(1)
open('out/after', 'w').close()
os._exit(5)
";
    let result = daemon.execute(code).await;
    assert_eq!(result["return_code"], 5);
    assert_eq!(result["stdout"], "before");
    assert_eq!(result["output_files"], json!(["after"]));
    assert!(result["duration_seconds"].as_f64().unwrap() >= 1.0);
}
