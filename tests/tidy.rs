//! The structure that docs/architecture.md promises, enforced on the source text.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, helpers included"
)]

use std::path::{Path, PathBuf};

/// Files longer than this have more than one reason to change.
const MAX_LINES: usize = 450;

fn sources(below: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pending = vec![root.join(below)];
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(root).unwrap().to_owned(), text));
        }
    }
    assert!(!found.is_empty(), "there is nothing below {below}");
    found
}

/// Tests in files of their own, which may reach across modules.
fn is_test(path: &Path) -> bool {
    path.components()
        .any(|part| part.as_os_str().to_string_lossy().starts_with("tests"))
}

/// A module `a` is `src/a.rs` and everything below `src/a/`.
fn is_in(path: &Path, module: &str) -> bool {
    path.starts_with(format!("src/{module}")) || path == Path::new(&format!("src/{module}.rs"))
}

/// Lines of code, without those that are comments or belong to tests. Code may follow those: some
/// modules begin with the declaration of theirs.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let mut in_tests = false;
    text.lines().filter(move |line| {
        in_tests |= line.starts_with("#[cfg(test)]");
        let is_code = !in_tests && !line.trim_start().starts_with("//");
        let is_declaration = !line.starts_with([' ', '#']) && line.ends_with(';');
        if line.starts_with('}') || is_declaration {
            in_tests = false;
        }
        is_code
    })
}

#[test]
fn code_after_the_declaration_of_tests_is_looked_at_and_the_tests_are_not() {
    let text = "a;\n#[cfg(test)]\npub(crate) mod testing;\n// b\nc;\n#[cfg(test)]\nmod tests {\n    d;\n}\ne;\n";
    assert_eq!(code(text).collect::<Vec<_>>(), ["a;", "c;", "e;"]);
}

fn assert_only_in(word: &str, modules: &[&str]) {
    for (path, text) in sources("src") {
        if !is_test(&path) && !modules.iter().any(|module| is_in(&path, module)) {
            let used = code(&text).any(|line| line.contains(word));
            assert!(
                !used,
                "{} uses {word}, which belongs to {modules:?}",
                path.display()
            );
        }
    }
}

#[test]
fn only_the_docker_engine_knows_bollard() {
    assert_only_in("bollard", &["sandbox/docker"]);
}

#[test]
fn only_the_interface_knows_axum() {
    assert_only_in("axum::", &["api"]);
}

#[test]
fn only_the_stores_know_rusqlite() {
    assert_only_in("rusqlite::", &["runs/store"]);
}

#[test]
fn only_the_interface_knows_tls() {
    assert_only_in("rustls", &["api"]);
}

#[test]
fn only_the_client_of_the_model_knows_reqwest() {
    assert_only_in("reqwest", &["orchestrator/llm"]);
}

#[test]
fn only_the_configuration_reads_the_environment() {
    assert_only_in("env::var", &["config"]);
}

#[test]
fn only_the_clock_reads_the_wall_clock() {
    for word in ["Timestamp::now", "Zoned::now", "SystemTime"] {
        assert_only_in(word, &["clock"]);
    }
    // The age of a file, asked of its time, reads the wall clock without naming it.
    assert_only_in(".modified()", &["doctor/bench"]);
}

/// A release build obeys no fault bench: whatever belongs to it is left out there. What comes of it is
/// looked at in `tests/faults/release.rs`.
#[test]
fn only_debug_builds_have_fault_points() {
    let of_the_bench = [
        "fault_bench",
        "const FAULT_BENCH",
        "fault_point::bench",
        "bench::reached",
        "pub mod bench",
    ];
    let mut found = 0;
    for (path, text) in sources("src") {
        if is_in(&path, "fault_point/bench") {
            continue;
        }
        let lines: Vec<&str> = code(&text).collect();
        for (number, line) in lines.iter().enumerate() {
            if of_the_bench.iter().any(|word| line.contains(word)) {
                found += 1;
                let above = &lines[number.saturating_sub(3)..number];
                let is_debug = above
                    .iter()
                    .any(|line| line.contains("#[cfg(debug_assertions)]"));
                assert!(
                    is_debug,
                    "{}: in release builds, too: {line}",
                    path.display()
                );
            }
        }
    }
    assert!(found >= 6, "the fault bench is looked for by other names");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).unwrap();
    assert!(
        !manifest.contains("debug-assertions"),
        "a release build is none"
    );
}

#[test]
fn arrows_between_modules_point_one_way() {
    let forbidden: [(&str, &[&str]); 9] = [
        (
            "auth",
            &[
                "api",
                "app",
                "artifacts",
                "cli",
                "config",
                "doctor",
                "execution",
                "orchestrator",
                "receipt",
                "runs",
                "sandbox",
            ],
        ),
        (
            "receipt",
            &[
                "api",
                "app",
                "artifacts",
                "auth",
                "cli",
                "config",
                "doctor",
                "orchestrator",
                "runs",
                "sandbox",
            ],
        ),
        (
            "execution",
            &[
                "api",
                "app",
                "artifacts",
                "auth",
                "cli",
                "config",
                "doctor",
                "orchestrator",
                "runs",
                "sandbox",
            ],
        ),
        (
            "artifacts",
            &[
                "api",
                "app",
                "auth",
                "cli",
                "config",
                "doctor",
                "orchestrator",
                "runs",
                "sandbox",
            ],
        ),
        (
            "sandbox",
            &[
                "api",
                "app",
                "artifacts",
                "auth",
                "cli",
                "config",
                "doctor",
                "orchestrator",
                "runs",
            ],
        ),
        (
            "runs",
            &[
                "api",
                "app",
                "artifacts",
                "auth",
                "cli",
                "doctor",
                "orchestrator",
                "sandbox",
            ],
        ),
        (
            "orchestrator",
            &["api", "app", "auth", "cli", "config", "doctor"],
        ),
        (
            "doctor",
            &[
                "api",
                "app",
                "artifacts",
                "auth",
                "cli",
                "config",
                "orchestrator",
            ],
        ),
        (
            "api",
            &[
                "app",
                "artifacts",
                "cli",
                "doctor",
                "orchestrator",
                "sandbox",
            ],
        ),
    ];
    for (path, text) in sources("src") {
        for (module, others) in forbidden
            .iter()
            .filter(|(module, _)| !is_test(&path) && is_in(&path, module))
        {
            for other in *others {
                let arrow = format!("crate::{other}");
                let used = code(&text).any(|line| line.contains(&arrow));
                assert!(!used, "{}: {module} must not use {other}", path.display());
            }
        }
    }
}

#[test]
fn every_module_says_what_it_owns() {
    for (path, text) in sources("src").into_iter().chain(sources("crates")) {
        assert!(
            text.starts_with("//!"),
            "{} does not start with what it owns",
            path.display()
        );
    }
}

#[test]
fn files_have_one_reason_to_change() {
    for below in ["src", "crates", "tests"] {
        for (path, text) in sources(below) {
            let lines = text
                .lines()
                .take_while(|line| !line.starts_with("#[cfg(test)]"))
                .count();
            assert!(lines <= MAX_LINES, "{} has {lines} lines", path.display());
        }
    }
}
