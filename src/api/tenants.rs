//! Each tenant as the interface needs it: the rules for its requests, its quotas, its pace.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::body;
use super::rate_limit::{Standing, Take, Window};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::config::Config;
use crate::ids::TenantId;
use crate::runs::admission::Rules;
use crate::runs::gate::Gate;
use crate::runs::tenants::{Quota, Quotas};

/// One tenant has at most one request in so many of the connections: however many it has, and however
/// long they take, the others are answered.
const SHARE_OF_CONNECTIONS: usize = 4;

/// How long a run counts towards the pace.
const PACE_WINDOW: Duration = Duration::from_secs(60);

/// Every tenant that there is: a fixed number, so that what is counted for each is bounded.
#[derive(Debug)]
pub(super) struct Tenants(HashMap<TenantId, Arc<Tenant>>);

/// One tenant.
#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) id: TenantId,
    pub(super) rules: Arc<Rules>,
    pub(super) quotas: Quotas,
    /// What a client is told of the quota for waiting runs: the one in the configuration, or the
    /// share of the queue.
    max_queued_runs: u32,
    pace: Option<Arc<Pace>>,
    /// Requests being answered at the same time; `None` where there is only one tenant.
    requests: Option<Arc<Semaphore>>,
    most_requests: usize,
    /// What large bodies of the tenant may hold together, likewise.
    pub(super) bodies: Option<Arc<Semaphore>>,
}

/// The right to have a request answered, where there is more than one tenant.
pub(super) type RequestPlace = Option<OwnedSemaphorePermit>;

impl Tenants {
    /// The tenants of a configuration; `built_image` is used where it names no image.
    pub(super) fn new(config: &Config, built_image: &str, gate: &Gate) -> Self {
        let rules = Rules {
            gate: gate.clone(),
            ..Rules::new(config, built_image)
        };
        let has_others = config.tenant_ids().len() > 1;
        let most_requests = (config.api.max_connections / SHARE_OF_CONNECTIONS).max(1);
        let semaphore = |permits: usize| {
            let permits = permits.min(Semaphore::MAX_PERMITS);
            has_others.then(|| Arc::new(Semaphore::new(permits)))
        };
        let tenant = |id: TenantId| {
            let section = config.tenant(&id)?;
            let pace = section.runs_per_minute.map(|runs| {
                let quota = usize::try_from(runs).unwrap_or(usize::MAX);
                Arc::new(Pace::new(quota))
            });
            let quotas = Quotas::of(config, &section);
            let tenant = Tenant {
                id: id.clone(),
                rules: Arc::new(rules.for_tenant(&section)),
                max_queued_runs: section
                    .max_queued_runs
                    .or(quotas.max_unfinished)
                    .unwrap_or(config.app.max_queued_runs),
                quotas,
                pace,
                requests: semaphore(most_requests),
                most_requests,
                bodies: semaphore(body::permits_of_one(config.api.max_body_bytes)),
            };
            Some((id, Arc::new(tenant)))
        };
        Self(config.tenant_ids().into_iter().filter_map(tenant).collect())
    }

    pub(super) fn get(&self, id: &TenantId) -> Option<Arc<Tenant>> {
        self.0.get(id).map(Arc::clone)
    }
}

/// The runs of the last minute.
#[derive(Debug)]
struct Pace {
    window: Mutex<Window>,
    /// Told when it has turned out what became of a run.
    settled: Notify,
}

impl Pace {
    fn new(quota: usize) -> Self {
        Self {
            window: Mutex::new(Window::new(quota, PACE_WINDOW)),
            settled: Notify::new(),
        }
    }

    fn window(&self) -> MutexGuard<'_, Window> {
        // Nothing that holds it can leave it half changed.
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, number: u64, was_run: bool) {
        self.window().settle(number, was_run);
        self.settled.notify_waiters();
    }
}

/// A run that was counted towards the pace, until it is known whether it is one. It is if nobody says
/// otherwise: of a client that goes away the run is accepted all the same, or not.
#[derive(Debug)]
pub(super) struct Counted {
    pace: Arc<Pace>,
    number: u64,
    was_run: bool,
    standing: Standing,
}

impl Counted {
    /// Where the tenant stands with this run.
    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// It was none: it was refused, or is another one's repetition.
    pub(super) fn discount(counted: Option<Self>) {
        if let Some(mut counted) = counted {
            counted.was_run = false;
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.pace.settle(self.number, self.was_run);
    }
}

impl Tenant {
    /// A place for a request, for as long as it takes to answer it.
    ///
    /// # Errors
    ///
    /// Where the tenant stands, if all its places are taken.
    pub(super) fn place(&self) -> Result<RequestPlace, Standing> {
        let Some(requests) = &self.requests else {
            return Ok(None);
        };
        let place = Arc::clone(requests).try_acquire_owned();
        let refused = |_| Standing::requests(self.most_requests);
        place.map(Some).map_err(refused)
    }

    /// Counts a run towards the pace. `None`: the tenant has no such bound. While it is not known of
    /// others whether they are runs it is waited for that, for as long as the store takes to say so.
    ///
    /// # Errors
    ///
    /// Where the tenant stands, if it has had all the runs that it may have by now.
    pub(super) async fn count_run(&self) -> Result<Option<Counted>, Standing> {
        let Some(pace) = &self.pace else {
            return Ok(None);
        };
        loop {
            let mut settled = pin!(pace.settled.notified());
            // From here on nothing that is settled is missed.
            settled.as_mut().enable();
            let asked = pace.window().take(Instant::now());
            match asked {
                Take::Granted(number, standing) => {
                    return Ok(Some(Counted {
                        pace: Arc::clone(pace),
                        number,
                        was_run: true,
                        standing,
                    }));
                }
                Take::Refused(standing) => return Err(standing),
                Take::Unknown => settled.await,
            }
        }
    }

    /// Where the tenant stands with a quota that is used up.
    pub(super) fn standing(&self, quota: Quota, now: jiff::Timestamp) -> Standing {
        let cpu = self.quotas.cpu_microseconds_per_day.unwrap_or(0);
        let whole = |number: i64| u64::try_from(number).unwrap_or(0);
        match quota {
            Quota::Waiting => Standing::queued_runs(self.max_queued_runs),
            Quota::CpuTime => Standing::cpu_seconds(whole(cpu / 1_000_000), now),
            Quota::CpuReserved => Standing::cpu_reserved(whole(cpu / 1_000_000)),
            Quota::Storage => Standing::stored_bytes(whole(self.quotas.stored_bytes.unwrap_or(0))),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::timeout;

    use super::*;
    use crate::config::Tenant as Section;

    const BOUND: Duration = Duration::from_secs(10);

    fn with_one_run_per_minute() -> Tenants {
        let mut config = Config::default();
        let narrow = Section {
            max_memory_mb: Some(512),
            runs_per_minute: Some(1),
            ..Section::default()
        };
        config.tenants.insert("alice".to_owned(), narrow);
        Tenants::new(&config, "built:1", &Gate::open())
    }

    #[tokio::test]
    async fn each_tenant_has_rules_and_a_pace_of_its_own() {
        let tenants = with_one_run_per_minute();
        let alice = tenants.get(&TenantId::parse("alice").unwrap()).unwrap();
        let default = tenants.get(&TenantId::default()).unwrap();
        assert!(tenants.get(&TenantId::parse("bob").unwrap()).is_none());
        assert_eq!(alice.rules.execution.max_memory_mb, 512);
        assert_eq!(default.rules.execution.max_memory_mb, 16_384);
        for _ in 0..3 {
            assert!(default.count_run().await.unwrap().is_none());
        }
        Counted::discount(alice.count_run().await.unwrap());
        drop(alice.count_run().await.unwrap());
        assert!(alice.count_run().await.is_err());
    }

    #[tokio::test]
    async fn the_pace_waits_for_what_may_become_no_run() {
        let tenants = with_one_run_per_minute();
        let alice = tenants.get(&TenantId::parse("alice").unwrap()).unwrap();
        let first = alice.count_run().await.unwrap();
        let mut second = Box::pin(alice.count_run());
        let mut third = Box::pin(alice.count_run());
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        Counted::discount(first);
        let second = timeout(BOUND, second).await.unwrap().unwrap().unwrap();
        assert!(third.as_mut().now_or_never().is_none());
        // Its client went away.
        drop(second);
        assert!(timeout(BOUND, third).await.unwrap().is_err());
    }
}
