//! What a configuration has to hold beyond the types of its values.

use std::time::Duration;

use super::sections::{Config, Execution, Pool};
use crate::execution::spec::MAX_ARTIFACT_FILES;
use crate::runs::dataset_path::check_roots;

/// The most output kept of one stream: what the supervisor keeps for a daemon that comes back.
const MAX_OUTPUT_BYTES: u64 = 3 << 20;

/// Container engines take no uid above what user namespaces map.
const MAX_UID: u32 = 65_533;

/// Sandboxes that may be on their way out, their uids not yet free, besides those in use and those
/// that were set aside.
const MAX_REMOVALS: usize = 16;

/// The most sandboxes kept waiting: far more than a host has memory for.
const MAX_POOL_SIZE: usize = 256;

/// The most modules that an interpreter imports ahead of use.
const MAX_PRELOAD: usize = 64;

/// Everything that is wrong, each with the name of its key.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "seconds of a run fit a double exactly"
)]
pub(super) fn mistakes(config: &Config) -> Vec<String> {
    let mut mistakes = Vec::new();
    numbers(config, &mut mistakes);
    execution(&config.execution, &mut mistakes);
    pool(&config.pool, &mut mistakes);
    super::engine::mistakes(&config.engine, &mut mistakes);
    not_yet(config, &mut mistakes);
    engine(&config.engine.host, &mut mistakes);
    super::interface::mistakes(config, &mut mistakes);
    super::llm::mistakes(&config.llm, &mut mistakes);
    super::tenants::mistakes(config, &mut mistakes);
    super::storage::mistakes(config, &mut mistakes);
    if config.execution.max_timeout_seconds > config.app.run_timeout_seconds as f64 {
        mistakes.push(format!(
            "execution.max_timeout_seconds: {} is more than app.run_timeout_seconds, {}, which \
             would end the program first",
            config.execution.max_timeout_seconds, config.app.run_timeout_seconds
        ));
    }
    if let Err(error) = check_roots(&config.app.allowed_data_root) {
        mistakes.push(error.to_string());
    }
    mistakes
}

fn numbers(config: &Config, mistakes: &mut Vec<String>) {
    let app = &config.app;
    let at_least_one = [
        ("app.max_concurrent_runs", app.max_concurrent_runs as u64),
        ("app.run_timeout_seconds", app.run_timeout_seconds),
        ("api.max_body_bytes", config.api.max_body_bytes as u64),
        ("api.read_timeout_seconds", config.api.read_timeout_seconds),
        ("api.max_connections", config.api.max_connections as u64),
        (
            "limits.max_iterations",
            u64::from(config.limits.max_iterations),
        ),
    ];
    for (name, value) in at_least_one {
        if value == 0 {
            mistakes.push(format!("{name}: has to be at least 1"));
        }
    }
    if config.limits.max_iterations > 50 {
        mistakes.push("limits.max_iterations: is at most 50".to_owned());
    }
    let slots = app.max_concurrent_runs
        + config.pool.size
        + config.engine.max_quarantined.min(1 << 16)
        + MAX_REMOVALS;
    let slots = u32::try_from(slots).unwrap_or(u32::MAX);
    let last = config.execution.uid_base.saturating_add(slots);
    if config.execution.uid_base < 1000 || last > MAX_UID {
        mistakes.push(format!(
            "execution.uid_base: {} to {last} is needed, one uid for each of \
             app.max_concurrent_runs and pool.size and a few more, between 1000 and {MAX_UID}",
            config.execution.uid_base
        ));
    }
}

fn execution(execution: &Execution, mistakes: &mut Vec<String>) {
    let seconds = [
        (
            "execution.timeout_seconds",
            execution.timeout_seconds,
            execution.max_timeout_seconds,
        ),
        ("execution.cpus", execution.cpus, execution.max_cpus),
    ];
    for (name, value, ceiling) in seconds {
        if !(value.is_finite() && value > 0.0 && value <= ceiling) {
            mistakes.push(format!(
                "{name}: {value} has to be above 0 and at most its ceiling, {ceiling}"
            ));
        }
    }
    if Duration::try_from_secs_f64(execution.max_timeout_seconds).is_err() {
        mistakes.push("execution.max_timeout_seconds: has to be a number of seconds".to_owned());
    }
    let counts = [
        (
            "execution.memory_mb",
            64,
            execution.memory_mb,
            execution.max_memory_mb,
        ),
        (
            "execution.max_processes",
            4,
            execution.max_processes,
            execution.max_max_processes,
        ),
        (
            "execution.workspace_mb",
            1,
            execution.workspace_mb,
            execution.max_workspace_mb,
        ),
        (
            "execution.shm_mb",
            1,
            execution.shm_mb,
            execution.max_shm_mb,
        ),
        (
            "execution.max_memory_mb",
            64,
            execution.max_memory_mb,
            1 << 24,
        ),
        (
            "execution.max_workspace_mb",
            1,
            execution.max_workspace_mb,
            1 << 24,
        ),
        ("execution.max_shm_mb", 1, execution.max_shm_mb, 1 << 24),
        (
            "execution.max_max_processes",
            4,
            execution.max_max_processes,
            1 << 20,
        ),
        (
            "execution.max_artifact_mb",
            1,
            execution.max_artifact_mb,
            1 << 24,
        ),
        (
            "execution.max_artifact_files",
            1,
            execution.max_artifact_files,
            MAX_ARTIFACT_FILES,
        ),
        (
            "execution.max_stdout_size_bytes",
            0,
            execution.max_stdout_size_bytes,
            MAX_OUTPUT_BYTES,
        ),
        (
            "execution.max_stderr_size_bytes",
            0,
            execution.max_stderr_size_bytes,
            MAX_OUTPUT_BYTES,
        ),
    ];
    for (name, least, value, most) in counts {
        if !(least..=most).contains(&value) {
            mistakes.push(format!("{name}: {value} is not between {least} and {most}"));
        }
    }
    if execution.workspace_mb + execution.shm_mb >= execution.memory_mb {
        mistakes.push(
            "execution.workspace_mb and execution.shm_mb together: have to be below \
             execution.memory_mb, which they are charged to"
                .to_owned(),
        );
    }
}

/// The engine is reached by a Unix socket only (security.md row 64): one on TCP is anybody's who reaches it.
fn engine(host: &str, mistakes: &mut Vec<String>) {
    let is_path = !host.is_empty() && !host.contains("://");
    let is_socket = host
        .strip_prefix("unix://")
        .is_some_and(|path| !path.is_empty());
    if !is_path && !is_socket {
        mistakes.push(format!(
            "engine.host: {host:?} is no Unix socket, and no other can be used: write unix:// and its path"
        ));
    }
}

fn pool(pool: &Pool, mistakes: &mut Vec<String>) {
    if pool.size > MAX_POOL_SIZE {
        mistakes.push(format!("pool.size: is at most {MAX_POOL_SIZE}"));
    }
    if !(1..=1 << 24).contains(&pool.memory_mb) {
        mistakes.push("pool.memory_mb: has to be at least 1".to_owned());
    }
    if pool.preload.len() > MAX_PRELOAD {
        mistakes.push(format!(
            "pool.preload: names more than {MAX_PRELOAD} modules"
        ));
    }
    for module in pool.preload.iter().filter(|module| !is_module(module)) {
        mistakes.push(format!(
            "pool.preload: {module:?} is no name of a Python module"
        ));
    }
}

/// Whether a text is a dotted name, as an import statement takes it.
fn is_module(text: &str) -> bool {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    text.len() <= 200 && text.split('.').all(is_name)
}

/// Settings of the interface that this version cannot honour: refused, never ignored.
fn not_yet(config: &Config, mistakes: &mut Vec<String>) {
    let asked = [
        ("api.artifact_download", config.api.artifact_download),
        ("api.uploads", config.api.uploads),
    ];
    for (name, is_asked) in asked {
        if is_asked {
            mistakes.push(format!(
                "{name}: is not supported by this version; leave it unset"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Tenant;

    type Change = fn(&mut Config);

    fn with(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        mistakes(&config).join("\n")
    }

    #[test]
    fn the_defaults_hold() {
        assert_eq!(with(|_| {}), "");
    }

    #[test]
    fn each_mistake_names_its_key() {
        let cases: [(&str, Change); 16] = [
            ("engine.host", |c| {
                c.engine.host = "tcp://127.0.0.1:2375".to_owned();
            }),
            ("engine.host", |c| c.engine.host = String::new()),
            ("engine.host", |c| c.engine.host = "unix://".to_owned()),
            ("api.listen", |c| c.api.listen = ([0, 0, 0, 0], 8000).into()),
            ("execution.timeout_seconds", |c| {
                c.execution.timeout_seconds = f64::NAN
            }),
            ("execution.memory_mb", |c| c.execution.memory_mb = 1),
            ("execution.workspace_mb", |c| {
                c.execution.workspace_mb = 4096
            }),
            ("execution.max_artifact_files", |c| {
                c.execution.max_artifact_files = MAX_ARTIFACT_FILES + 1;
            }),
            ("execution.uid_base", |c| c.execution.uid_base = 0),
            ("app.max_concurrent_runs", |c| c.app.max_concurrent_runs = 0),
            ("app.allowed_data_root", |c| {
                c.app.allowed_data_root = Vec::new()
            }),
            ("tenants.alice", |c| {
                c.tenants.insert("alice".to_owned(), Tenant::default());
            }),
            ("api.tls_cert", |c| c.api.tls_cert = Some("x".into())),
            ("pool.size", |c| c.pool.size = 1000),
            ("pool.memory_mb", |c| c.pool.memory_mb = 0),
            ("pool.preload", |c| {
                c.pool.preload = vec!["os; x".to_owned()]
            }),
        ];
        for (name, change) in cases {
            let text = with(change);
            assert!(text.contains(name), "{name} is missing in: {text}");
        }
    }
}
