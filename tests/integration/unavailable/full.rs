//! An output root that has no room for all that a program has written (security.md F14).

use serde_json::json;

use super::read_only::Mounted;
use crate::support::watch::{Flight, limited};

/// Three files of 3 MiB, for a disk of 8.
const THREE: &str =
    "for name in 'abc':\n    open(f'out/{name}', 'wb').write(bytes(3 << 20))\nprint('written')";

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_no_room_for_is_left_out_and_told_and_the_program_is_not_to_blame() {
    let Some(mounted) = Mounted::new() else {
        return;
    };
    let daemon = mounted.daemon().await;
    for expected in [json!([]), json!(["a", "b", "c"])] {
        let body = json!({ "code": THREE, "expected_output_files": expected });
        let run = daemon.run(body).await;
        let result = &run["result"];
        if expected == json!([]) {
            assert_eq!(result["status"], "SUCCESS", "{run:#}");
        } else {
            assert_eq!(result["cause"]["kind"], "infrastructure", "{run:#}");
            assert_eq!(run["status"], "FAIL", "{run:#}");
        }
        // The row is written, with what the program printed.
        assert_eq!(result["stdout"], "written\n", "{run:#}");
        let warnings = result["warnings"].to_string();
        for word in ["output directory", "free space"] {
            assert!(warnings.contains(word), "{word}: {run:#}");
        }
        let skipped = result["artifacts_skipped"].as_array().unwrap();
        assert_eq!(skipped.len(), 1, "{run:#}");
        let reason = skipped[0]["reason"].as_str().unwrap();
        assert!(reason.contains("output directory"), "{reason}");
        // What is listed is there whole, and nothing else is.
        let id = result["execution_id"].as_str().unwrap();
        assert_eq!(mounted.models(), [id]);
        let kept = result["artifacts"].as_array().unwrap();
        assert_eq!(kept.len(), 2, "{run:#}");
        let place = mounted.root().join("models").join(id);
        for artifact in kept {
            let path = place.join(artifact["path"].as_str().unwrap());
            assert_eq!(path.metadata().unwrap().len(), 3 << 20);
        }
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 2);
        // With room again everything is as before, without a restart.
        std::fs::remove_dir_all(place).unwrap();
        let small = json!({ "code": "open('out/a', 'w').write('1')" });
        let small = daemon.result(small).await;
        assert_eq!(small["output_files"], json!(["a"]), "{small:#}");
        let place = small["execution_id"].as_str().unwrap();
        std::fs::remove_dir_all(mounted.root().join("models").join(place)).unwrap();
    }
}

/// The room that half-done artifacts took is enough for what runs. Where others take that, too, the program
/// still goes on, and only its files are lost.
#[tokio::test(flavor = "multi_thread")]
async fn started_on_a_full_disk_it_goes_on_with_what_runs_and_takes_what_comes() {
    for is_room_taken in [false, true] {
        let Some(mounted) = Mounted::new() else {
            return;
        };
        let mut daemon = mounted.daemon().await;
        let code = "import time; print('armed', flush=True); time.sleep(4); print('over')";
        let flight = Flight::start_until(&daemon, limited(code, 60.0), "armed").await;
        daemon.kill();
        if is_room_taken {
            let models = mounted.root().join("models");
            for half_done in mounted.models() {
                std::fs::remove_dir_all(models.join(half_done)).unwrap();
            }
        }
        mounted.use_up();
        daemon.launch();
        let log = daemon.log();
        assert!(log.contains("there is no room for artifacts"), "{log}");
        let run = flight.end(&daemon).await;
        assert_eq!(run["status"], "SUCCESS", "{run:#}");
        assert_eq!(run["result"]["stdout"], "armed\nover\n", "{run:#}");
        let warnings = run["result"]["warnings"].to_string();
        assert_eq!(
            warnings.contains("The artifacts were lost"),
            is_room_taken,
            "{run:#}"
        );
        mounted.make_room();
        let small = daemon
            .result(json!({ "code": "open('out/a', 'w').write('1')" }))
            .await;
        assert_eq!(small["output_files"], json!(["a"]), "{small:#}");
    }
}
