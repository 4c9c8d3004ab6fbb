//! Attacks on the doctor itself: an engine that says something else or nothing, a runtime that only
//! has the name of a stronger one, an image that lies.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Examined, called, examined};
use crate::command_line::Bench;
use crate::support::daemon::PATIENCE;
use crate::support::proxy::{Fault, Proxy, Retelling};
use fumehood_protocol::FromSupervisor;
use fumehood_protocol::message::Stream;

fn answer(change: impl Fn(&mut Value) + Send + Sync + 'static) -> Fault {
    Fault::Rewrite {
        request: Arc::new(|_: &str, _: &mut Value| {}),
        answer: Arc::new(move |_: &str, answer: &mut Value| change(answer)),
    }
}

/// Settings of which inspection alone can tell, with something else in their place.
pub(super) fn told_otherwise() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("37", "/HostConfig/OomScoreAdj", json!(0)),
        ("tier", "/HostConfig/Runtime", json!("crun")),
        ("31", "/Image", json!("sha256:0")),
        ("45", "/HostConfig/LogConfig/Type", json!("json-file")),
        ("46", "/HostConfig/RestartPolicy/Name", json!("always")),
        ("46", "/HostConfig/AutoRemove", json!(true)),
        ("47", "/Config/Entrypoint", json!(["/bin/sh"])),
        ("47", "/Config/Healthcheck/Test", json!(["CMD", "true"])),
        ("51", "/HostConfig/PublishAllPorts", json!(true)),
        ("51", "/HostConfig/ExtraHosts", json!(["host:10.0.0.1"])),
        ("24", "/Config/Tty", json!(true)),
        ("6", "/HostConfig/Privileged", json!(true)),
        ("7", "/HostConfig/PidMode", json!("host")),
    ]
}

/// Invariant 6 comes first: what inspection shows is compared before anything is started.
#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_the_engine_says_it_did_not_apply_fails_before_anything_is_started() {
    let bench = Bench::new();
    let mut wrong = Vec::new();
    for (_, place, value) in told_otherwise() {
        let proxy = Proxy::start();
        let change = move |shown: &mut Value| {
            // Not images, nor the engine itself.
            if shown["HostConfig"]["ReadonlyRootfs"] == true {
                *shown.pointer_mut(place).unwrap() = value.clone();
            }
        };
        proxy.fault("GET", "/json", answer(change));
        let starts = proxy.fault("POST", "/start", Fault::Pass);
        let seen = examined(&bench, "runc", Some(&proxy.socket())).await;
        let score = &seen.card["runtimes"][0]["controls"][0];
        let name = place.split('/').nth(2).unwrap_or("Image");
        let is_named = score["seen"].as_str().unwrap().contains(name);
        // One that fills the supervisor's volume is started at the first time.
        if seen.code != 1 || seen.rows("fail") != ["all"] || !is_named || starts.count() > 1 {
            wrong.push(format!("{place}: {:?} {score}", seen.rows("fail")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_only_has_the_name_of_a_stronger_one_is_found_out() {
    let bench = Bench::new();
    let proxy = Proxy::start();
    proxy.weaken(|body| {
        body["HostConfig"]["Runtime"] = "runc".into();
        // Which the host's kernel counts for every sandbox with the same uid.
        let limits = body["HostConfig"]["Ulimits"].as_array_mut().unwrap();
        limits.retain(|limit| limit["Name"] != "nproc");
    });
    let pretends = |info: &mut Value| info["Runtimes"]["runsc"] = json!({"path": "runsc"});
    proxy.fault("GET", "/info", answer(pretends));
    let seen = examined(&bench, "runsc", Some(&proxy.socket())).await;
    assert_eq!(seen.code, 1);
    assert!(seen.rows("fail").contains(&"tier"), "{:#}", seen.card);
}

/// The engine takes connections and never answers, at the first call or in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_hangs_ends_the_examination_within_its_bounds() {
    let hangs_at = |method: &'static str, part: &'static str| async move {
        let bench = Bench::new();
        let proxy = Proxy::start();
        proxy.fault(method, part, Fault::Hang);
        let mut command = bench.command(&["doctor", "--json", "--runtime", "runc"]);
        command.env("FUMEHOOD_ENGINE__HOST", proxy.socket());
        let ended = timeout(PATIENCE, called(command)).await;
        let called = ended.unwrap_or_else(|_| panic!("{part}: it hangs with the engine"));
        let end = (called.code, called.stdout.as_str());
        assert_eq!(end, (69, ""), "{part}: {called:?}");
        assert!(called.stderr.starts_with("error: "), "{part}: {called:?}");
        proxy.behave();
        // What it left is removed by the next call, as the bench asserts at its end.
        assert_eq!(examined(&bench, "runc", None).await.code, 0, "{part}");
    };
    tokio::join!(
        hangs_at("GET", "/info"),
        hangs_at("POST", "/start"),
        hangs_at("POST", "/attach"),
    );
}

/// From what the probe prints to what is said that it printed.
type Lie = fn(&str) -> String;

/// What the probe prints comes out of a sandbox, and an image could print it.
async fn forged(bench: &Bench, change: Lie) -> crate::command_line::Called {
    let proxy = Proxy::start();
    let retelling = Retelling::from(move |message| {
        if let FromSupervisor::Output(output) = message
            && output.stream == Stream::Stdout
        {
            let text = String::from_utf8_lossy(&output.bytes).into_owned();
            output.bytes = change(&text).into_bytes();
        }
    });
    proxy.fault("POST", "/attach", Fault::Retell(retelling));
    let mut command = bench.command(&["doctor", "--json", "--runtime", "runc"]);
    command.env("FUMEHOOD_ENGINE__HOST", proxy.socket());
    called(command).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_probe_says_is_hostile_text() {
    let bench = Bench::new();
    let lies: [(Lie, i32); 4] = [
        // Something else than facts: no verdict at all.
        (|_| "{\"passed\": true}\n".to_owned(), 69),
        (|_| "\u{1b}]0;title\u{7}\u{9b}2J\n".to_owned(), 69),
        (
            |text| text.replace("\"host_name\": \"sandbox\"", "\"host_name\": 7"),
            69,
        ),
        // Facts with words that speak to a terminal.
        (
            |text| {
                let words = r#""host_name": "\u001b[2J\u009b31m\u202e""#;
                text.replace(r#""host_name": "sandbox""#, words)
            },
            1,
        ),
    ];
    for (lie, code) in lies {
        let called = forged(&bench, lie).await;
        assert_eq!(called.code, code, "{called:?}");
        for text in [&called.stdout, &called.stderr] {
            let speaks = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!text.contains(speaks), "{text:?}");
        }
        if code == 1 {
            let card: Value = serde_json::from_str(&called.stdout).unwrap();
            let seen = Examined { code, card };
            assert_eq!(seen.rows("fail"), ["54"]);
            // Nor does it once its JSON is read.
            let text = seen.card.to_string();
            assert!(
                !text.contains("\\u001b") && !text.contains('\u{9b}'),
                "{text}"
            );
        }
    }
}

/// An image whose Python tells only good things: what the supervisor finds, which is not the
/// image's, shows the missing wall all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_lying_image_does_not_hide_what_the_supervisor_sees() {
    let bench = Bench::new();
    let proxy = Proxy::start();
    proxy.weaken(|body| body["HostConfig"]["CapAdd"] = json!(["NET_RAW"]));
    let retelling = Retelling::from(|message| {
        if let FromSupervisor::Output(output) = message {
            let text = String::from_utf8_lossy(&output.bytes);
            let lie = text.replace("0000000000002000", "0000000000000000");
            output.bytes = lie.into_bytes();
        }
    });
    proxy.fault("POST", "/attach", Fault::Retell(retelling));
    let seen = examined(&bench, "runc", Some(&proxy.socket())).await;
    assert_eq!(
        (seen.code, seen.rows("fail")),
        (1, vec!["look"]),
        "{:#}",
        seen.card
    );
}
