//! Things that are missing or in the way: each error names the thing and the remedy, and nothing
//! half-done stays.

mod full;
mod read_only;
mod starting;

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::command_line::{Bench, Called};
use crate::support::watch::Flight;
use crate::support::{Daemon, Settings};

const NO_ENGINE: &str = "Docker Engine is not reachable";
const ENGINE_REMEDY: &str = "systemctl start docker";
const IMAGE_REMEDY: &str = "fumehood image build";

/// The result of an execution that could not be carried out.
#[track_caller]
fn is_infrastructure(run: &Value, words: &[&str]) {
    let result = &run["result"];
    assert_eq!(
        (&run["status"], &run["success"]),
        (&json!("FAIL"), &json!(false)),
        "{run:#}"
    );
    assert_eq!(
        (&result["status"], &result["success"]),
        (&json!("ERROR"), &json!(false))
    );
    assert_eq!(result["cause"]["kind"], "infrastructure", "{run:#}");
    assert_eq!(
        result["return_code"],
        Value::Null,
        "not the program's failure"
    );
    assert_eq!(
        (&result["limit"], &result["usage"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(result["artifacts"], json!([]));
    for place in [
        &run["final_error"],
        &result["error_info"],
        &result["cause"]["message"],
    ] {
        let text = place.as_str().unwrap();
        for word in words {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
    }
}

fn published(daemon: &Daemon) -> usize {
    let models = daemon.path().join("outputs/models");
    std::fs::read_dir(models).into_iter().flatten().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_engine_the_daemon_serves_says_why_it_is_not_ready_and_recovers() {
    let top = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let socket = top.path().join("engine.sock");
    let daemon = Daemon::start_with(Settings {
        engine: Some(socket.clone()),
        ..Settings::default()
    })
    .await;
    assert_eq!(daemon.get("/health").await.0, 200);
    assert_eq!(daemon.get("/live").await.0, 200);
    for _ in 0..2 {
        let (status, answer) = daemon.get("/ready").await;
        assert_eq!((status, &answer["status"]), (503, &json!("unavailable")));
        let reason = answer["reasons"][0].as_str().unwrap();
        assert!(
            reason.contains(NO_ENGINE) && reason.contains(ENGINE_REMEDY),
            "{reason}"
        );
        assert!(!answer.to_string().contains("engine.sock"), "{answer}");

        // Taken, and not blamed on anybody: it waits.
        let waiting = Flight::start(&daemon, json!({ "code": "print('waited')" })).await;
        let run = daemon.get(&format!("/runs/{}", waiting.id)).await.1;
        assert_eq!(run["final_error"], Value::Null, "{run:#}");

        // Neither its coming nor its going needs a restart.
        symlink("/var/run/docker.sock", &socket).unwrap();
        let (status, ready) = daemon.get("/ready").await;
        assert_eq!((status, &ready["status"]), (200, &json!("ready")));
        let run = waiting.end(&daemon).await;
        assert_eq!(run["result"]["stdout"], "waited\n", "{run:#}");
        let result = daemon.execute("print('works')").await;
        assert_eq!(result["stdout"], "works\n", "{result:#}");
        std::fs::remove_file(&socket).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_where_nobody_answers_is_no_engine_either() {
    let top = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let socket = top.path().join("engine.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let daemon = Daemon::start_with(Settings {
        engine: Some(socket),
        ..Settings::default()
    })
    .await;
    let (status, answer) = daemon.get("/ready").await;
    assert_eq!(status, 503, "{answer}");
    let reason = answer["reasons"][0].as_str().unwrap();
    assert!(
        reason.contains(NO_ENGINE) && reason.contains(ENGINE_REMEDY),
        "{reason}"
    );
    assert!(answer["since"].is_string(), "{answer}");
    let id = daemon.submit(json!({ "code": "print()" })).await;
    let run = daemon.get(&format!("/runs/{id}")).await.1;
    assert_eq!(run["final_error"], Value::Null, "{run:#}");
    let cancelling = format!("/runs/{id}/cancel");
    assert_eq!(daemon.post(&cancelling, &json!({})).await.0, 200);
    assert_eq!(daemon.ended(&id).await["status"], "CANCELLED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_image_is_named_with_the_command_that_makes_it() {
    let toml = "[execution]\nimage = 'nonexistent:1'".to_owned();
    let daemon = Daemon::start_with(Settings {
        toml,
        ..Settings::default()
    })
    .await;
    let (status, answer) = daemon.get("/ready").await;
    assert_eq!(status, 503);
    let reason = answer["reasons"][0].as_str().unwrap();
    assert!(
        reason.contains("nonexistent:1") && reason.contains(IMAGE_REMEDY),
        "{reason}"
    );
    let run = daemon.run(json!({ "code": "print()" })).await;
    is_infrastructure(&run, &["nonexistent:1", IMAGE_REMEDY]);
    assert_eq!(published(&daemon), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_runtime_is_named() {
    let toml = "[execution]\nruntime = 'no-such-runtime'".to_owned();
    let daemon = Daemon::start_with(Settings {
        toml,
        ..Settings::default()
    })
    .await;
    let run = daemon.run(json!({ "code": "print()" })).await;
    is_infrastructure(&run, &["no-such-runtime"]);
    assert_eq!(published(&daemon), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_root_that_became_unusable_is_named_and_nothing_is_started() {
    let daemon = Daemon::start().await;
    assert_eq!(daemon.execute("print()").await["status"], "SUCCESS");
    let outputs = daemon.path().join("outputs");
    std::fs::rename(&outputs, daemon.path().join("moved")).unwrap();
    std::fs::write(&outputs, "in the way").unwrap();
    let run = daemon
        .run(json!({ "code": "open('out/a', 'w').write('1')" }))
        .await;
    is_infrastructure(&run, &["output directory", "app.output_root"]);
    let host = daemon.path().to_str().unwrap();
    assert!(!run.to_string().contains(host), "{run:#}");
    std::fs::remove_file(&outputs).unwrap();
    std::fs::rename(daemon.path().join("moved"), &outputs).unwrap();
    let result = daemon.execute("open('out/a', 'w').write('1')").await;
    assert_eq!(result["output_files"], json!(["a"]), "{result:#}");
}

#[test]
fn the_command_line_says_what_is_missing_and_what_to_do_and_exits_with_69() {
    let bench = Bench::new();
    bench.write("script.py", "print()");
    let no_engine = ("FUMEHOOD_ENGINE__HOST", "unix:///nowhere/engine.sock");
    let no_image = ("FUMEHOOD_EXECUTION__IMAGE", "nonexistent:1");
    let read_only = ("FUMEHOOD_APP__OUTPUT_ROOT", "script.py/outputs");
    let no_state = ("FUMEHOOD_APP__STATE_DIR", "script.py/state");
    let run = &["run", "script.py"][..];
    for ((name, value), arguments, words) in [
        (no_engine, run, [NO_ENGINE, ENGINE_REMEDY]),
        (
            no_engine,
            &["run", "script.py", "--json"],
            [NO_ENGINE, ENGINE_REMEDY],
        ),
        (no_engine, &["image", "list"], [NO_ENGINE, ENGINE_REMEDY]),
        (no_engine, &["image", "build"], [NO_ENGINE, ENGINE_REMEDY]),
        (no_image, run, ["nonexistent:1", IMAGE_REMEDY]),
        (read_only, run, ["output directory", "app.output_root"]),
        (no_state, run, ["state directory", "app.state_dir"]),
    ] {
        let mut command = bench.command(arguments);
        let called = Called::from(command.env(name, value).output().unwrap());
        assert_eq!(called.code, 69, "{value}: {called:?}");
        for word in words {
            assert!(called.stderr.contains(word), "{value}: {word}: {called:?}");
        }
        assert_eq!(called.stdout, "");
        assert_eq!(bench.artifacts(), Vec::<String>::new());
    }
}

#[test]
fn a_data_set_that_the_sandbox_cannot_read_is_named_by_the_command_line_too() {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    let bench = Bench::new();
    bench.write("script.py", "print()");
    let closed = bench.path().join("closed");
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    chown(&closed, Some(54_321), Some(54_321)).unwrap();
    let called = bench.call(&["run", "script.py", "--dataset", "closed"]);
    assert_eq!(called.code, 69, "{called:?}");
    assert!(
        called.stderr.contains("data set cannot be read"),
        "{called:?}"
    );
    assert!(called.stderr.contains("chmod"), "{called:?}");
}
