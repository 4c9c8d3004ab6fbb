//! The daemon and an engine that goes away: the queue is held as long as no sandbox can be made, and
//! clients who ask are told why and since when. Everything is let go by itself.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::api::{CallReport, EngineReport, ModelReport, Readiness};
use crate::orchestrator::llm::{ModelClient, ModelTotals};
use crate::runs::gate::{Gate, Held};
use crate::sandbox::Engine;
use crate::sandbox::docker::DockerEngine;
use crate::sandbox::health::{CallState, EngineHealth, Hold};
use crate::sandbox::pool::Pool;

/// How often the engine is asked whether it is there: an engine that is back is used after that, and
/// one that goes away is noticed before many runs meet it.
const PROBE_EVERY: Duration = Duration::from_secs(2);

/// How often time alone may have changed something.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long a client who asks waits for an engine that did not answer lately.
const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// Holds a gate until [`hold`] has asked the engine for the first time, so that no run that waits
/// from before is started for an engine that is away.
pub(super) fn hold_at_first(gate: &Gate) {
    gate.hold(Some(Held {
        reason: "it is being found out whether the container engine is there".to_owned(),
        since: None,
    }));
}

/// Holds the gate while the engine cannot be used, until it is stopped.
pub(super) async fn hold(engine: Arc<DockerEngine>, gate: Gate, stop: CancellationToken) {
    let probing = async {
        loop {
            sleep(PROBE_EVERY).await;
            // What it says is in the engine's health.
            drop(engine.probe().await);
        }
    };
    let holding = async {
        let mut changes = engine.changes();
        let mut is_held = false;
        loop {
            is_held = follow(engine.health().hold(), &gate, is_held);
            tokio::select! {
                // The other end is held by the engine, which is held here.
                _ = changes.changed() => {}
                () = sleep(LOOK_EVERY) => {}
            }
        }
    };
    let all = async {
        drop(engine.probe().await);
        tokio::join!(probing, holding)
    };
    stop.run_until_cancelled(all).await;
}

/// Tells whether the gate is held now; `was_held` is what was told the last time.
fn follow(hold: Option<Hold>, gate: &Gate, was_held: bool) -> bool {
    let held = hold.map(|hold| Held {
        reason: hold.reason,
        since: hold.since,
    });
    match &held {
        Some(held) if !was_held => {
            warn!(
                reason = held.reason,
                "runs wait: no sandbox can be made at the moment"
            );
        }
        None if was_held => info!("runs are started again"),
        Some(_) | None => {}
    }
    let is_held = held.is_some();
    gate.hold(held);
    is_held
}

/// Whether runs can be carried out, for the interface.
#[derive(Debug)]
pub(super) struct EngineReadiness {
    pub(super) engine: Arc<DockerEngine>,
    pub(super) image: String,
    pub(super) pool: Option<Pool>,
    pub(super) gate: Gate,
    pub(super) model: Option<ModelClient>,
}

#[async_trait]
impl Readiness for EngineReadiness {
    fn waiting_sandboxes(&self) -> usize {
        self.pool.as_ref().map_or(0, Pool::waiting)
    }

    fn engine(&self) -> EngineReport {
        report(self.engine.health())
    }

    fn model(&self) -> Option<ModelReport> {
        let ModelTotals { usage, failures } = self.model.as_ref()?.totals();
        Some(ModelReport { usage, failures })
    }

    async fn check(&self) -> Vec<String> {
        if self.engine.health().hold().is_some() {
            // It may be back in this very moment; but nobody waits for one that is not.
            drop(timeout(ASKED_AGAIN, self.engine.probe()).await);
            if let Some(hold) = self.engine.health().hold() {
                return vec![told(&hold)];
            }
        }
        let asked = async {
            self.engine.describe().await?;
            self.engine.image(&self.image).await
        };
        if let Err(error) = asked.await {
            let hold = self.engine.health().hold();
            return vec![hold.map_or_else(|| error.to_string(), |hold| told(&hold))];
        }
        self.gate.reasons()
    }
}

fn report(health: EngineHealth) -> EngineReport {
    let hold = health.hold();
    let calls = health.calls.into_iter().map(|call| CallReport {
        kind: call.kind.as_str(),
        available: call.state == CallState::Well,
        failed: call.failed,
        retried: call.retried,
        outages: call.opened,
    });
    EngineReport {
        available: hold.is_none(),
        since: hold.and_then(|hold| hold.since),
        set_aside: health.quarantine.sandboxes,
        set_aside_limit: health.max_quarantined,
        calls: calls.collect(),
    }
}

fn told(hold: &Hold) -> String {
    match hold.since {
        Some(since) => format!("{} (since {since:.0})", hold.reason),
        None => hold.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_gate_follows_the_engine_and_clients_hear_why_and_since_when() {
        let hold = Hold {
            reason: "the engine is away".to_owned(),
            since: Some(Timestamp::UNIX_EPOCH),
        };
        let gate = Gate::open();
        hold_at_first(&gate);
        assert!(gate.held().is_some());
        assert!(!follow(None, &gate, false));
        assert_eq!(gate.held(), None);
        assert!(follow(Some(hold.clone()), &gate, false));
        assert_eq!(gate.held().unwrap().reason, "the engine is away");
        assert_eq!(
            told(&hold),
            "the engine is away (since 1970-01-01T00:00:00Z)"
        );
        assert!(!follow(None, &gate, true));
        assert_eq!(gate.held(), None);
    }
}
