//! The daemon's own disks are full (security.md 3.4, F13 and F14).

use serde_json::{Value, json};

use crate::bench::disk::SmallDisk;
use crate::bench::engine::Setup;
use crate::bench::stand::Stand;
use crate::support::watch::{Flight, limited};

/// Below the floor of the store, and enough for the records of what was accepted.
const NEARLY_FULL: u64 = 2 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn f13_a_nearly_full_store_refuses_new_runs_and_finishes_those_it_accepted() {
    let disk = SmallDisk::new(256);
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
    let refused = stand.daemon.request(reqwest::Method::POST, "/runs");
    let refused = refused.json(&json!({ "code": "print()" })).send().await;
    let refused = refused.unwrap();
    let status = refused.status().as_u16();
    let answer: Value = refused.json().await.unwrap();
    assert!([503, 507].contains(&status), "{status}: {answer}");
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
        &run["result"]["skipped_artifacts"],
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

/// A store that is full to the last byte while runs end: nothing is half-written, and what was
/// acknowledged is there once there is room.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for retention: the disk floor and the journal's checks"]
async fn f13_a_store_without_a_byte_left_keeps_what_was_acknowledged() {
    let disk = SmallDisk::new(256);
    let store = disk.path().join("store/fumehood.db");
    let toml = format!("[store]\npath = '{}'", store.display());
    let mut stand = Stand::with(Setup::default(), &toml).await;
    stand.assert_heals().await;
    let code = "import time\nprint('armed', flush=True)\ntime.sleep(2)\n";
    let flight = Flight::start_until(&stand.daemon, limited(code, 30.0), "armed").await;
    disk.fill(0);
    let told = stand.daemon.get("/ready").await;
    assert_eq!(told.0, 503, "{}", told.1);
    disk.relieve();
    let run = flight.end(&stand.daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
    stand.daemon.kill();
    stand.daemon.launch();
    assert_eq!(stand.daemon.ended(&flight.id).await["status"], "SUCCESS");
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
