//! `[store]` and `[retention]`: where runs are kept, what is kept free for them, and for how long they
//! are kept. Owns the keys, their defaults and what is wrong with them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::sections::Config;

/// The largest number of days: more than any clock here counts.
const MAX_DAYS: u64 = 36_500;

/// `[store]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSection {
    /// The database file; `None` is `fumehood.db` in the state directory.
    pub path: Option<PathBuf>,
    /// Free room on its disk below which new runs are refused with 507, in MiB.
    pub min_free_mb: u64,
    /// Room on its disk that is held for the records of accepted runs, in MiB; 0 holds none.
    pub reserve_mb: u64,
    /// How long the start may look for damage, in seconds.
    pub check_seconds: u64,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            path: None,
            min_free_mb: 256,
            reserve_mb: 64,
            check_seconds: 60,
        }
    }
}

/// `[retention]`: what is over is kept for ever unless something is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionSection {
    /// For how long a run is kept after its end, in days.
    pub max_age_days: Option<u64>,
    /// How many runs that are over are kept of each tenant.
    pub max_runs: Option<u64>,
    /// How much is kept of them of each tenant, artifacts included, in MiB.
    pub max_mb: Option<u64>,
    /// What is younger is never removed, in minutes.
    pub min_age_minutes: u64,
    /// Time between two passes of the daemon, in seconds.
    pub every_seconds: u64,
    /// For how long volumes of the supervisor are kept that belong to other versions, in days.
    pub engine_volume_days: Option<u64>,
    /// For how long images of this project are kept that belong to other versions, in days.
    pub engine_image_days: Option<u64>,
}

impl Default for RetentionSection {
    fn default() -> Self {
        Self {
            max_age_days: None,
            max_runs: None,
            max_mb: None,
            min_age_minutes: 60,
            every_seconds: 600,
            engine_volume_days: None,
            engine_image_days: None,
        }
    }
}

/// Adds what is wrong.
pub(super) fn mistakes(config: &Config, mistakes: &mut Vec<String>) {
    let (store, retention) = (&config.store, &config.retention);
    let counts = [
        ("store.min_free_mb", 1, Some(store.min_free_mb), 1 << 24),
        ("store.reserve_mb", 0, Some(store.reserve_mb), 1 << 16),
        ("store.check_seconds", 1, Some(store.check_seconds), 86_400),
        (
            "retention.max_age_days",
            1,
            retention.max_age_days,
            MAX_DAYS,
        ),
        ("retention.max_runs", 1, retention.max_runs, 1 << 40),
        ("retention.max_mb", 1, retention.max_mb, 1 << 40),
        (
            "retention.min_age_minutes",
            0,
            Some(retention.min_age_minutes),
            MAX_DAYS * 1440,
        ),
        (
            "retention.every_seconds",
            1,
            Some(retention.every_seconds),
            86_400,
        ),
        (
            "retention.engine_volume_days",
            1,
            retention.engine_volume_days,
            MAX_DAYS,
        ),
        (
            "retention.engine_image_days",
            1,
            retention.engine_image_days,
            MAX_DAYS,
        ),
    ];
    for (name, least, value, most) in counts {
        if let Some(value) = value
            && !(least..=most).contains(&value)
        {
            mistakes.push(format!("{name}: {value} is not between {least} and {most}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_names_its_key() {
        type Change = fn(&mut Config);
        let cases: [(&str, Change); 5] = [
            ("store.min_free_mb", |c| c.store.min_free_mb = 0),
            ("store.reserve_mb", |c| c.store.reserve_mb = 1 << 20),
            ("store.check_seconds", |c| c.store.check_seconds = 0),
            ("retention.max_age_days", |c| {
                c.retention.max_age_days = Some(0);
            }),
            ("retention.every_seconds", |c| c.retention.every_seconds = 0),
        ];
        for (name, change) in cases {
            let mut config = Config::default();
            change(&mut config);
            let mut found = Vec::new();
            mistakes(&config, &mut found);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].starts_with(name), "{found:?}");
        }
    }

    #[test]
    fn nothing_goes_by_default() {
        let config = Config::default();
        assert!(!crate::runs::retention::Rules::of(&config).all.are_set());
        assert_eq!(config.retention.engine_volume_days, None);
        assert_eq!(config.retention.engine_image_days, None);
    }
}
