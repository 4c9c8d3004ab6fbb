//! The daemon's own disks are full (security.md 3.4, F13 and F14).

use serde_json::{Value, json};

use crate::bench::disk::SmallDisk;
use crate::bench::engine::Setup;
use crate::bench::stand::{SOON, Stand};
use crate::support::watch::{Flight, limited};

/// Less than a transaction may need, so that what was accepted is recorded in the place of the reserve.
const NEARLY_FULL: u64 = 2 << 20;

/// New runs are refused, with the remedy and when to ask again.
async fn assert_refused(stand: &Stand) {
    let refused = stand.daemon.request(reqwest::Method::POST, "/runs");
    let refused = refused.json(&json!({ "code": "print()" })).send().await;
    let refused = refused.unwrap();
    let status = refused.status().as_u16();
    let has_time = refused.headers().contains_key("Retry-After");
    let answer: Value = refused.json().await.unwrap();
    assert_eq!(status, 507, "{answer}");
    assert!(has_time, "{answer}");
    let why = answer["detail"].as_str().unwrap();
    assert!(why.contains("free some space"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f13_a_nearly_full_store_refuses_new_runs_and_finishes_those_it_accepted() {
    // Room for the floor and the reserve, as they are by default, and for some records.
    let disk = SmallDisk::new(512);
    let store = disk.path().join("store/fumehood.db");
    let toml = format!(
        "[store]\npath = '{}'\n[app]\nmax_concurrent_runs = 1",
        store.display()
    );
    let stand = Stand::with(Setup::default(), &toml).await;
    stand.assert_heals().await;
    let code = "import time\nprint('armed', flush=True)\ntime.sleep(4)\nprint('over')\n";
    let going_on = Flight::start_until(&stand.daemon, limited(code, 30.0), "armed").await;
    let waiting = stand
        .daemon
        .submit(json!({ "code": "print('turn')" }))
        .await;
    disk.fill(NEARLY_FULL);
    assert_refused(&stand).await;
    let run = going_on.end(&stand.daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    assert_eq!(run["result"]["stdout"], "armed\nover\n");
    let run = stand.daemon.ended(&waiting).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    assert!(disk.free() > 0, "the reserve was used up");
    disk.relieve();
    stand.assert_heals().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f14_a_full_artifact_disk_leaves_nothing_half_done_and_the_result_is_recorded() {
    let disk = SmallDisk::new(64);
    let toml = format!(
        "[app]\noutput_root = '{}'",
        disk.path().join("outputs").display()
    );
    let stand = Stand::with(Setup::default(), &toml).await;
    stand.assert_heals().await;
    disk.fill(8 << 20);
    let code = "open('out/large', 'wb').write(bytes(32 << 20))\nprint('done')\n";
    let run = stand.daemon.run(json!({ "code": code })).await;
    assert_eq!(run["result"]["stdout"], "done\n", "{run:#}");
    assert_eq!(
        run["result"]["return_code"], 0,
        "the program did its part: {run:#}"
    );
    assert_eq!(run["result"]["artifacts"], json!([]), "{run:#}");
    let told = [
        &run["result"]["warnings"],
        &run["result"]["artifacts_skipped"],
    ];
    let told = format!("{told:?}");
    assert!(
        told.contains("artifact") || told.contains("large"),
        "{run:#}"
    );
    let entries = std::fs::read_dir(disk.path().join("outputs/models")).unwrap();
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name.starts_with("exec_"), "half-done: {name}");
        assert!(!path.join("large").exists(), "half a file");
    }
    disk.relieve();
    let run = stand.daemon.run(json!({ "code": code })).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    assert_eq!(run["result"]["output_files"], json!(["large"]));
    stand.assert_heals().await;
}

/// A store that is full to the last byte while runs end, and when the daemon is killed and started:
/// nothing is half-written, and what was acknowledged is there.
#[tokio::test(flavor = "multi_thread")]
async fn f13_a_store_without_a_byte_left_keeps_what_was_acknowledged() {
    let disk = SmallDisk::new(96);
    let store = disk.path().join("store/fumehood.db");
    let toml = format!(
        "[store]\npath = '{}'\nmin_free_mb = 48\nreserve_mb = 24",
        store.display()
    );
    let mut stand = Stand::with(Setup::default(), &toml).await;
    stand.assert_heals().await;
    let code = "import time\nprint('armed', flush=True)\ntime.sleep(2)\n";
    let flight = Flight::start_until(&stand.daemon, limited(code, 30.0), "armed").await;
    disk.fill(0);
    assert_refused(&stand).await;
    let run = flight.end(&stand.daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    // The reserve is used for it, and others may fill what is left of that, too.
    disk.fill(0);
    stand.daemon.kill();
    disk.relieve();
    stand.daemon.launch();
    let again = stand.daemon.ended(&flight.id).await;
    assert_eq!(again["status"], "SUCCESS", "{again:#}");
    stand.engine.is_empty(SOON).await;
    stand.assert_heals().await;
}

/// The tests above stand on this.
#[test]
fn a_small_disk_is_full_when_it_was_filled_and_has_room_again_afterwards() {
    let disk = SmallDisk::new(8);
    disk.fill(1 << 20);
    assert!(disk.free() <= 1 << 20, "{}", disk.free());
    disk.fill(0);
    assert!(std::fs::write(disk.path().join("more"), [1; 8192]).is_err());
    disk.relieve();
    std::fs::write(disk.path().join("more"), [1; 8192]).unwrap();
}
