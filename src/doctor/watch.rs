//! The doctor beside a daemon: keeps the gate of runs closed until what is mandatory was seen on
//! this very engine, and again when the engine becomes another one.
//!
//! In the background and bounded, so that the daemon answers at once. What cannot be examined, such
//! as an engine that is away, is tried again; so is, less often, what was examined and found
//! missing: a deadline may have been missed because the host was too busy.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::controls::{Score, missing};
use super::examine::{Depth, Examiner};
use super::{DoctorError, facts::MachineFacts};
use crate::execution::runtime::{GVISOR, Offered};
use crate::runs::gate::Gate;
use crate::sandbox::survey::{EngineFacts, EngineIdentity};
use crate::telemetry::Chain;

/// Pause between two looks at an engine that is known. Older engines start a program to answer.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Pause before what could not be examined is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(3);

/// Pause before a host that was found unfit is examined again.
const UNFIT_AGAIN: Duration = Duration::from_secs(60);

/// What clients are told before the first examination.
pub const NOT_YET: &str =
    "the sandboxes of this host have not been examined yet: this takes some seconds";

/// What the daemon wants of its doctor.
#[derive(Debug, Clone)]
pub struct WatchSettings {
    /// Whether sandboxes are examined at all, or only the engine is asked for its runtimes.
    pub examine: bool,
    /// The runtime that runs have by default; `None` is the engine's.
    pub runtime: Option<String>,
}

/// Watches until it is stopped.
pub async fn watch(
    examiner: Examiner,
    settings: WatchSettings,
    gate: Gate,
    stop: CancellationToken,
) {
    if !settings.examine {
        warn!(
            "doctor.at_start is off: runs are taken on a host whose sandboxes were not examined; \
             call `fumehood doctor` yourself"
        );
    }
    let mut known: Option<EngineIdentity> = None;
    let watching = async {
        loop {
            let pause = look(&examiner, &settings, &gate, &mut known).await;
            sleep(pause).await;
        }
    };
    stop.run_until_cancelled(watching).await;
}

/// One look; gives the pause until the next.
async fn look(
    examiner: &Examiner,
    settings: &WatchSettings,
    gate: &Gate,
    known: &mut Option<EngineIdentity>,
) -> Duration {
    let engine = match examiner.engine.survey().await {
        Ok(engine) => engine,
        Err(error) => {
            // An engine that was good and is away for a moment holds the queue by itself, and is
            // looked at again when it is back.
            if known.is_none() && settings.examine {
                gate.close(vec![error.to_string()]);
            }
            return RETRY_AFTER;
        }
    };
    let identity = engine.identity();
    if known.as_ref() == Some(&identity) {
        return LOOK_EVERY;
    }
    if !settings.examine {
        let runtimes = Examiner::runtimes(&engine, settings.runtime.as_deref());
        gate.admit(offered(&engine, runtimes));
        *known = Some(identity);
        return LOOK_EVERY;
    }
    if known.take().is_some() {
        warn!("the container engine is another one than before: its sandboxes are examined anew");
        gate.pend(NOT_YET);
    }
    match examine(examiner, settings, &engine).await {
        Ok(Findings::Fit(usual)) => {
            info!(
                runtime = usual,
                "every mandatory control holds: runs are taken"
            );
            let mut runtimes = vec![usual];
            gate.admit(offered(&engine, runtimes.clone()));
            // Slower, and nobody else has to wait for it.
            if let Some(stronger) = stronger(examiner, &engine, &runtimes).await {
                info!(
                    runtime = stronger,
                    "a runtime is offered beyond the usual one"
                );
                runtimes.push(stronger);
                gate.admit(offered(&engine, runtimes));
            }
            *known = Some(identity);
            LOOK_EVERY
        }
        Ok(Findings::Unfit(reasons)) => {
            // Found often, said once.
            if gate.reasons() != reasons {
                error!(?reasons, "mandatory controls are missing: no run is taken");
                gate.close(reasons);
            }
            UNFIT_AGAIN
        }
        Err(error) => {
            let reasons = vec![format!("the sandboxes could not be examined: {error}")];
            // Tried often, said once.
            if gate.reasons() != reasons {
                warn!(error = %Chain(&error), "the sandboxes of this host could not be examined");
                gate.close(reasons);
            }
            RETRY_AFTER
        }
    }
}

enum Findings {
    /// This runtime, the usual one, has everything that is mandatory.
    Fit(String),
    /// It has not: why.
    Unfit(Vec<String>),
}

/// Examines the usual runtime.
async fn examine(
    examiner: &Examiner,
    settings: &WatchSettings,
    engine: &EngineFacts,
) -> Result<Findings, DoctorError> {
    let machine = examiner.machine().await?;
    let usual = settings.runtime.as_ref().unwrap_or(&engine.default_runtime);
    if usual.is_empty() {
        return Err(DoctorError::NoRuntime);
    }
    let lacking = reasons(&scores(examiner, usual, &machine).await?);
    Ok(if lacking.is_empty() {
        Findings::Fit(usual.clone())
    } else {
        Findings::Unfit(lacking)
    })
}

/// Examines the runtime that a request may ask for beyond the usual one, if the engine has it. What
/// it lacks keeps it from being offered, and nothing else.
async fn stronger(
    examiner: &Examiner,
    engine: &EngineFacts,
    examined: &[String],
) -> Option<String> {
    let name = GVISOR.to_owned();
    if examined.contains(&name) || !engine.runtimes.contains(&name) {
        return None;
    }
    let found = async {
        let machine = examiner.machine().await?;
        scores(examiner, &name, &machine).await
    };
    match found.await {
        Ok(scores) => {
            let lacking = reasons(&scores);
            if lacking.is_empty() {
                return Some(name);
            }
            warn!(
                runtime = name,
                ?lacking,
                "a runtime is not offered: it lacks protections"
            );
        }
        Err(error) => {
            warn!(
                runtime = name, error = %Chain(&error),
                "a runtime is not offered: its sandboxes could not be examined"
            );
        }
    }
    None
}

async fn scores(
    examiner: &Examiner,
    runtime: &str,
    machine: &MachineFacts,
) -> Result<Vec<Score>, DoctorError> {
    examiner.runtime(runtime, Depth::Mandatory, machine).await
}

/// What clients are told of a host that is not fit: rows and controls, nothing of the host.
fn reasons(scores: &[Score]) -> Vec<String> {
    missing(scores)
        .map(|score| {
            format!(
                "a mandatory protection is missing: {} (row {}); `fumehood doctor` on the host \
                 tells more",
                score.control, score.number
            )
        })
        .collect()
}

fn offered(engine: &EngineFacts, runtimes: Vec<String>) -> Offered {
    let default = Some(engine.default_runtime.clone()).filter(|name| !name.is_empty());
    Offered { runtimes, default }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::controls::judge_sandbox;
    use crate::doctor::controls::testing::runc;

    #[test]
    fn clients_are_told_which_control_is_missing_and_nothing_of_the_host() {
        assert_eq!(reasons(&judge_sandbox(&runc())), Vec::<String>::new());
        let mut facts = runc();
        facts.seen.identity.cgroups = vec!["/docker/0123".to_owned()];
        let told = reasons(&judge_sandbox(&facts));
        assert_eq!(told.len(), 1);
        assert!(
            told[0].contains("private view of control groups (row 8)"),
            "{told:?}"
        );
        assert!(!told[0].contains('/'), "{told:?}");
    }
}
