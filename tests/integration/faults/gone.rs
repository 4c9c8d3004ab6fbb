//! Sandboxes that somebody else ends or removes.

use super::*;

/// BR-39 (a).
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_somebody_removes_ends_its_run_as_infrastructure_within_seconds() {
    let daemon = Daemon::start().await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 60.0), "armed").await;
    let name = only_container(&daemon).await;
    let options = RemoveContainerOptions {
        force: true,
        ..Default::default()
    };
    let removed = Instant::now();
    docker()
        .await
        .remove_container(&name, Some(options))
        .await
        .unwrap();
    let run = flight.end(&daemon).await;
    assert!(removed.elapsed() < Duration::from_secs(10), "{removed:?}");
    assert_infrastructure(&run);
    assert_eq!(run["result"]["stdout"], "armed\n");
    assert_works(&daemon).await;
}

/// That the kernel had killed something of it for memory, which it survived, is not why it ended, whether
/// a daemon was there when it did or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_somebody_ends_after_a_survived_kill_for_memory_is_infrastructure() {
    let mut daemon = Daemon::start_with(Settings {
        toml: "[execution]\nmemory_mb = 256".into(),
        ..Settings::default()
    })
    .await;
    let hoard = "import subprocess, sys, time\n\
                 hoard = 'b = bytearray(1 << 29); b[::4096] = bytes(len(b[::4096]))'\n\
                 print(subprocess.run([sys.executable, '-c', hoard]).returncode)\n\
                 time.sleep(3)\nprint('armed')\ntime.sleep(60)";
    for is_followed in [true, false] {
        let flight = Flight::start_until(&daemon, limited(hoard, 60.0), "armed").await;
        let container = only_container(&daemon).await;
        if is_followed {
            kill(&container).await;
        } else {
            daemon.kill();
            kill(&container).await;
            daemon.launch();
        }
        let run = flight.end(&daemon).await;
        assert_infrastructure(&run);
        if is_followed {
            assert_eq!(run["result"]["stdout"], "-9\narmed\n");
        }
        nothing_left(&daemon, SOON).await;
    }
}

/// It takes its supervisor along, after it has survived a kill: that is its own end for memory, and no other
/// attempt is made.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_uses_up_its_supervisors_memory_is_not_excused_by_a_kill_that_it_survived() {
    let daemon = Daemon::start_with(Settings {
        toml: "[execution]\nmemory_mb = 256\nworkspace_mb = 160\nshm_mb = 64".into(),
        ..Settings::default()
    })
    .await;
    let code = "import os, subprocess, sys, time\n\
                hoard = 'b = bytearray(1 << 29); b[::4096] = bytes(len(b[::4096]))'\n\
                print(subprocess.run([sys.executable, '-c', hoard]).returncode)\n\
                time.sleep(3)\n\
                open('/proc/self/oom_score_adj', 'w').write('0')\n\
                for place in ('/dev/shm/x', '/tmp/x', 'x'):\n\
                \x20   try:\n\
                \x20       with open(place, 'wb', buffering=0) as file:\n\
                \x20           while True: file.write(b'y' * 65536)\n\
                \x20   except OSError: pass\n\
                more = []\n\
                while True: more.append(bytearray(1 << 20))";
    let body = json!({ "code": code, "options": { "retries": 2, "timeout_seconds": 30.0 } });
    let result = daemon.result(body).await;
    assert_eq!(result["limit"], "memory", "{result:#}");
    assert_eq!(result["status"], "FAILURE", "{result:#}");
}

/// BR-39 (b). A stream that breaks while its sandbox runs on is attached to again: `adoption/broken.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_with_its_sandbox_is_infrastructure_and_leaves_nothing() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 60.0), "armed").await;
    let container = only_container(&daemon).await;
    let broken = Instant::now();
    kill(&container).await;
    proxy.cut();
    let run = flight.end(&daemon).await;
    assert!(broken.elapsed() < Duration::from_secs(10), "{broken:?}");
    assert_infrastructure(&run);
    assert_eq!(run["result"]["stdout"], "armed\n");
    nothing_left(&daemon, SOON).await;
    assert_works(&daemon).await;
}
