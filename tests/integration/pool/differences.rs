//! A program cannot tell that its interpreter has waited: the supervisor's own tests compare all of
//! these programs, here some are run by the daemon, with the libraries that are preloaded by default.

use serde_json::{Value, json};

use super::{start, until_full};
use crate::support::data::repository;
use crate::support::{Daemon, Settings};

const PROGRAMS: [&str; 11] = [
    "arguments",
    "at_exit",
    "classes_in_main",
    "descriptors",
    "environment",
    "exit_text",
    "finalised",
    "left_in_libraries",
    "pool_spawn",
    "typed_and_open",
    "uncaught_exception",
];

/// What a program shows. The kernel places every process elsewhere: addresses differ always.
fn shown(result: &Value) -> String {
    let shown = ["status", "return_code", "stdout", "stderr", "output_files"];
    let shown: Value = shown.iter().map(|&key| result[key].clone()).collect();
    let text = shown.to_string();
    let mut parts = text.split("0x7f");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let digits = part.len()
            - part
                .trim_start_matches(|c: char| c.is_ascii_hexdigit())
                .len();
        text + "0x" + &part[digits..]
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_show_the_same_cold_and_preloaded() {
    let settings = Settings {
        toml: "[pool]\nsize = 1\n[app]\nmax_concurrent_runs = 1".to_owned(),
        ..Settings::default()
    };
    let daemon = Daemon::start_with(settings).await;
    let programs = repository().join("crates/supervisor/tests/programs");
    for name in PROGRAMS {
        let code = std::fs::read_to_string(programs.join(name).with_extension("py")).unwrap();
        let plain = json!({"code": code, "options": {"preload": false}});
        let plain = daemon.result(plain).await;
        assert_ne!(start(&plain), "preloaded");
        let preloaded = until_preloaded(&daemon, &code).await;
        assert_eq!(shown(&plain), shown(&preloaded), "{name}");
    }
}

/// Runs a program in a preloaded interpreter, once one waits again.
async fn until_preloaded(daemon: &Daemon, code: &str) -> Value {
    until_full(daemon, 1).await;
    loop {
        // The one that waits may be of the other template; then this run teaches the pool.
        let result = daemon.execute(code).await;
        if start(&result) == "preloaded" {
            return result;
        }
        until_full(daemon, 1).await;
    }
}
