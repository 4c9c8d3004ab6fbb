//! A supervisor that stands still misses its deadline: the daemon ends the sandbox itself.

use rustix::process::{Pid, Signal, kill_process};

use super::*;
use crate::support::engine::inspect;
use crate::support::proxy::Hits;

/// Stops the supervisor of a container as nothing inside could; what it started goes on.
async fn stop_supervisor(container: &str) {
    let pid = inspect(container).await.state.unwrap().pid.unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).expect("the tests run as root");
}

/// Waits until nothing of a container is alive, or the engine is asked something before.
async fn assert_gone_before(questions: &Hits, container: &str) {
    let (asked, alive) = until(
        PATIENCE,
        // In this order: what is alive after a question was alive when it was asked.
        async || (questions.count(), processes_of(container)),
        |(asked, alive)| *asked > 0 || *alive == 0,
    )
    .await;
    assert_eq!(alive, 0, "asked {asked} times while it was alive");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_supervisor_misses_the_deadline_is_gone_before_the_engine_is_asked_about_it()
 {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 3.0), "armed").await;
    let name = only_container(&daemon).await;
    let container = container_id(&name).await;
    stop_supervisor(&name).await;
    assert!(processes_of(&container) >= 2, "nothing runs that could end");
    let questions = proxy.fault("GET", "/containers/", Fault::Hang);
    assert_gone_before(&questions, &container).await;
    proxy.behave();
    let run = flight.end(&daemon).await;
    let result = &run["result"];
    assert_eq!(result["status"], "TIMEOUT", "{run}");
    assert_eq!(result["stdout"], "armed\n");
    assert_eq!(result["return_code"], Value::Null);
    nothing_left(&daemon, SOON).await;
}

/// Whoever is told to end and stands still is not waited for either.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_supervisor_does_not_hear_a_cancellation_is_gone_before_the_engine_is_asked_about_it()
 {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy).await;
    let flight = Flight::start_until(&daemon, limited(SLEEPS, 60.0), "armed").await;
    let name = only_container(&daemon).await;
    let container = container_id(&name).await;
    stop_supervisor(&name).await;
    let questions = proxy.fault("GET", "/containers/", Fault::Hang);
    let path = format!("/runs/{}/cancel", flight.id);
    assert_eq!(daemon.post(&path, &json!({})).await.0, 200);
    assert_gone_before(&questions, &container).await;
    proxy.behave();
    let run = flight.end(&daemon).await;
    assert_eq!(run["status"], "CANCELLED", "{run}");
    assert_eq!(run["result"]["stdout"], "armed\n", "{run}");
    nothing_left(&daemon, SOON).await;
}
