//! What earlier daemons of this identity left on the engine: swept at the start, and looked for from
//! time to time after it. A creation that a daemon asked for when it died can reach the engine minutes
//! later.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::ids::ExecutionId;
use crate::orchestrator::LeftExecution;
use crate::runs::store::Store;
use crate::sandbox::Engine as _;
use crate::sandbox::docker::DockerEngine;
use crate::sandbox::engine::Leftover;
use crate::telemetry::Chain;

/// How long the daemon waits for the engine when it puts things in order at its start.
const SWEEP_BOUND: Duration = Duration::from_secs(60);

/// The pause between two looks for what came after the start.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Destroys what processes of this identity left on the engine, except for what is taken over; the
/// caller sees to it that none of them is at work. Without the engine that has to wait for the next
/// start.
pub async fn sweep(engine: &DockerEngine, taken_over: &[LeftExecution]) {
    let sweeping = async {
        let leftovers = match engine.leftovers().await {
            Ok(leftovers) => leftovers,
            Err(error) => {
                warn!(error = %Chain(&error), "the engine cannot be asked for leftovers");
                return;
            }
        };
        let is_taken_over =
            |leftover: &&Leftover| taken_over.iter().any(|left| left.id == leftover.execution);
        for leftover in leftovers.iter().filter(|leftover| !is_taken_over(leftover)) {
            match engine.destroy(&leftover.execution).await {
                Ok(()) => info!(execution.id = %leftover.execution, "removed a leftover sandbox"),
                Err(error) => {
                    warn!(execution.id = %leftover.execution, error = %Chain(&error), "a leftover sandbox stays");
                }
            }
        }
    };
    if timeout(SWEEP_BOUND, sweeping).await.is_err() {
        warn!("removing leftovers took too long; the rest stays until the next start");
    }
}

/// Looks again and again, until it is stopped. What this process made is not touched, and neither is what
/// is open in the store: a run may be going on with it.
pub(super) async fn follow(
    engine: Arc<DockerEngine>,
    store: Arc<dyn Store>,
    stop: CancellationToken,
) {
    let looking = async {
        let mut sightings = Sightings::default();
        loop {
            sleep(LOOK_EVERY).await;
            let sweeping = async {
                let strange = strangers(&engine, store.as_ref()).await;
                for execution in sightings.due(strange) {
                    match engine.destroy(&execution).await {
                        Ok(()) => {
                            info!(execution.id = %execution, "removed a sandbox that an earlier daemon had asked for");
                        }
                        Err(error) => {
                            warn!(execution.id = %execution, error = %Chain(&error), "a leftover sandbox stays");
                        }
                    }
                }
            };
            if timeout(SWEEP_BOUND, sweeping).await.is_err() {
                warn!("removing leftovers took too long; the rest stays until the next time");
            }
        }
    };
    stop.run_until_cancelled(looking).await;
}

/// Sandboxes of this identity that nobody knows of. None if that cannot be found out now.
async fn strangers(engine: &DockerEngine, store: &dyn Store) -> BTreeSet<ExecutionId> {
    // In this order: what was open when it was listed may be over since, and never the other way round.
    let Ok(leftovers) = engine.leftovers().await else {
        return BTreeSet::new();
    };
    let Ok(open) = store.open_executions().await else {
        return BTreeSet::new();
    };
    let others = leftovers.into_iter().filter(|leftover| !leftover.is_ours);
    let others = others.map(|leftover| leftover.execution);
    others
        .filter(|execution| open.iter().all(|open| open.id != *execution))
        .collect()
}

/// What was strange the last time. Only what is so twice is removed: what has just ended may be about to
/// be removed by whoever followed it.
#[derive(Debug, Default)]
struct Sightings(BTreeSet<ExecutionId>);

impl Sightings {
    fn due(&mut self, strange: BTreeSet<ExecutionId>) -> Vec<ExecutionId> {
        let due = strange.intersection(&self.0).cloned().collect();
        self.0 = strange;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_strange_twice_in_a_row_is_removed() {
        let [a, b] = [(); 2].map(|()| ExecutionId::random());
        let set =
            |ids: &[&ExecutionId]| ids.iter().map(|id| (*id).clone()).collect::<BTreeSet<_>>();
        let mut sightings = Sightings::default();
        assert_eq!(sightings.due(set(&[&a])), []);
        assert_eq!(sightings.due(set(&[&a, &b])), std::slice::from_ref(&a));
        assert_eq!(sightings.due(set(&[])), []);
        assert_eq!(sightings.due(set(&[&b])), [], "not in a row");
        assert_eq!(sightings.due(set(&[&b])), [b]);
    }
}
