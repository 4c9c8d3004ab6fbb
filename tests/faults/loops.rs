//! Runs whose programs are written, with a daemon that dies again and again: at the look at the data set, at
//! the first program, at the second one.

use fumehood::fault_point::FaultPoint;
use serde_json::{Value, json};

use crate::bench::stand::{SOON, Stand};
use crate::support::daemon::PATIENCE;
use crate::support::data::give;
use crate::support::wait::until;

/// How often the daemon of one run dies: once for each of its executions, and once for its luck.
const DEATHS: usize = 4;

fn is_over(run: &Value) -> bool {
    !["QUEUED", "RUNNING"].contains(&run["status"].as_str().unwrap())
}

/// Waits until the daemon has died, or until the run is over: then it does not die any more. Tells
/// whether it has died.
async fn died(stand: &mut Stand, id: &str) -> bool {
    let look = async || {
        if stand.has_died() {
            return Some(true);
        }
        let asked = stand
            .daemon
            .request(reqwest::Method::GET, &format!("/runs/{id}"));
        let run: Value = asked.send().await.ok()?.json().await.ok()?;
        is_over(&run).then_some(false)
    };
    let has_died = until(PATIENCE, look, Option::is_some).await;
    if has_died == Some(true) {
        stand.died().await;
        stand.daemon.launch();
    }
    has_died == Some(true)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_at_any_point_a_loop_ends_once_with_two_turns() {
    let mut stand = Stand::new().await;
    let dataset = give(&stand.daemon, "wine");
    let points = FaultPoint::ALL;
    let mut all_deaths = 0;
    for point in points.iter().skip_while(|p| **p != FaultPoint::AfterStart) {
        let key = crate::bench::starts::nonce();
        // Where nobody can tell whether a program was started, it is tried again on request.
        let body = json!({"dataset_path": dataset, "options": {"retries": 5}});
        stand.die_at(*point);
        let submitted = stand.try_submit(&body, Some(&key)).await;
        let id = match submitted {
            Some(id) => id,
            None => {
                stand.died().await;
                stand.daemon.launch();
                stand.try_submit(&body, Some(&key)).await.unwrap()
            }
        };
        let mut deaths = 0;
        while died(&mut stand, &id).await {
            deaths += 1;
            if deaths == DEATHS {
                break;
            }
            stand.die_at(*point);
        }
        stand.spare();
        all_deaths += deaths;
        let run = stand.daemon.ended(&id).await;
        assert_eq!(run["status"], "SUCCESS", "{point:?}: {run:#}");
        assert_eq!(run["iterations"], 2, "{point:?}: {run:#}");
        assert!(run["final_metrics"]["accuracy"].is_number(), "{run:#}");
        let (_, told) = stand.daemon.get(&format!("/runs/{id}/episodes")).await;
        let turns = told["episodes"].as_array().unwrap();
        let turns: Vec<_> = turns.iter().map(|turn| &turn["execution_status"]).collect();
        assert_eq!(turns, [&json!("FAILURE"), &json!("SUCCESS")], "{point:?}");
        stand.engine.is_empty(SOON).await;
    }
    // Most points are met by each execution.
    assert!(all_deaths > 20, "{all_deaths}");
    stand.assert_heals().await;
}
