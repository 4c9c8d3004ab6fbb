//! What a tenant is to the core: its share of the places, its quotas, and the rules for its
//! requests. Read from the configuration once; nothing here counts or decides.

use std::collections::HashMap;
use std::time::Duration;

use super::admission::Rules;
use super::request::RunRequest;
use crate::config::{Config, Execution, Tenant};
use crate::ids::{ClientKey, TenantId};

/// Memory that must be left beside the workspace and `/dev/shm`, in MiB.
const PROGRAM_MB: u64 = 64;

/// Whose a submission is, and what it counts against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submitter {
    /// The tenant.
    pub tenant: TenantId,
    /// Whose turn it is within the tenant.
    pub client: ClientKey,
    /// The tenant's quotas.
    pub quotas: Quotas,
}

impl From<ClientKey> for Submitter {
    /// A client of a daemon without tokens.
    fn from(client: ClientKey) -> Self {
        Self {
            tenant: TenantId::default(),
            client,
            quotas: Quotas::default(),
        }
    }
}

/// How a tenant is treated while its runs wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Runs started beside those of the others: twice the weight, twice the runs.
    pub weight: u32,
    /// Runs carried out at the same time, if there is a bound besides the daemon's.
    pub max_concurrent: Option<usize>,
}

impl Default for Share {
    fn default() -> Self {
        Self {
            weight: 1,
            max_concurrent: None,
        }
    }
}

impl Share {
    /// The shares that a configuration gives.
    #[must_use]
    pub fn all(config: &Config) -> HashMap<TenantId, Self> {
        let share = |id: TenantId| {
            let tenant = config.tenant(&id)?;
            let share = Self {
                weight: tenant.weight,
                max_concurrent: tenant.max_concurrent_runs,
            };
            Some((id, share))
        };
        config.tenant_ids().into_iter().filter_map(share).collect()
    }
}

/// What a tenant may use up. Compared when a run is accepted, in the same transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Runs waiting or going on. Counted together, because a run that was just accepted waits for
    /// a moment even if nothing stands in its way.
    pub max_unfinished: Option<u32>,
    /// CPU time of programs in a day (UTC), in microseconds.
    pub cpu_microseconds_per_day: Option<i64>,
    /// Bytes of requests, results and artifacts.
    pub stored_bytes: Option<i64>,
}

impl Quotas {
    /// The quotas that a configuration gives a tenant.
    #[must_use]
    pub fn of(config: &Config, tenant: &Tenant) -> Self {
        let all = config.app.max_concurrent_runs;
        let running = tenant.max_concurrent_runs.map_or(all, |own| own.min(all));
        let running = u32::try_from(running).unwrap_or(u32::MAX);
        let own_queue = |waiting: u32| waiting.saturating_add(running);
        let scaled = |count: u64, unit: i64| {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            count.saturating_mul(unit)
        };
        Self {
            max_unfinished: match tenant.max_queued_runs {
                Some(waiting) => Some(own_queue(waiting)),
                None => share_of_queue(config, tenant),
            },
            cpu_microseconds_per_day: tenant
                .cpu_seconds_per_day
                .map(|seconds| scaled(seconds, 1_000_000)),
            stored_bytes: tenant.max_stored_mb.map(|mib| scaled(mib, 1 << 20)),
        }
    }
}

/// How many unfinished runs a tenant may have that has no bound of its own: a share of all that there
/// is room for, by weight, so that whatever the others do, its own share is left for it. `None` where
/// there is nobody to share with.
fn share_of_queue(config: &Config, tenant: &Tenant) -> Option<u32> {
    let tenants = config.tenant_ids();
    if tenants.len() < 2 {
        return None;
    }
    let weights = tenants.iter().filter_map(|id| config.tenant(id));
    let weights: u64 = weights.map(|other| u64::from(other.weight)).sum();
    let running = u64::try_from(config.app.max_concurrent_runs).unwrap_or(u64::MAX);
    let room = u64::from(config.app.max_queued_runs).saturating_add(running);
    let share = room.saturating_mul(u64::from(tenant.weight)) / weights.max(1);
    Some(u32::try_from(share.max(1)).unwrap_or(u32::MAX))
}

/// CPU time that a run may use at most, in microseconds: each of its programs all its CPUs for all its
/// time, within the time of the whole run.
#[must_use]
pub fn reserved_cpu_microseconds(request: &RunRequest, run_timeout: Duration) -> i64 {
    let programs = match &request.code {
        Some(_) => 1,
        // And the look at the data set.
        None => request.max_iterations.saturating_add(1),
    };
    let wall = request.limits.timeout_seconds * f64::from(programs);
    let cpu = wall.min(run_timeout.as_secs_f64()) * request.limits.cpus;
    // Limits are checked at admission; what is no number all the same reserves all there is.
    Duration::try_from_secs_f64(cpu)
        .ok()
        .and_then(|cpu| i64::try_from(cpu.as_micros()).ok())
        .unwrap_or(i64::MAX)
}

/// A quota that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Quota {
    /// As many runs wait as the tenant may have waiting.
    #[error("too many runs of the tenant are waiting")]
    Waiting,
    /// Its CPU time of the day.
    #[error("the tenant's CPU time of today is used up")]
    CpuTime,
    /// Its CPU time of the day, if the runs that wait or go on use all that they may.
    #[error("the tenant's CPU time of today is reserved for its unfinished runs")]
    CpuReserved,
    /// Its room.
    #[error("the tenant's room is used up")]
    Storage,
}

impl Rules {
    /// The rules for the requests of a tenant: its own roots, and ceilings that are at most those
    /// for everybody. Defaults give way to a lower ceiling.
    #[must_use]
    pub fn for_tenant(&self, tenant: &Tenant) -> Self {
        let own_roots = tenant.allowed_data_root.clone();
        Self {
            data_roots: own_roots.unwrap_or_else(|| self.data_roots.clone()),
            execution: narrowed(&self.execution, tenant),
            ..self.clone()
        }
    }
}

fn narrowed(all: &Execution, tenant: &Tenant) -> Execution {
    let mut own = all.clone();
    let whole = [
        (
            &mut own.max_memory_mb,
            &mut own.memory_mb,
            tenant.max_memory_mb,
        ),
        (
            &mut own.max_max_processes,
            &mut own.max_processes,
            tenant.max_max_processes,
        ),
        (
            &mut own.max_workspace_mb,
            &mut own.workspace_mb,
            tenant.max_workspace_mb,
        ),
        (&mut own.max_shm_mb, &mut own.shm_mb, tenant.max_shm_mb),
    ];
    for (ceiling, default, narrower) in whole {
        *ceiling = narrower.unwrap_or(*ceiling).min(*ceiling);
        *default = (*default).min(*ceiling);
    }
    let fractions = [
        (
            &mut own.max_timeout_seconds,
            &mut own.timeout_seconds,
            tenant.max_timeout_seconds,
        ),
        (&mut own.max_cpus, &mut own.cpus, tenant.max_cpus),
    ];
    for (ceiling, default, narrower) in fractions {
        *ceiling = narrower.unwrap_or(*ceiling).min(*ceiling);
        *default = (*default).min(*ceiling);
    }
    // Files in memory count towards it (security.md row 36).
    if own.workspace_mb + own.shm_mb + PROGRAM_MB > own.memory_mb {
        own.workspace_mb = own.workspace_mb.min(own.memory_mb / 2);
        own.shm_mb = own.shm_mb.min(own.memory_mb / 8);
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_what_is_its_own_and_the_rest_of_everybody() {
        let mut config = Config::default();
        config.app.max_concurrent_runs = 4;
        let rules = Rules::new(&config, "built:1");
        assert_eq!(
            rules.for_tenant(&Tenant::default()).execution,
            rules.execution
        );
        let narrow = Tenant {
            allowed_data_root: Some(vec!["/srv/alice".into()]),
            max_memory_mb: Some(512),
            max_cpus: Some(0.5),
            max_timeout_seconds: Some(10.0),
            max_shm_mb: Some(1 << 20),
            ..Tenant::default()
        };
        let own = rules.for_tenant(&narrow);
        assert_eq!(own.data_roots, narrow.allowed_data_root.unwrap());
        assert_eq!(own.default_image, "built:1");
        let execution = &own.execution;
        assert_eq!((execution.max_memory_mb, execution.memory_mb), (512, 512));
        assert_eq!((execution.workspace_mb, execution.shm_mb), (256, 64));
        assert_eq!(execution.max_shm_mb, rules.execution.max_shm_mb);
        assert_eq!(execution.cpus.to_bits(), 0.5f64.to_bits());
        assert_eq!(execution.timeout_seconds.to_bits(), 10f64.to_bits());
    }

    #[test]
    fn quotas_are_in_the_units_that_are_counted() {
        let mut config = Config::default();
        config.app.max_concurrent_runs = 4;
        let mut tenant = Tenant::default();
        assert_eq!(Quotas::of(&config, &tenant), Quotas::default());
        tenant.max_queued_runs = Some(10);
        tenant.cpu_seconds_per_day = Some(2);
        tenant.max_stored_mb = Some(3);
        let quotas = Quotas::of(&config, &tenant);
        assert_eq!(quotas.max_unfinished, Some(14));
        assert_eq!(quotas.cpu_microseconds_per_day, Some(2_000_000));
        assert_eq!(quotas.stored_bytes, Some(3 << 20));
        tenant.max_concurrent_runs = Some(2);
        assert_eq!(Quotas::of(&config, &tenant).max_unfinished, Some(12));
    }

    #[test]
    fn tenants_without_a_bound_share_the_queue_so_that_none_can_fill_it() {
        let mut config = Config::default();
        config.app.max_queued_runs = 97;
        config.app.max_concurrent_runs = 3;
        let weighing = |weight| Tenant {
            weight,
            ..Tenant::default()
        };
        for (name, weight) in [("alice", 1), ("bob", 3)] {
            config.tenants.insert(name.to_owned(), weighing(weight));
        }
        let shares: Vec<u32> = config
            .tenant_ids()
            .iter()
            .map(|id| Quotas::of(&config, &config.tenant(id).unwrap()))
            .map(|quotas| quotas.max_unfinished.unwrap())
            .collect();
        // Alice, bob, and the one that is always there.
        assert_eq!(shares, [20, 60, 20]);
        // Even where there are more tenants than places each can have a run.
        config.app.max_queued_runs = 0;
        config.app.max_concurrent_runs = 1;
        assert_eq!(Quotas::of(&config, &weighing(1)).max_unfinished, Some(1));
    }

    #[test]
    fn a_run_reserves_what_its_programs_may_use() {
        let mut request = crate::runs::service::testing::request();
        request.limits.cpus = 0.5;
        request.limits.timeout_seconds = 10.0;
        let long = Duration::from_secs(60);
        assert_eq!(reserved_cpu_microseconds(&request, long), 5_000_000);
        request.code = None;
        request.max_iterations = 3;
        assert_eq!(reserved_cpu_microseconds(&request, long), 20_000_000);
        let short = Duration::from_secs(20);
        assert_eq!(reserved_cpu_microseconds(&request, short), 10_000_000);
        request.limits.cpus = f64::NAN;
        assert_eq!(reserved_cpu_microseconds(&request, short), i64::MAX);
    }
}
