//! `[tenants.<name>]`: what each tenant may do. Owns the keys and what is wrong with them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize};

use super::sections::{Config, one_or_many};
use crate::ids::{NotATenant, TenantId};
use crate::runs::dataset_path::check_roots;

/// More tenants than one daemon has room for.
const MAX_TENANTS: usize = 1000;

/// The largest weight.
const MAX_WEIGHT: u32 = 1000;

/// The largest number of runs per minute: each is remembered for a minute.
const MAX_RUNS_PER_MINUTE: u32 = 10_000;

/// One tenant. What is not given is as for everybody, and without a quota.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tenant {
    /// Directories that its data sets may be in; `None` is `app.allowed_data_root`.
    #[serde(deserialize_with = "some_roots")]
    pub allowed_data_root: Option<Vec<PathBuf>>,
    /// Its share of the places, beside the weights of the others that have runs waiting.
    pub weight: u32,
    /// Runs carried out at the same time; more wait.
    pub max_concurrent_runs: Option<usize>,
    /// Runs waiting; more are refused with 429. `None` is a share of `app.max_queued_runs` by weight.
    pub max_queued_runs: Option<u32>,
    /// Runs accepted within a minute; more are refused with 429.
    pub runs_per_minute: Option<u32>,
    /// CPU time of its programs in a day (UTC), in seconds. Once it is used up, or reserved for runs
    /// that have not ended, new ones are refused with 429.
    pub cpu_seconds_per_day: Option<u64>,
    /// Bytes of all its requests, results and artifacts, in MiB. Once they are there, new runs are
    /// refused with 429.
    pub max_stored_mb: Option<u64>,
    /// For how long its runs are kept, in days; `None` is `retention.max_age_days`.
    pub retention_max_age_days: Option<u64>,
    /// How many of its runs are kept; `None` is `retention.max_runs`.
    pub retention_max_runs: Option<u64>,
    /// How much is kept of them, in MiB; `None` is `retention.max_mb`.
    pub retention_max_mb: Option<u64>,
    /// The most that its requests may ask for.
    pub max_timeout_seconds: Option<f64>,
    /// The most that its requests may ask for.
    pub max_memory_mb: Option<u64>,
    /// The most that its requests may ask for.
    pub max_cpus: Option<f64>,
    /// The most that its requests may ask for.
    pub max_max_processes: Option<u64>,
    /// The most that its requests may ask for.
    pub max_workspace_mb: Option<u64>,
    /// The most that its requests may ask for.
    pub max_shm_mb: Option<u64>,
}

impl Default for Tenant {
    fn default() -> Self {
        Self {
            allowed_data_root: None,
            weight: 1,
            max_concurrent_runs: None,
            max_queued_runs: None,
            runs_per_minute: None,
            cpu_seconds_per_day: None,
            max_stored_mb: None,
            retention_max_age_days: None,
            retention_max_runs: None,
            retention_max_mb: None,
            max_timeout_seconds: None,
            max_memory_mb: None,
            max_cpus: None,
            max_max_processes: None,
            max_workspace_mb: None,
            max_shm_mb: None,
        }
    }
}

fn some_roots<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<PathBuf>>, D::Error> {
    one_or_many(deserializer).map(Some)
}

impl Config {
    /// What a tenant may do; `None` if there is no such tenant. `default` is always there.
    #[must_use]
    pub fn tenant(&self, id: &TenantId) -> Option<Tenant> {
        let configured = self.tenants.get(id.as_str()).cloned();
        configured.or_else(|| (*id == TenantId::default()).then(Tenant::default))
    }

    /// Every tenant that there is.
    #[must_use]
    pub fn tenant_ids(&self) -> Vec<TenantId> {
        let configured = self.tenants.keys().filter_map(|name| TenantId::parse(name));
        let mut ids: Vec<TenantId> = configured.collect();
        if !ids.contains(&TenantId::default()) {
            ids.push(TenantId::default());
        }
        ids
    }
}

/// Adds what is wrong with the tenants.
pub(super) fn mistakes(config: &Config, mistakes: &mut Vec<String>) {
    if config.tenants.len() > MAX_TENANTS {
        mistakes.push(format!("tenants: has more than {MAX_TENANTS} of them"));
    }
    for (name, tenant) in &config.tenants {
        let mut wrong = |key: &str, text: String| {
            let dot = if key.is_empty() { "" } else { "." };
            mistakes.push(format!("tenants.{name}{dot}{key}: {text}"));
        };
        if TenantId::parse(name).is_none() {
            wrong("", NotATenant.to_string());
        }
        if config.auth.tokens_file.is_none() && *name != TenantId::default().as_str() {
            wrong(
                "",
                "nobody can be it without tokens: set auth.tokens_file".to_owned(),
            );
        }
        if let Some(roots) = &tenant.allowed_data_root
            && check_roots(roots).is_err()
        {
            let text = "each has to be a directory that is there, and there has to be one";
            wrong("allowed_data_root", text.to_owned());
        }
        let counts = [
            (
                "weight",
                Some(u64::from(tenant.weight)),
                u64::from(MAX_WEIGHT),
            ),
            (
                "max_concurrent_runs",
                tenant.max_concurrent_runs.map(|count| count as u64),
                1 << 20,
            ),
            (
                "runs_per_minute",
                tenant.runs_per_minute.map(u64::from),
                u64::from(MAX_RUNS_PER_MINUTE),
            ),
            ("cpu_seconds_per_day", tenant.cpu_seconds_per_day, 1 << 40),
            ("max_stored_mb", tenant.max_stored_mb, 1 << 40),
            (
                "retention_max_age_days",
                tenant.retention_max_age_days,
                36_500,
            ),
            ("retention_max_runs", tenant.retention_max_runs, 1 << 40),
            ("retention_max_mb", tenant.retention_max_mb, 1 << 40),
        ];
        for (key, value, most) in counts {
            if let Some(value) = value
                && !(1..=most).contains(&value)
            {
                wrong(key, format!("{value} is not between 1 and {most}"));
            }
        }
        ceilings(config, tenant, &mut wrong);
    }
    places_of_all(config, mistakes);
}

/// Where there are several tenants, no data set can be what the daemon keeps for all of them: whoever
/// could name it would read the others' artifacts.
fn places_of_all(config: &Config, mistakes: &mut Vec<String>) {
    let ids = config.tenant_ids();
    if config.auth.tokens_file.is_none() || ids.len() < 2 {
        return;
    }
    let kept = [
        ("app.output_root", &config.app.output_root),
        ("app.state_dir", &config.app.state_dir),
    ];
    let kept = kept.map(|(key, path)| (key, resolved(path)));
    for id in ids {
        let own = config
            .tenant(&id)
            .and_then(|tenant| tenant.allowed_data_root);
        let (place, roots) = match &own {
            Some(roots) => (format!("tenants.{id}.allowed_data_root"), roots),
            None => (
                "app.allowed_data_root".to_owned(),
                &config.app.allowed_data_root,
            ),
        };
        let roots: Vec<PathBuf> = roots.iter().map(|root| resolved(root)).collect();
        for (key, path) in &kept {
            let is_shared =
                |root: &PathBuf| path.starts_with(root.as_path()) || root.starts_with(path);
            if roots.iter().any(is_shared) {
                mistakes.push(format!(
                    "{place}: the tenant {id} could read there what is kept for all tenants \
                     ({key}): give its data sets, or {key}, a directory of their own"
                ));
            }
        }
    }
}

/// Where a path leads, also if the end of it is not there yet.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = |above: &Path| {
        let rest = absolute.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    };
    let real = absolute.ancestors().find_map(real);
    real.unwrap_or(absolute)
}

/// A tenant's ceilings are within those for everybody.
fn ceilings(config: &Config, tenant: &Tenant, wrong: &mut impl FnMut(&str, String)) {
    let all = &config.execution;
    let numbers = [
        (
            "max_timeout_seconds",
            0.0,
            tenant.max_timeout_seconds,
            all.max_timeout_seconds,
        ),
        ("max_cpus", 0.1, tenant.max_cpus, all.max_cpus),
    ];
    for (key, least, value, most) in numbers {
        if let Some(value) = value
            && !(value.is_finite() && value > 0.0 && value >= least && value <= most)
        {
            let text = format!(
                "{value} has to be above 0, at least {least} and at most execution.{key}, {most}"
            );
            wrong(key, text);
        }
    }
    let counts = [
        // Less has no room for a workspace beside the program.
        (
            "max_memory_mb",
            128,
            tenant.max_memory_mb,
            all.max_memory_mb,
        ),
        (
            "max_max_processes",
            4,
            tenant.max_max_processes,
            all.max_max_processes,
        ),
        (
            "max_workspace_mb",
            1,
            tenant.max_workspace_mb,
            all.max_workspace_mb,
        ),
        ("max_shm_mb", 1, tenant.max_shm_mb, all.max_shm_mb),
    ];
    for (key, least, value, most) in counts {
        if let Some(value) = value
            && !(least..=most).contains(&value)
        {
            let text = format!("{value} is not between {least} and execution.{key}, {most}");
            wrong(key, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(change: impl FnOnce(&mut Tenant)) -> String {
        let mut tenant = Tenant::default();
        change(&mut tenant);
        let mut config = Config::default();
        // Somewhere else than what is kept for all.
        config.app.allowed_data_root = vec!["/usr".into()];
        config.auth.tokens_file = Some("tokens".into());
        config.tenants.insert("alice".to_owned(), tenant);
        let mut found = Vec::new();
        mistakes(&config, &mut found);
        found.join("\n")
    }

    #[test]
    fn a_tenant_needs_nothing_but_its_name() {
        assert_eq!(wrong(|_| {}), "");
        let config = Config::default();
        assert_eq!(config.tenant(&TenantId::default()), Some(Tenant::default()));
        assert_eq!(config.tenant(&TenantId::parse("alice").unwrap()), None);
        assert_eq!(config.tenant_ids(), [TenantId::default()]);
    }

    #[test]
    fn each_mistake_names_its_key() {
        type Change = fn(&mut Tenant);
        let cases: [(&str, Change); 11] = [
            ("weight", |t| t.weight = 0),
            ("max_concurrent_runs", |t| t.max_concurrent_runs = Some(0)),
            ("runs_per_minute", |t| t.runs_per_minute = Some(20_000)),
            ("cpu_seconds_per_day", |t| t.cpu_seconds_per_day = Some(0)),
            ("max_stored_mb", |t| t.max_stored_mb = Some(0)),
            ("retention_max_runs", |t| t.retention_max_runs = Some(0)),
            ("allowed_data_root", |t| {
                t.allowed_data_root = Some(Vec::new());
            }),
            ("max_timeout_seconds", |t| {
                t.max_timeout_seconds = Some(f64::NAN);
            }),
            ("max_cpus", |t| t.max_cpus = Some(0.01)),
            ("max_memory_mb", |t| t.max_memory_mb = Some(1 << 30)),
            ("max_shm_mb", |t| t.max_shm_mb = Some(0)),
        ];
        for (key, change) in cases {
            let text = wrong(change);
            assert!(
                text.starts_with(&format!("tenants.alice.{key}: ")),
                "{text}"
            );
        }
    }

    /// `outputs` is not there yet, and `link` leads to where it will be.
    #[test]
    fn no_tenant_reads_what_is_kept_for_all() {
        let directory = tempfile::tempdir().unwrap();
        let top = directory.path();
        for name in ["alice", "shared", "state/x", "outer/link"] {
            std::fs::create_dir_all(top.join(name)).unwrap();
        }
        std::fs::remove_dir(top.join("outer/link")).unwrap();
        std::os::unix::fs::symlink(top, top.join("outer/link")).unwrap();
        let found_with = |outputs: &str, all: &str, alice: Option<&str>| {
            let mut config = Config::default();
            config.app.allowed_data_root = vec![top.join(all)];
            config.app.output_root = top.join(outputs);
            config.app.state_dir = top.join("state");
            config.auth.tokens_file = Some("tokens".into());
            let tenant = Tenant {
                allowed_data_root: alice.map(|alice| vec![top.join(alice)]),
                ..Tenant::default()
            };
            config.tenants.insert("alice".to_owned(), tenant);
            let mut found = Vec::new();
            mistakes(&config, &mut found);
            found.join("\n")
        };
        let found = |all: &str, alice: Option<&str>| found_with("outputs", all, alice);
        assert_eq!(found("shared", Some("alice")), "");
        // Not there either, and led to by a link.
        let text = found_with("outer/link/alice/outputs", "shared", Some("alice"));
        assert!(text.contains("tenants.alice.allowed_data_root"), "{text}");
        let text = found("", Some("alice"));
        assert!(
            text.contains("app.allowed_data_root: the tenant default")
                && text.contains("app.output_root")
                && text.contains("app.state_dir")
                && !text.contains("alice"),
            "{text}"
        );
        for alice in ["", "alice/..", "outer/link", "state", "state/x"] {
            let text = found("shared", Some(alice));
            let key = "tenants.alice.allowed_data_root: the tenant alice";
            assert!(
                text.contains(key) && !text.contains("default"),
                "{alice}: {text}"
            );
        }
        // Those who are alone keep nothing from each other.
        let mut config = Config::default();
        config.auth.tokens_file = Some("tokens".into());
        let mut found = Vec::new();
        mistakes(&config, &mut found);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn tenants_need_tokens_and_sound_names() {
        let mut config = Config::default();
        config
            .tenants
            .insert("default".to_owned(), Tenant::default());
        let mut found = Vec::new();
        mistakes(&config, &mut found);
        assert_eq!(found, Vec::<String>::new());
        config.tenants.insert("A/b".to_owned(), Tenant::default());
        mistakes(&config, &mut found);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].contains("auth.tokens_file"), "{found:?}");
    }
}
