//! Retention: what is over is removed by age, count and bytes of its tenant, in small steps.
//!
//! Owns the order of things. What goes is decided by [`plan::plan`], which is pure; the rows go first, in
//! one transaction that also writes down which artifacts have to go; then those; then the note of
//! them. Whenever the daemon dies, the next pass goes on from the notes. Between two steps everybody
//! else has the store to itself.

pub mod plan;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use self::plan::{Bounds, Kept, Reason, Totals, plan};
use super::store::StoreError;
use super::store::retained::Retained;
use crate::config::Config;
use crate::ids::{ExecutionId, TenantId};

/// Runs removed in one transaction: as long as that takes nobody else writes.
pub const STEP_RUNS: u32 = 16;

/// Notes of artifacts that are read at a time.
const STEP_REMOVALS: u32 = 64;

/// Pause after each step of the daemon: removing takes a small part of the disk's time.
const STEP_PAUSE: Duration = Duration::from_millis(200);

/// How long removing the artifacts of one execution may take.
const REMOVE_LIMIT: Duration = Duration::from_secs(300);

/// Removes artifacts. Implemented where they are published.
#[async_trait]
pub trait Remover: Send + Sync + std::fmt::Debug {
    /// Removes what an execution has published, durably. Success means that there is nothing.
    async fn remove(&self, execution: &ExecutionId) -> std::io::Result<()>;
}

/// What is kept of whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Of a tenant that has no rules of its own.
    pub all: Bounds,
    /// Of the others.
    pub own: HashMap<TenantId, Bounds>,
}

impl Rules {
    /// The rules that a configuration gives.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let retention = &config.retention;
        let days = |days: u64| Duration::from_secs(days.saturating_mul(86_400));
        let bytes = |mib: u64| mib.saturating_mul(1 << 20);
        let all = Bounds {
            age: retention.max_age_days.map(days),
            runs: retention.max_runs,
            bytes: retention.max_mb.map(bytes),
            fresh: Duration::from_secs(retention.min_age_minutes.saturating_mul(60)),
        };
        let own = config.tenants.iter().filter_map(|(name, tenant)| {
            let bounds = Bounds {
                age: tenant.retention_max_age_days.map(days).or(all.age),
                runs: tenant.retention_max_runs.or(all.runs),
                bytes: tenant.retention_max_mb.map(bytes).or(all.bytes),
                fresh: all.fresh,
            };
            Some((TenantId::parse(name)?, bounds))
        });
        Self {
            all,
            own: own.collect(),
        }
    }

    /// What is kept of a tenant, configured or not.
    #[must_use]
    pub fn bounds(&self, tenant: &TenantId) -> Bounds {
        self.own.get(tenant).copied().unwrap_or(self.all)
    }
}

/// A run that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Whose it was.
    pub tenant: TenantId,
    /// What it was.
    pub run: Kept,
    /// Why it went.
    pub reason: Reason,
}

/// Who is told of each run that has gone, after its rows have and before its artifacts do.
pub type Tell<'t> = &'t mut (dyn FnMut(Gone) + Send);

/// What a pass has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Runs that are gone.
    pub runs: u64,
    /// What was kept of them, as it was counted.
    pub bytes: u64,
    /// Executions whose artifacts are gone.
    pub executions: u64,
    /// Executions whose artifacts could not be removed; the next pass tries again.
    pub left: u64,
}

/// Removes what the rules do not keep.
#[derive(Debug)]
pub struct Retention {
    store: Arc<dyn Retained>,
    remover: Arc<dyn Remover>,
    rules: Rules,
    pause: Duration,
}

impl Retention {
    /// Retention for a daemon, with pauses.
    #[must_use]
    pub fn new(store: Arc<dyn Retained>, remover: Arc<dyn Remover>, rules: Rules) -> Self {
        Self {
            store,
            remover,
            rules,
            pause: STEP_PAUSE,
        }
    }

    /// Without pauses: nobody else is there.
    #[must_use]
    pub fn without_pauses(self) -> Self {
        Self {
            pause: Duration::ZERO,
            ..self
        }
    }

    /// A pass every `period`, the first one at once, until `stop` is cancelled.
    pub async fn follow(&self, period: Duration, stop: CancellationToken) {
        loop {
            match self.pass(&stop, &mut |_| {}).await {
                Ok(Done {
                    runs: 0,
                    executions: 0,
                    left: 0,
                    ..
                }) => {}
                Ok(done) => tracing::info!(
                    runs = done.runs,
                    bytes = done.bytes,
                    executions = done.executions,
                    left = done.left,
                    "What is kept no longer was removed"
                ),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "What is kept no longer could not be removed; the next pass tries again"
                ),
            }
            if stop.run_until_cancelled(sleep(period)).await.is_none() {
                return;
            }
        }
    }

    /// Removes all that goes by now, and tells of each run. Ends early, between two steps, once `stop` is
    /// cancelled.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store fails. Artifacts that cannot be removed are no error.
    pub async fn pass(&self, stop: &CancellationToken, tell: Tell<'_>) -> Result<Done, StoreError> {
        let mut done = Done::default();
        self.store.note_time().await?;
        // What an earlier pass left, perhaps of a daemon that was killed.
        self.clear(&mut done, stop).await?;
        for tenant in self.store.kept_tenants().await? {
            let bounds = self.rules.bounds(&tenant);
            if !bounds.are_set() {
                continue;
            }
            // Counted once: what ends meanwhile is the next pass's.
            let mut totals = if bounds.need_totals() {
                self.store.kept_totals(&tenant).await?
            } else {
                Totals::default()
            };
            while !stop.is_cancelled() {
                let gone = self.step(&tenant, &bounds, &mut totals).await?;
                if gone.is_empty() {
                    break;
                }
                for (run, reason) in gone {
                    done.runs += 1;
                    done.bytes = done.bytes.saturating_add(run.bytes);
                    tell(Gone {
                        tenant: tenant.clone(),
                        run,
                        reason,
                    });
                }
                self.clear(&mut done, stop).await?;
                self.rest(stop).await;
            }
        }
        Ok(done)
    }

    /// Removes a few runs of a tenant; gives those that are gone. One that has to stay, because it may
    /// still have a sandbox, is kept besides those that are to be kept, and holds up nothing else.
    async fn step(
        &self,
        tenant: &TenantId,
        bounds: &Bounds,
        totals: &mut Totals,
    ) -> Result<Vec<(Kept, Reason)>, StoreError> {
        let oldest = self.store.kept_oldest(tenant, STEP_RUNS).await?;
        let going = plan(bounds, *totals, &oldest);
        if going.is_empty() {
            return Ok(going);
        }
        let sequences = going.iter().map(|(run, _)| run.sequence).collect();
        let removed = self.store.remove(sequences).await?;
        let gone = going
            .into_iter()
            .filter(|(run, _)| removed.contains(&run.run));
        let gone: Vec<_> = gone.collect();
        for (run, reason) in &gone {
            tracing::debug!(
                run.id = %run.run, %tenant, reason = reason.as_str(),
                "A run is kept no longer"
            );
            totals.runs = totals.runs.saturating_sub(1);
            totals.bytes = totals.bytes.saturating_sub(run.bytes);
        }
        Ok(gone)
    }

    /// Removes the artifacts that are noted as to go.
    async fn clear(&self, done: &mut Done, stop: &CancellationToken) -> Result<(), StoreError> {
        let mut after: Option<ExecutionId> = None;
        let mut left = 0;
        loop {
            let noted = self.store.removals(after.as_ref(), STEP_REMOVALS).await?;
            let Some(last) = noted.last().cloned() else {
                break;
            };
            for execution in noted {
                if stop.is_cancelled() {
                    return Ok(());
                }
                if self.remove(&execution).await {
                    self.store.removed(vec![execution]).await?;
                    done.executions += 1;
                } else {
                    left += 1;
                }
            }
            after = Some(last);
        }
        done.left = left;
        Ok(())
    }

    async fn remove(&self, execution: &ExecutionId) -> bool {
        match timeout(REMOVE_LIMIT, self.remover.remove(execution)).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(
                    execution.id = %execution, %error,
                    "Artifacts that are kept no longer cannot be removed: check app.output_root"
                );
                false
            }
            Err(_elapsed) => {
                tracing::warn!(
                    execution.id = %execution, limit_seconds = REMOVE_LIMIT.as_secs(),
                    "Artifacts that are kept no longer were not removed in time"
                );
                false
            }
        }
    }

    async fn rest(&self, stop: &CancellationToken) {
        if !self.pause.is_zero() {
            stop.run_until_cancelled(sleep(self.pause)).await;
        }
    }
}

#[cfg(test)]
mod tests;
