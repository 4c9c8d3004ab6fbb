//! The state directory says whose sandboxes these are, and belongs to one daemon and one store.

use std::time::Duration;

use super::{assert_untouched, body, daemon_with, only_handoff};
use crate::command_line::{Called, command_in};
use crate::support::Daemon;
use crate::support::engine::Starts;
use crate::support::watch::{Flight, nothing_left};

/// What became of another daemon in the same directory, whose settings differ in this.
fn another(daemon: &Daemon, setting: &str, instead: &str) -> Called {
    let toml = std::fs::read_to_string(daemon.path().join("fumehood.toml")).unwrap();
    let changed = toml.replace(setting, instead);
    assert_ne!(changed, toml);
    std::fs::write(daemon.path().join("another.toml"), changed).unwrap();
    let serve = ["--config", "another.toml", "serve"];
    command_in(daemon.path(), &serve).output().unwrap().into()
}

/// With another state directory nothing is known of the sandboxes of what is open in the store: to go
/// on with it would be to start its programs a second time.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_not_gone_on_with_from_another_state_directory() {
    let mut daemon = daemon_with("[store]\npath = 'kept.db'").await;
    let starts = Starts::watch(&daemon.instance()).await;
    let flight = Flight::start_until(&daemon, body(), "line 10").await;
    let execution = only_handoff(&daemon).await;
    daemon.kill();
    let called = another(&daemon, "state_dir = 'state'", "state_dir = 'elsewhere'");
    assert_eq!(called.code, 78, "{called:?}");
    for word in ["app.state_dir", daemon.instance().as_str()] {
        assert!(called.stderr.contains(word), "{word}: {called:?}");
    }
    daemon.launch();
    assert_untouched(&flight.end(&daemon).await);
    assert_eq!(starts.of(&execution), 1);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_with_another_store_takes_nothing_from_the_first() {
    let daemon = daemon_with("[store]\npath = 'kept.db'").await;
    let starts = Starts::watch(&daemon.instance()).await;
    let flight = Flight::start_until(&daemon, body(), "line 10").await;
    let execution = only_handoff(&daemon).await;
    let called = another(&daemon, "path = 'kept.db'", "path = 'another.db'");
    assert_eq!(called.code, 69, "{called:?}");
    for words in ["in use by another fumehood", "app.state_dir"] {
        assert!(called.stderr.contains(words), "{words}: {called:?}");
    }
    assert_eq!(daemon.handoffs(), std::slice::from_ref(&execution));
    assert_untouched(&flight.end(&daemon).await);
    assert_eq!(starts.of(&execution), 1);
    nothing_left(&daemon, Duration::from_secs(10)).await;
}
