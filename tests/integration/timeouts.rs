//! Deadlines and ends on request, against programs that resist (bug cases BR-01, 02, 04, 06, 34).

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::wait::until;
use crate::support::watch::{Flight, container_id, limited, only_container, processes_of};
use crate::support::{Daemon, Settings};

/// Ignores every signal it can, leaves its session and its parent twice over, and keeps writing
/// files from each process. Prints once all are there.
const STUBBORN: &str = r#"
import os, signal, sys, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
print("kept text, without a line end", end="")
read, write = os.pipe()
def linger(name):
    os.setsid()
    os.write(write, b".")
    while True:
        open("out/" + name, "w").write(str(time.time()))
        time.sleep(0.05)
for name in ("first", "second"):
    if os.fork() == 0:
        if os.fork() == 0:
            linger(name)
        os._exit(0)
if os.fork() == 0:
    linger("third")
seen = 0
while seen < 3:
    seen += len(os.read(read, 3))
print(" armed")
while True:
    time.sleep(1)
"#;

const IGNORES_TERM: &str = r#"
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("armed")
while True:
    time.sleep(1)
"#;

const FLOODS_BOTH: &str = r#"
import os
piece = b"y" * 65536
while True:
    os.write(1, piece)
    os.write(2, piece)
"#;

fn runs_at_once(count: usize) -> Settings {
    Settings {
        toml: format!("[app]\nmax_concurrent_runs = {count}"),
        ..Settings::default()
    }
}

fn assert_timed_out(result: &Value, limit: f64) {
    assert_eq!(result["status"], "TIMEOUT", "{result}");
    assert_eq!(result["timed_out"], true);
    assert_eq!(result["success"], false);
    assert_eq!(result["return_code"], Value::Null);
    assert_eq!(result["limit"], "time");
    assert_eq!(result["cause"]["kind"], "limit");
    assert_eq!(
        result["error_info"],
        format!("Execution timed out after {limit} seconds.")
    );
    let duration = result["duration_seconds"].as_f64().unwrap();
    assert!(
        (limit..limit + 1.0).contains(&duration),
        "{duration} s with a limit of {limit} s: {result}"
    );
}

fn time(value: &Value) -> Timestamp {
    value.as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ignores_signals_and_hides_is_gone_one_second_after_its_deadline() {
    let daemon = Daemon::start().await;
    let flight = Flight::start_until(&daemon, limited(STUBBORN, 3.0), "armed").await;
    let container = container_id(&only_container(&daemon).await).await;
    // The supervisor, the main process and the three that hide.
    until(
        Duration::from_secs(2),
        async || processes_of(&container),
        |count| *count >= 5,
    )
    .await;
    until(
        Duration::from_secs(20),
        async || processes_of(&container),
        |count| *count == 0,
    )
    .await;
    let gone = Timestamp::now();

    let run = flight.end(&daemon).await;
    let result = &run["result"];
    assert_timed_out(result, 3.0);
    assert_eq!(result["stdout"], "kept text, without a line end armed\n");
    assert_eq!(run["status"], "FAIL");
    assert_eq!(run["final_error"], "timeout");
    let after_start = gone.duration_since(time(&result["started_at"]));
    assert!(
        after_start.as_secs_f64() < 4.0,
        "the processes were gone {after_start:?} after the start"
    );
    // What each wrote until its end was collected, and nobody writes it any more.
    assert_eq!(result["output_files"], json!(["first", "second", "third"]));
    let id = result["execution_id"].as_str().unwrap();
    for name in ["first", "second", "third"] {
        let beat = std::fs::read_to_string(daemon.artifacts(id).join(name)).unwrap();
        let beat: f64 = beat.parse().unwrap();
        let end = time(&result["started_at"]).as_duration().as_secs_f64() + 4.0;
        assert!(beat < end, "{name} was alive at {beat}, after {end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stubborn_program_ends_on_request_and_is_cancelled_not_timed_out() {
    let daemon = Daemon::start().await;
    let flight = Flight::start_until(&daemon, limited(STUBBORN, 60.0), "armed").await;
    let container = container_id(&only_container(&daemon).await).await;
    let asked = Instant::now();
    let (status, _) = daemon
        .post(&format!("/runs/{}/cancel", flight.id), &json!({}))
        .await;
    assert_eq!(status, 200);
    until(
        Duration::from_secs(5),
        async || processes_of(&container),
        |count| *count == 0,
    )
    .await;
    let run = flight.end(&daemon).await;
    // Its limit is far away, and removing the sandbox is the engine's affair.
    assert!(asked.elapsed() < Duration::from_secs(20), "{asked:?}");
    assert_eq!(run["status"], "CANCELLED", "{run}");
    let result = &run["result"];
    assert_eq!(result["status"], "CANCELLED");
    assert_eq!(result["cause"]["kind"], "cancelled");
    assert_eq!(result["timed_out"], false);
    assert_eq!(result["return_code"], Value::Null);
    assert_eq!(result["stdout"], "kept text, without a line end armed\n");
}

/// BR-04: what was printed and not flushed by the program is kept, and its files stop changing.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_ends_the_program_itself_and_keeps_what_it_printed_and_wrote() {
    let daemon = Daemon::start().await;
    let code = r#"
import threading, time
def beat():
    n = 0
    while True:
        open(f"out/beat_{n:04d}", "w").write(str(time.time())); n += 1; time.sleep(0.1)
threading.Thread(target=beat, daemon=True).start()
print("first line, not flushed by the program")
time.sleep(600)
"#;
    let result = daemon.result(limited(code, 3.5)).await;
    assert_timed_out(&result, 3.5);
    assert_eq!(result["stdout"], "first line, not flushed by the program\n");
    assert_eq!(result["stderr"], "Execution timed out after 3.5 seconds.");
    let beats = result["output_files"].as_array().unwrap().len();
    assert!((1..=40).contains(&beats), "{result}");
}

/// BR-01: a stream that always has something to read must not keep the clock from being looked at.
#[tokio::test(flavor = "multi_thread")]
async fn four_saturated_outputs_meet_their_deadlines_and_a_quiet_fifth_is_not_late() {
    let daemon = Daemon::start_with(runs_at_once(5)).await;
    daemon.execute("print('warm')").await;
    let before = daemon.resident_bytes();
    let floods = (0..4).map(|_| daemon.result(limited(FLOODS_BOTH, 2.0)));
    let quiet = "import time; time.sleep(1); print('quiet')";
    let (floods, quiet) = tokio::join!(join_all(floods), daemon.result(limited(quiet, 8.0)));
    for result in floods {
        assert_timed_out(&result, 2.0);
        for stream in ["stdout", "stderr"] {
            let text = result[stream].as_str().unwrap();
            assert_eq!(text.len(), 102_400 + "\n...[TRUNCATED]".len());
            let written = result[format!("{stream}_bytes")].as_u64().unwrap();
            assert!(written > 102_400, "{written}");
            assert!(result[format!("{stream}_tail")].is_string());
        }
    }
    assert_eq!(quiet["status"], "SUCCESS", "{quiet}");
    assert_eq!(quiet["stdout"], "quiet\n");
    let duration = quiet["duration_seconds"].as_f64().unwrap();
    assert!(duration < 4.0, "one second of sleep took {duration} s");
    let grown = daemon.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
}

/// BR-02: an ignored signal must not cost a grace period for each run.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_that_ignore_the_polite_signal_cost_their_limits_and_little_more() {
    let daemon = Daemon::start_with(runs_at_once(2)).await;
    let start = Instant::now();
    let runs = (0..20).map(|_| daemon.result(limited(IGNORES_TERM, 1.0)));
    for result in join_all(runs).await {
        assert_timed_out(&result, 1.0);
        assert_eq!(result["stdout"], "armed\n");
    }
    let took = start.elapsed();
    // Each lane has ten; the usual grace of ten seconds would cost each of them eleven.
    assert!(took < Duration::from_secs(10 * 6), "{took:?}");
}

/// BR-06: the clock of a program starts with the program.
#[tokio::test(flavor = "multi_thread")]
async fn time_in_the_queue_is_not_charged_to_the_program() {
    let daemon = Daemon::start_with(runs_at_once(1)).await;
    let accepted = Timestamp::now();
    let first = Flight::start(&daemon, limited("import time; time.sleep(8)", 60.0)).await;
    let waiting = limited("import time; print('turn'); time.sleep(1)", 6.0);
    let second = Flight::start(&daemon, waiting).await;
    let (first, second) = tokio::join!(first.end(&daemon), second.end(&daemon));
    assert_eq!(first["result"]["status"], "SUCCESS", "{first}");
    let result = &second["result"];
    assert_eq!(result["status"], "SUCCESS", "{second}");
    assert_eq!(result["stdout"], "turn\n");
    let duration = result["duration_seconds"].as_f64().unwrap();
    assert!((1.0..6.0).contains(&duration), "{duration}");
    let times = [
        accepted,
        time(&first["result"]["started_at"]),
        time(&first["result"]["finished_at"]),
        time(&result["started_at"]),
        time(&result["finished_at"]),
    ];
    assert!(times.is_sorted(), "{times:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_use_nine_tenths_of_their_limit_are_never_called_late() {
    let daemon = Daemon::start_with(runs_at_once(3)).await;
    // Nine tenths from the start of the process, not from when a busy host let it begin.
    let code = "import os, time\n\
                ticks = int(open('/proc/self/stat').read().rsplit(')', 1)[1].split()[19])\n\
                start = ticks / os.sysconf('SC_CLK_TCK')\n\
                time.sleep(max(0, start + 9 - time.clock_gettime(time.CLOCK_BOOTTIME)))";
    let runs = (0..3).map(|_| daemon.result(limited(code, 10.0)));
    for result in join_all(runs).await {
        assert_eq!(result["status"], "SUCCESS", "{result}");
        assert_eq!(result["timed_out"], false);
        assert_eq!(result["limit"], Value::Null);
    }
}

/// BR-34: nothing may have to be started inside a sandbox that the program has filled.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_process_table_delays_neither_the_deadline_nor_other_runs() {
    let daemon = Daemon::start_with(runs_at_once(2)).await;
    let code = r#"
import os, time
open("out/kept", "w").write("kept")
n = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(600); os._exit(0)
        n += 1
except OSError as e:
    print(n, e.errno, flush=True)
while True:
    pass
"#;
    let flight = Flight::start_until(&daemon, limited(code, 8.0), " 11").await;
    let container = container_id(&only_container(&daemon).await).await;
    let full = processes_of(&container);
    assert!((200..=258).contains(&full), "{full} processes");
    let other = daemon.execute("print('normal')").await;
    assert_eq!(other["status"], "SUCCESS", "{other}");
    let run = flight.end(&daemon).await;
    let result = &run["result"];
    assert_timed_out(result, 8.0);
    let text = result["stdout"].as_str().unwrap();
    let count: u32 = text.split(' ').next().unwrap().parse().unwrap();
    assert!((200..=256).contains(&count), "{text}");
    assert_eq!(result["output_files"], json!(["kept"]));
    // The supervisor holds the result until it is recorded, and goes then.
    let left = processes_of(&container);
    assert!(left <= 1, "{left} processes of a program that has ended");
    until(
        Duration::from_secs(5),
        async || processes_of(&container),
        |left| *left == 0,
    )
    .await;
}
