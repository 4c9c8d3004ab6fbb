//! The doctor, on this very host: what it says of sandboxes as they are, and that it notices every
//! wall that is taken away.

mod attacks;
mod metadata;
mod negative;
mod serving;
mod supervisor;

use std::fs::File;
use std::path::Path;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::command_line::{Bench, Called};
use crate::support::daemon::PATIENCE;
use crate::support::engine::has_runtime;
use crate::support::wait::until;

/// The doctor's card of a runtime, and how the call ended.
pub(crate) struct Examined {
    pub(crate) code: i32,
    pub(crate) card: Value,
}

impl Examined {
    /// The rows of a runtime's sandboxes that have this verdict.
    pub(crate) fn rows(&self, verdict: &str) -> Vec<&str> {
        let controls = self.card["runtimes"][0]["controls"].as_array().unwrap();
        controls
            .iter()
            .filter(|score| score["verdict"] == verdict)
            .map(|score| score["number"].as_str().unwrap())
            .collect()
    }
}

/// Calls the doctor for one runtime, on the engine at `socket` or the usual one.
pub(crate) async fn examined(bench: &Bench, runtime: &str, socket: Option<&Path>) -> Examined {
    let examined = attempted(bench, runtime, socket).await;
    examined.unwrap_or_else(|called| panic!("no card: {called:?}"))
}

/// The same, where it may be that there is no card.
async fn attempted(
    bench: &Bench,
    runtime: &str,
    socket: Option<&Path>,
) -> Result<Examined, Called> {
    let mut command = bench.command(&["doctor", "--json", "--runtime", runtime]);
    if let Some(socket) = socket {
        command.env("FUMEHOOD_ENGINE__HOST", socket);
    }
    let called = called(command).await;
    match serde_json::from_str(&called.stdout) {
        Ok(card) => Ok(Examined {
            code: called.code,
            card,
        }),
        Err(_) => Err(called),
    }
}

async fn called(mut command: Command) -> Called {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    output.await.unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_as_they_are_made_have_every_mandatory_control() {
    let bench = Bench::new();
    let seen = examined(&bench, "runc", None).await;
    assert_eq!(seen.rows("fail"), Vec::<&str>::new(), "{:#}", seen.card);
    assert_eq!(seen.code, 0);
    assert_eq!(seen.card["passed"], true);
    assert_eq!(seen.rows("differs by runtime"), Vec::<&str>::new());
    assert!(seen.rows("pass").len() >= 45, "{:#}", seen.card);
    for row in ["all", "4", "5", "18", "28", "35", "42", "57", "77"] {
        assert!(seen.rows("pass").contains(&row), "{row}: {:#}", seen.card);
    }
    let fields = [
        "number", "mark", "area", "control", "expected", "seen", "verdict", "remedy",
    ];
    for score in seen.card["machine"].as_array().unwrap() {
        let keys: Vec<&str> = score
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(keys, fields);
        // A warning comes with what to do.
        let is_warned = score["verdict"] == "warning";
        assert_eq!(score["remedy"].is_string(), is_warned, "{score}");
    }
    let items = seen.card["runtimes"][0]["evaluation"].as_array().unwrap();
    assert!(
        items.iter().all(|item| item["verdict"].is_string()),
        "{items:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn gvisor_differs_and_lacks_nothing() {
    if !has_runtime("runsc").await {
        eprintln!("SKIPPED: the engine has no runsc");
        return;
    }
    let bench = Bench::new();
    let seen = examined(&bench, "runsc", None).await;
    assert_eq!(seen.rows("fail"), Vec::<&str>::new(), "{:#}", seen.card);
    assert_eq!(seen.code, 0);
    assert!(seen.rows("pass").contains(&"10"));
    assert!(seen.rows("differs by runtime").contains(&"11"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_card_for_people_fits_a_terminal_and_has_no_colour_in_a_pipe() {
    let bench = Bench::new();
    // One that cannot be printed is not taken for one, either.
    let mut lost = bench.command(&["doctor", "--json", "--runtime", "runc"]);
    lost.stdout(File::options().write(true).open("/dev/full").unwrap());
    let plain = called(bench.command(&["doctor", "--runtime", "runc"]));
    let (called, lost) = tokio::join!(plain, called(lost));
    assert_eq!(lost.code, 74, "{lost:?}");
    assert_eq!(called.code, 0, "{called:?}");
    for line in called.stdout.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    assert!(!called.stdout.contains('\x1b'));
    for words in [
        "Sandboxes of runc",
        "no new privileges",
        "runc: every mandatory control holds",
        "CIS Docker 1.6",
    ] {
        assert!(called.stdout.contains(words), "{words}: {}", called.stdout);
    }
    let host = bench.path().to_str().unwrap();
    assert!(!called.stdout.contains(host), "{}", called.stdout);
    let left: Vec<_> = std::fs::read_dir(bench.path().join(".fumehood"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("doctor-"))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_that_cannot_examine_says_why_and_exits_with_69() {
    let bench = Bench::new();
    let cases = [
        (
            ("FUMEHOOD_ENGINE__HOST", "unix:///nowhere/engine.sock"),
            &["doctor"][..],
            ["Docker Engine is not reachable", "systemctl start docker"],
        ),
        (
            ("FUMEHOOD_EXECUTION__IMAGE", "nonexistent:1"),
            &["doctor", "--json"],
            ["nonexistent:1", "fumehood image build"],
        ),
        (
            ("LANG", "C"),
            &["doctor", "--runtime", "no-such-runtime"],
            ["no-such-runtime", "it has"],
        ),
    ];
    for ((name, value), arguments, words) in cases {
        let mut command = bench.command(arguments);
        command.env(name, value);
        let called = called(command).await;
        assert_eq!(called.code, 69, "{called:?}");
        assert_eq!(called.stdout, "");
        for word in words {
            assert!(called.stderr.contains(word), "{word}: {called:?}");
        }
    }
}

/// The bench asserts at its end that no container is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_doctor_that_is_stopped_leaves_nothing() {
    let bench = Bench::new();
    let state = bench.path().join(".fumehood");
    let mut command = bench.command(&["doctor", "--runtime", "runc"]);
    let begun = command.spawn().unwrap();
    let pid = Pid::from_child(&begun);
    let files = || {
        let entries = std::fs::read_dir(&state).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("doctor-")).count()
    };
    let is_begun = || async { files() };
    until(PATIENCE, is_begun, |count| *count == 1).await;
    kill_process(pid, Signal::INT).unwrap();
    let ended = tokio::task::spawn_blocking(|| begun.wait_with_output().unwrap());
    let ended = Called::from(ended.await.unwrap());
    assert_eq!((ended.code, ended.stdout.as_str()), (130, ""), "{ended:?}");
    assert_eq!(files(), 0);
}
