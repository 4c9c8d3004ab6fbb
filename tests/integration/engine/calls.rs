//! One kind of call at a time: hanging, late, refused, its answer lost.

use super::*;

/// What the next run meets, and then no other.
struct Met {
    method: &'static str,
    part: &'static str,
}

const LOOK_UP: Met = Met {
    method: "GET",
    part: "/images/",
};

const CREATE: Met = Met {
    method: "POST",
    part: "/containers/create",
};

const INSPECT: Met = Met {
    method: "GET",
    part: "/containers/fumehood-",
};

const START: Met = Met {
    method: "POST",
    part: "/start",
};

const ATTACH: Met = Met {
    method: "POST",
    part: "/attach",
};

impl Met {
    fn with(&self, proxy: &Proxy, fault: Fault) -> Hits {
        proxy.fault(self.method, self.part, fault)
    }
}

/// The run waits while the fault is there and succeeds after it; others meanwhile, too.
async fn assert_outlasted(proxy: &Proxy, daemon: &Daemon, met: &Met, fault: Fault, times: usize) {
    let hits = met.with(proxy, fault);
    let flights = submit_all(daemon, 3).await;
    until(PATIENCE, async || hits.count(), |count| *count >= times).await;
    for flight in &flights {
        let status = status(daemon, &flight.id).await;
        assert!(
            ["QUEUED", "RUNNING"].contains(&&*status),
            "{}: {status}",
            met.part
        );
    }
    proxy.behave();
    assert_all_succeed(daemon, &flights).await;
    until_ready(daemon).await;
    nothing_left(daemon, PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_outlasts_any_call_before_its_program_that_is_never_answered() {
    let proxy = Proxy::start();
    let keys = "ask_seconds = 2\ncreate_seconds = 3\nstart_seconds = 3";
    let daemon = daemon_behind(&proxy, keys).await;
    for met in [LOOK_UP, INSPECT, START, ATTACH] {
        assert_outlasted(&proxy, &daemon, &met, Fault::Hang, 2).await;
    }
}

/// The engine may make it yet; the next attempt finds out by the name.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_is_never_answered_holds_the_queue_and_loses_no_run() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "create_seconds = 2\ncircuit_failures = 2").await;
    CREATE.with(&proxy, Fault::Hang);
    let flights = submit_all(&daemon, 6).await;
    until_held(&daemon, "create a sandbox").await;
    proxy.behave();
    assert_all_succeed(&daemon, &flights).await;
    until_ready(&daemon).await;
    nothing_left(&daemon, PATIENCE).await;
}

/// A creation that the engine carries out long after everybody has given it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_creation_that_comes_true_late_leaves_one_sandbox_at_a_time_and_then_none() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "create_seconds = 1").await;
    let late = CREATE.with(&proxy, Fault::Delay(Duration::from_secs(3)));
    let flight = Flight::start(&daemon, numbered(0)).await;
    // Made, and nobody was told.
    until(PATIENCE, async || late.over(), |count| *count >= 1).await;
    proxy.behave();
    assert_all_succeed(&daemon, &[flight]).await;
    nothing_left(&daemon, PATIENCE).await;
}

/// The engine has done it; only nobody was told. It is neither made twice nor started twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_answer_is_lost_is_found_to_have_been_made_and_the_program_runs_once() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "").await;
    std::fs::create_dir(daemon.data().join("set")).unwrap();
    for met in [CREATE, START] {
        let hits = met.with(&proxy, Fault::LoseAnswer);
        let run = daemon.run(json!({ "code": "print('once')" })).await;
        assert_eq!(run["status"], "SUCCESS", "{}: {run:#}", met.part);
        assert_eq!(run["result"]["stdout"], "once\n");
        assert!(hits.count() > 1, "{} was not repeated", met.part);
        proxy.behave();
        nothing_left(&daemon, SOON).await;
    }
    assert_works(&daemon).await;
}

/// F8: questions are asked again, a bounded number of times.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_the_engine_fails_over_is_repeated_and_not_for_ever() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "retries = 3").await;
    let hits = LOOK_UP.with(&proxy, Fault::Refuse(500, "a passing weakness"));
    let run = daemon.run(json!({ "code": "print()" })).await;
    assert_eq!(run["result"]["cause"]["kind"], "infrastructure", "{run:#}");
    assert_eq!(run["result"]["return_code"], Value::Null);
    assert_eq!(hits.count(), 4, "the first and three more");
    proxy.behave();
    // The engine has spoken: it is not away, and nobody waits for it.
    until_ready(&daemon).await;
    assert_works(&daemon).await;
    nothing_left(&daemon, SOON).await;
}

/// Slow is not away.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_answers_late_but_in_time_holds_nothing() {
    let proxy = Proxy::start();
    let daemon = daemon_behind(&proxy, "").await;
    for met in [LOOK_UP, CREATE, INSPECT, START] {
        met.with(&proxy, Fault::Delay(Duration::from_millis(1500)));
    }
    let flights = submit_all(&daemon, 2).await;
    assert_all_succeed(&daemon, &flights).await;
    let ended = async || daemon.log().matches("A run has ended").count();
    until(PATIENCE, ended, |count| *count >= 3).await;
    assert!(!daemon.log().contains("runs wait"), "{}", daemon.log());
    proxy.behave();
    nothing_left(&daemon, SOON).await;
}
