//! Each limit, and that the result names the one that was reached, and none that was not.

use serde_json::{Value, json};

use crate::support::{Daemon, Settings};

const MIB: u64 = 1 << 20;

async fn daemon() -> Daemon {
    let settings = Settings {
        toml: "[execution]\nmemory_mb = 256\nworkspace_mb = 16\nshm_mb = 8\nmax_processes = 32\n\
               timeout_seconds = 30"
            .to_owned(),
        ..Settings::default()
    };
    Daemon::start_with(settings).await
}

/// The limit is named everywhere where a result names one, with its number.
#[track_caller]
fn assert_limited(result: &Value, limit: &str, configured: u64) {
    assert_eq!(result["status"], "FAILURE", "{result:#}");
    assert_eq!(result["limit"], limit, "{result:#}");
    let cause = &result["cause"];
    assert_eq!(
        (&cause["kind"], &cause["limit"]),
        (&json!("limit"), &json!(limit))
    );
    assert_eq!(cause["configured"], configured, "{cause:#}");
    assert!(!cause["evidence"].as_array().unwrap().is_empty());
    assert_eq!(cause["message"], result["error_info"]);
}

/// Nothing is blamed on a limit.
#[track_caller]
fn assert_not_limited(result: &Value) {
    assert_eq!(result["limit"], Value::Null, "{result:#}");
    assert_eq!(result["cause"]["limit"], Value::Null);
    assert_ne!(result["cause"]["kind"], "limit");
    assert_eq!(result["warnings"], json!([]), "{result:#}");
}

#[track_caller]
fn assert_observed(result: &Value, range: std::ops::RangeInclusive<u64>) {
    let observed = result["cause"]["observed"].as_u64().unwrap();
    assert!(range.contains(&observed), "{observed} is not in {range:?}");
}

const CHILD_EATS_MEMORY: &str = "
import multiprocessing as mp
def hog():
    keep = []
    while True:
        keep.append(bytearray(8 << 20))
p = mp.get_context('fork').Process(target=hog); p.start(); p.join()
print('child ended', p.exitcode)
";

#[tokio::test(flavor = "multi_thread")]
async fn a_child_killed_for_memory_is_the_cause_of_a_failure_and_a_warning_of_a_success() {
    let daemon = daemon().await;
    let result = daemon.execute(CHILD_EATS_MEMORY).await;
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    assert_eq!(result["stdout"], "child ended -9\n");
    assert_eq!(result["limit"], Value::Null);
    let warning = result["warnings"][0].as_str().unwrap();
    assert!(warning.contains("memory limit of 256 MiB"), "{warning}");

    let code = format!("{CHILD_EATS_MEMORY}\nraise SystemExit(1)");
    let result = daemon.execute(&code).await;
    assert_limited(&result, "memory", 256 * MIB);
    assert_eq!(result["return_code"], 1);
    assert_observed(&result, 240 * MIB..=256 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_waits_for_a_worker_killed_for_memory_is_late_and_says_why() {
    let daemon = daemon().await;
    let code = "
import multiprocessing as mp
def hog(n):
    keep = []
    while n == 1:
        keep.append(bytearray(8 << 20))
    return n
with mp.get_context('fork').Pool(1) as pool:
    pool.map(hog, [1])
";
    let body = json!({"code": code, "options": {"timeout_seconds": 10}});
    let result = daemon.result(body).await;
    assert_eq!(
        (&result["status"], &result["limit"]),
        (&json!("TIMEOUT"), &json!("time"))
    );
    let warning = result["warnings"][0].as_str().unwrap();
    assert!(warning.contains("memory limit of 256 MiB"), "{warning}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_killed_for_memory_names_the_limit_and_how_much_it_used() {
    let daemon = daemon().await;
    let code = "
print(open('/proc/self/oom_score_adj').read().strip(), flush=True)
b = bytearray(int((256 << 20) * 1.4))
for i in range(0, len(b), 4096):
    b[i] = 1
print('survived')
";
    let result = daemon.execute(code).await;
    assert_limited(&result, "memory", 256 * MIB);
    assert_eq!(result["return_code"], -9);
    assert_observed(&result, 240 * MIB..=256 * MIB);
    let score: i32 = result["stdout"].as_str().unwrap().trim().parse().unwrap();
    assert!(score > 0, "the kernel would pick others first");
    assert!(result["duration_seconds"].as_f64().unwrap() < 20.0);
    let own = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", daemon.pid())).unwrap();
    assert!(own.trim().parse::<i32>().unwrap() <= 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_in_memory_count_towards_the_memory_limit() {
    let daemon = daemon().await;
    let code = "
keep = []
for place in ('/work/a', '/dev/shm/b', '/tmp/c'):
    open(place, 'wb').write(bytes(7 << 20))
b = bytearray(242 << 20)
for i in range(0, len(b), 4096):
    b[i] = 1
";
    assert_limited(&daemon.execute(code).await, "memory", 256 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_of_threads_or_processes_is_refused_at_the_limit() {
    let daemon = daemon().await;
    let threads = "
import threading
stop = threading.Event()
n = 0
def bomb():
    global n
    while True:
        threading.Thread(target=stop.wait, daemon=True).start(); n += 1
";
    let forks = "
import os, time
n = 0
def bomb():
    global n
    while True:
        if os.fork() == 0:
            time.sleep(600); os._exit(0)
        n += 1
";
    let tolerated = "
try: bomb()
except (OSError, RuntimeError) as e: print(n)
import os
os._exit(0)
";
    for bomb in [threads, forks] {
        let result = daemon.execute(&format!("{bomb}\nbomb()")).await;
        assert_limited(&result, "processes", 32);
        assert_observed(&result, 32..=32);

        let result = daemon.execute(&format!("{bomb}\n{tolerated}")).await;
        assert_eq!(result["status"], "SUCCESS", "{result:#}");
        assert_eq!(result["stdout"], "31\n", "the program itself is one of 32");
        let warning = result["warnings"][0].as_str().unwrap();
        assert!(warning.contains("limit of 32 processes"), "{warning}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_file_system_names_the_disk_and_which_one() {
    let daemon = daemon().await;
    let bytes = |place: &str| {
        format!(
            "
for i in range(1000):
    with open('{place}/f%d' % i, 'wb') as f:
        f.write(bytes(1 << 20))
"
        )
    };
    let inodes = "
for i in range(100000):
    open('/work/f%d' % i, 'w').close()
";
    for (code, configured, observed, name) in [
        (bytes("/work"), 16 * MIB, 15 * MIB, "workspace"),
        (bytes("/tmp"), 32 * MIB, 31 * MIB, "/tmp"),
        (bytes("/dev/shm"), 8 * MIB, 7 * MIB, "/dev/shm"),
        (inodes.to_owned(), 1024, 1024, "1024 files"),
    ] {
        let result = daemon.execute(&code).await;
        assert_limited(&result, "disk", configured);
        assert_observed(&result, observed..=configured);
        let words = result["cause"].to_string();
        assert!(words.contains(name), "{words}");
        let stderr = result["stderr"].as_str().unwrap();
        assert!(stderr.contains("No space left on device"), "{stderr}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_larger_than_the_workspace_names_the_file_size() {
    let daemon = daemon().await;
    let settings = "open('out/real.txt', 'w').write('keep me')\n";
    for end in [
        "open('out/model.bin', 'wb').truncate(1 << 40)",
        // A program that does not ignore SIGXFSZ, as Python does, is ended by it.
        "import os, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n\
         open('out/model.bin', 'wb').truncate(1 << 40)",
    ] {
        let result = daemon.execute(&format!("{settings}{end}")).await;
        assert_limited(&result, "file_size", 16 * MIB);
        let files = result["output_files"].as_array().unwrap();
        assert!(files.contains(&json!("real.txt")), "{result:#}");
        assert!(result["duration_seconds"].as_f64().unwrap() < 20.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_error_of_full_shared_memory_names_it() {
    let daemon = daemon().await;
    let code = "
import mmap
f = open('/dev/shm/probe', 'w+b'); f.truncate(12 << 20)
m = mmap.mmap(f.fileno(), 12 << 20)
for i in range(0, 12 << 20, 4096):
    m[i] = 1
print('fits')
";
    let result = daemon.execute(code).await;
    assert_limited(&result, "memory", 8 * MIB);
    assert_eq!(result["return_code"], -7);
    let message = result["cause"]["message"].as_str().unwrap();
    assert!(
        message.contains("/dev/shm") && message.contains("shm_mb"),
        "{message}"
    );

    let body = json!({"code": code, "options": {"shm_mb": 16}});
    assert_eq!(daemon.result(body).await["stdout"], "fits\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_no_limit_caused_names_none() {
    let daemon = daemon().await;
    let kill = "import os, signal\nos.kill(os.getpid(), signal.";
    let table = [
        ("1/0".to_owned(), 1, "exited"),
        ("raise SystemExit(137)".to_owned(), 137, "exited"),
        ("raise MemoryError".to_owned(), 1, "exited"),
        ("raise ValueError('File too large')".to_owned(), 1, "exited"),
        (
            "raise ValueError('No space left on device')".to_owned(),
            1,
            "exited",
        ),
        (format!("{kill}SIGKILL)"), -9, "signal"),
        (format!("{kill}SIGTERM)"), -15, "signal"),
        (format!("{kill}SIGBUS)"), -7, "signal"),
        (
            "import ctypes; ctypes.string_at(0)".to_owned(),
            -11,
            "signal",
        ),
        (
            "import os, signal
pid = os.fork()
if pid == 0: os.kill(os.getpid(), signal.SIGKILL)
assert os.waitpid(pid, 0)[1] == 9
raise SystemExit(4)"
                .to_owned(),
            4,
            "exited",
        ),
    ];
    for (code, return_code, kind) in table {
        let result = daemon.execute(&code).await;
        assert_eq!(result["return_code"], return_code, "{code}: {result:#}");
        assert_eq!(result["cause"]["kind"], kind, "{code}");
        assert_not_limited(&result);
    }
}
