//! A configuration file and its variables hold anything: they are used or refused in words, and what
//! is used keeps its own promises.

#![no_main]

use std::io::Write as _;

use fumehood::config::{Overrides, Sources, load};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: (&str, Vec<(String, String)>)| {
    let (text, variables) = data;
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("room for it");
    let sources = Sources {
        file: Some(file.path().to_owned()),
        environment: variables
            .into_iter()
            .map(|(key, value)| (format!("FUMEHOOD_{key}"), value))
            .collect(),
    };
    match load(&sources, &Overrides::default()) {
        Ok(config) => {
            let execution = &config.execution;
            assert!(execution.timeout_seconds <= execution.max_timeout_seconds);
            assert!(execution.memory_mb <= execution.max_memory_mb);
            assert!(config.app.max_concurrent_runs > 0);
        }
        Err(error) => assert!(!error.0.is_empty() && error.0.iter().all(|line| !line.is_empty())),
    }
});
