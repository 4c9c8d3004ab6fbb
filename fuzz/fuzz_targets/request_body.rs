//! The body of `POST /runs` is whatever a client sends: reading it neither panics nor lets through
//! what the rules of acceptance forbid.

#![no_main]

use std::sync::LazyLock;

use fumehood::config::{Overrides, Sources, load};
use fumehood::execution::paths;
use fumehood::runs::admission::{Rules, admit};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let config = load(&Sources::default(), &Overrides::default()).expect("the defaults are valid");
    Rules::new(&config, "fumehood/python:fuzzed")
});

fuzz_target!(|data: &[u8]| {
    let Ok(body) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    let Ok(run) = admit(&body, &RULES) else {
        return;
    };
    let execution = &RULES.execution;
    let limits = &run.limits;
    assert!(limits.timeout_seconds > 0.0);
    assert!(limits.timeout_seconds <= execution.max_timeout_seconds);
    assert!(limits.memory_mb <= execution.max_memory_mb);
    assert!(limits.max_processes <= execution.max_max_processes);
    // What the code holds is judged at execution (a NUL ends the run as `ERROR`), not here.
    assert!(run.code.is_some() || run.dataset.is_some());
    for path in run.input_files.keys() {
        assert_eq!(
            paths::input_file_path(path).as_deref().ok(),
            Some(path.as_str())
        );
    }
    // Asked again it says the same: nothing of a request stays.
    assert!(admit(&body, &RULES).is_ok());
});
