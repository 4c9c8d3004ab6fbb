//! Ends that are easily mistaken for others.

use serde_json::json;

use crate::support::{Daemon, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_program_ended_by_the_first_signal_is_a_crash_with_a_reason() {
    let daemon = Daemon::start().await;
    let code = "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\nsignal.pause()";
    let run = daemon.run(json!({ "code": code })).await;
    assert_eq!(run["result"]["return_code"], -1);
    assert_eq!(run["result"]["cause"]["kind"], "signal");
    assert_eq!(run["final_error"], "crash");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_limit_that_is_over_before_the_program_starts_is_still_a_timeout() {
    let daemon = Daemon::start().await;
    for seconds in ["1e-9", "0.001"] {
        let seconds: f64 = seconds.parse().unwrap();
        let body = json!({ "code": "print(1)", "options": { "timeout_seconds": seconds } });
        let result = daemon.result(body).await;
        assert_eq!(result["status"], "TIMEOUT", "{result}");
        assert_eq!(result["limit"], "time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_not_ask_for_more_time_than_a_whole_run_has() {
    let toml = "[app]\nrun_timeout_seconds = 5\n".to_owned();
    let daemon = Daemon::start_with(Settings {
        toml,
        ..Settings::default()
    })
    .await;
    let body = json!({ "code": "print(1)", "options": { "timeout_seconds": 6 } });
    let (status, answer) = daemon.post("/runs", &body).await;
    assert_eq!(status, 422, "{answer}");
    assert_eq!(
        answer["detail"][0]["loc"],
        json!(["body", "options", "timeout_seconds"])
    );
    let result = daemon.execute("import time\ntime.sleep(60)").await;
    assert_eq!(result["status"], "TIMEOUT", "{result}");
    assert_eq!(result["cause"]["configured"], json!(5.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_in_a_tenth_of_a_cpu_does_not_outlive_its_deadline() {
    let daemon = Daemon::start().await;
    let code = "import os\nfor _ in range(60):\n    if os.fork() == 0:\n        while True:\n            pass\n\
                print('forked')\nwhile True:\n    pass";
    let options = json!({ "cpus": 0.1, "max_processes": 200, "timeout_seconds": 3 });
    let result = daemon
        .result(json!({ "code": code, "options": options }))
        .await;
    assert_eq!(result["status"], "TIMEOUT", "{result}");
    let seconds = result["duration_seconds"].as_f64().unwrap();
    assert!((3.0..4.0).contains(&seconds), "{result}");
}
