//! What keeps the daemon from starting.

use std::net::TcpListener;

use serde_json::json;

use crate::command_line::{Bench, Called, command_in};
use crate::support::Daemon;
use crate::support::daemon::PATIENCE;
use crate::support::engine::containers_of;
use crate::support::wait::until;

const SERVE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

#[test]
fn directories_that_cannot_be_used_are_named_with_their_keys() {
    let bench = Bench::new();
    bench.write("file", "in the way");
    for (toml, words) in [
        (
            "[app]\noutput_root = 'file/outputs'",
            ["output directory", "app.output_root"],
        ),
        (
            "[app]\noutput_root = 'file'",
            ["output directory", "app.output_root"],
        ),
        // As read-only as a file system can be, for the superuser as well.
        (
            "[app]\noutput_root = '/proc/fumehood'",
            ["output directory", "app.output_root"],
        ),
        (
            "[app]\nstate_dir = 'file/state'",
            ["state directory", "app.state_dir"],
        ),
        (
            "[app]\nstate_dir = '/proc/fumehood'",
            ["state directory", "app.state_dir"],
        ),
        ("[store]\npath = 'file/fumehood.db'", ["store", "writable"]),
    ] {
        bench.write("fumehood.toml", toml);
        let called = bench.call(&SERVE);
        assert_eq!(called.code, 69, "{toml}: {called:?}");
        for word in words {
            assert!(called.stderr.contains(word), "{toml}: {word}: {called:?}");
        }
        assert!(!called.stderr.contains("listens on"), "{called:?}");
        assert_eq!(called.stdout, "");
    }
}

#[test]
fn a_store_that_is_no_store_is_refused_and_kept_as_it_is() {
    let bench = Bench::new();
    let text = "This is somebody's diary and no database.\n".repeat(100);
    let path = bench.write("diary", &text);
    bench.write("fumehood.toml", "[store]\npath = 'diary'");
    let called = bench.call(&SERVE);
    assert_eq!(called.code, 78, "{called:?}");
    assert!(called.stderr.contains("store"), "{called:?}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_made() {
    let bench = Bench::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let called = bench.call(&["serve", "--listen", &address]);
    assert_eq!(called.code, 69, "{called:?}");
    for word in [address.as_str(), "--listen", "api.listen"] {
        assert!(called.stderr.contains(word), "{word}: {called:?}");
    }
    for name in [".fumehood", "outputs"] {
        assert!(!bench.path().join(name).exists(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_on_the_same_state_is_refused_and_the_first_goes_on_undisturbed() {
    let daemon = Daemon::start().await;
    let endless = json!({ "code": "while True: __import__('time').sleep(1)" });
    let id = daemon.submit(endless).await;
    let instance = daemon.instance();
    let made = || containers_of(&instance);
    let before = until(PATIENCE, made, |names| names.len() == 1).await;

    let second = command_in(daemon.path(), &SERVE).output().unwrap();
    let called = Called::from(second);
    assert_eq!(called.code, 69, "{called:?}");
    assert!(
        called.stderr.contains("in use by another fumehood"),
        "{called:?}"
    );
    assert!(called.stderr.contains("state directory"), "{called:?}");

    assert_eq!(containers_of(&instance).await, before);
    let run = daemon.get(&format!("/runs/{id}")).await.1;
    assert_eq!(run["status"], "RUNNING", "{run:#}");
    assert_eq!(daemon.execute("print('both')").await["stdout"], "both\n");
    let cancelling = format!("/runs/{id}/cancel");
    assert_eq!(daemon.post(&cancelling, &json!({})).await.0, 200);
    assert_eq!(daemon.ended(&id).await["status"], "CANCELLED");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_beside_a_daemon_leaves_its_programs_alone() {
    let daemon = Daemon::start().await;
    let endless = json!({ "code": "while True: __import__('time').sleep(1)" });
    let id = daemon.submit(endless).await;
    let instance = daemon.instance();
    let made = || containers_of(&instance);
    until(PATIENCE, made, |names| names.len() == 1).await;
    std::fs::write(daemon.path().join("script.py"), "print('beside')").unwrap();
    let beside = command_in(daemon.path(), &["run", "script.py"]).output();
    let called = Called::from(beside.unwrap());
    assert_eq!(
        (called.code, called.stdout.as_str()),
        (0, "beside\n"),
        "{called:?}"
    );
    let run = daemon.get(&format!("/runs/{id}")).await.1;
    assert_eq!(run["status"], "RUNNING", "{run:#}");
    let cancelling = format!("/runs/{id}/cancel");
    assert_eq!(daemon.post(&cancelling, &json!({})).await.0, 200);
    assert_eq!(daemon.ended(&id).await["status"], "CANCELLED");
}

/// A program that has written a file and ends when it is told to, so that its files are gathered
/// after whatever happens in between.
const GATHERED_LATER: &str = "import os, time\n\
    open('out/mine.txt', 'w').write('kept')\n\
    while not os.path.exists('/data/go'): time.sleep(0.05)\n";

#[tokio::test(flavor = "multi_thread")]
async fn other_calls_on_the_same_output_root_take_nothing_from_a_running_program() {
    let daemon = Daemon::start().await;
    std::fs::write(daemon.path().join("script.py"), "print('beside')").unwrap();
    for arguments in [&SERVE[..], &["run", "script.py"]] {
        let set = daemon.data().join("set");
        std::fs::create_dir(&set).unwrap();
        let body = json!({ "dataset_path": "data/set", "code": GATHERED_LATER });
        let id = daemon.submit(body).await;
        let instance = daemon.instance();
        let made = || containers_of(&instance);
        until(PATIENCE, made, |names| names.len() == 1).await;
        let output = command_in(daemon.path(), arguments).output().unwrap();
        assert!(
            [0, 69].contains(&Called::from(output).code),
            "{arguments:?}"
        );
        std::fs::write(set.join("go"), "").unwrap();
        let run = daemon.ended(&id).await;
        assert_eq!(run["status"], "SUCCESS", "{run:#}");
        let (_, artifacts) = daemon.get(&format!("/runs/{id}/artifacts")).await;
        let kept = artifacts["artifacts"].as_array().unwrap();
        assert_eq!(kept.len(), 1, "{arguments:?}: {artifacts:#}");
        std::fs::remove_dir_all(&set).unwrap();
    }
}
