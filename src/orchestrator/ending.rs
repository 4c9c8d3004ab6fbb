//! The end of a program that was followed: what it left is collected and judged, and its sandbox held
//! until the result is on disk. How a sandbox itself is ended is in `stopping`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::spawn_blocking;

use super::collection::{Asking, collect};
use super::conclusion::{Gathered, conclude};
use super::conversation::{Conversation, TalkEnd};
use super::evidence;
use super::executor::Executor;
use super::following::Followed;
use super::handoff::{Kept, SoFar};
use super::stopping;
use crate::artifacts::collect::Caps;
use crate::artifacts::path::ArtifactPath;
use crate::artifacts::staging::{Attributes, StoreArtifactError};
use crate::artifacts::{Collector, Staging};
use crate::clock;
use crate::execution::cause::Stop;
use crate::execution::result::ExecutionResult;
use crate::execution::spec::{ExecutionSpec, SETUP_NAME};
use crate::fault_point::FaultPoint;
use crate::ids::ExecutionId;
use crate::receipt::Evidence;
use crate::sandbox::Sandbox;
use crate::sandbox::session::Session;
use crate::telemetry::log_chain;

/// Sandboxes whose result is not recorded yet: their supervisors hold it, too, until it is. No more
/// than there are runs going on.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldSandboxes(Arc<Mutex<HashMap<ExecutionId, Held>>>);

impl HeldSandboxes {
    fn put(&self, id: &ExecutionId, held: Held) {
        self.lock().insert(id.clone(), held);
    }

    fn take(&self, id: &ExecutionId) -> Option<Held> {
        self.lock().remove(id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ExecutionId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A sandbox in which nothing runs any more.
#[derive(Debug)]
struct Held {
    sandbox: Box<dyn Sandbox>,
    session: Session,
}

impl Executor {
    /// The result of this execution is on disk: nobody has to hold it any more.
    pub async fn settle(&self, id: &ExecutionId) {
        let held = self.held.take(id);
        if let Some(Held { sandbox, session }) = held {
            stopping::retire(sandbox, session).await;
        }
        if let Some(takeover) = &self.takeover {
            takeover.handoffs.forget(id).await;
        }
    }

    /// Collects what a program left, and makes its result.
    pub(super) async fn end(
        &self,
        spec: &ExecutionSpec,
        followed: Followed,
        talk: Conversation,
        evidence: &Evidence,
    ) -> ExecutionResult {
        let Followed {
            sandbox,
            mut session,
            staging,
            keeper,
            first,
            token: _,
            mut notes,
        } = followed;
        // First of all nothing of it runs any more; questions come after.
        let (sandbox, stop) = match &talk.end {
            TalkEnd::Reported(_) => (Some(sandbox), Stop::Confirmed),
            TalkEnd::LateAtDeadline(_) | TalkEnd::LateOnCancel | TalkEnd::Lost(_) => {
                stopping::kill(sandbox, &mut notes).await
            }
        };
        FaultPoint::BeforeCollect.reached();
        let asking = Asking {
            first,
            progress: progress(&talk),
            keeper: keeper.as_ref(),
        };
        let inputs = evidence::input_digests(evidence);
        let staging = match staging {
            Some(staging) => Ok(staging),
            None => self.stage(&spec.id).await,
        };
        let collected = match staging {
            Ok(staging) => {
                let talking = (&mut session, asking);
                self.collect(spec, talking, staging, inputs, &talk.end, &mut notes)
                    .await
            }
            Err(trouble) => {
                log_chain("artifacts could not be gathered", &trouble);
                notes.push(format!("The artifacts were lost: {trouble}."));
                Gathered::default()
            }
        };
        let saw_memory_kill = {
            let known = sandbox.as_deref();
            let unclear = known.filter(|_| !has_told_memory_kills(&talk.end));
            match unclear.map(Sandbox::memory_kill_seen) {
                Some(asked) => asked.await.ok(),
                None => None,
            }
        };
        let is_empty = matches!(&talk.end, TalkEnd::Reported(exited) if exited.survivors == 0);
        match sandbox {
            // Until the result is on disk its supervisor holds it, too.
            Some(sandbox) if is_empty => {
                notes.extend(stopping::pending_note(sandbox.as_ref()));
                self.held.put(&spec.id, Held { sandbox, session });
            }
            Some(sandbox) => notes.extend(stopping::destroy(sandbox).await),
            None => {}
        }
        let mut collected = collected;
        let staging = collected.take_staging();
        if let Some(staging) = staging {
            FaultPoint::BeforePublish.reached();
            match spawn_blocking(move || staging.publish()).await {
                Ok(Ok(())) => FaultPoint::AfterPublish.reached(),
                Ok(Err(error)) => {
                    log_chain("artifacts could not be published", &error);
                    notes.push(format!("The artifacts were lost: {error}."));
                    collected.forget();
                }
                Err(error) => notes.push(format!("The artifacts were lost: {error}.")),
            }
        }
        conclude(spec, talk, (stop, saw_memory_kill), collected, notes)
    }

    async fn collect(
        &self,
        spec: &ExecutionSpec,
        (session, asking): (&mut Session, Asking<'_>),
        staging: Staging,
        inputs: BTreeMap<String, String>,
        end: &TalkEnd,
        notes: &mut Vec<String>,
    ) -> Gathered {
        let reported = match end {
            TalkEnd::Reported(exited) if exited.survivors == 0 => true,
            TalkEnd::Reported(_)
            | TalkEnd::LateAtDeadline(_)
            | TalkEnd::LateOnCancel
            | TalkEnd::Lost(_) => false,
        };
        let staging = match store_setup(staging, spec.bash_script.as_deref()).await {
            Ok(staging) => staging,
            Err(text) => {
                notes.push(text);
                return Gathered::default();
            }
        };
        let caps = Caps {
            total_bytes: spec.limits.max_artifact_mb << 20,
            files: spec.limits.max_artifact_files,
        };
        let collector = Collector::new(staging, caps, inputs);
        if !reported {
            notes.push(
                "The files of the program were lost: its sandbox had to be destroyed before they \
                 could be collected."
                    .to_owned(),
            );
            return Gathered::from(collector.finish(false));
        }
        match collect(session, collector, &spec.limits, asking).await {
            Ok((collected, note)) => {
                notes.extend(note);
                Gathered::from(collected)
            }
            Err(trouble) => {
                notes.push(trouble.to_string());
                Gathered::default()
            }
        }
    }
}

/// All that a talk has brought, for whoever goes on with it.
pub(super) fn progress(talk: &Conversation) -> SoFar {
    let exited = match &talk.end {
        TalkEnd::Reported(exited) => Some(exited.clone()),
        TalkEnd::LateAtDeadline(_) | TalkEnd::LateOnCancel | TalkEnd::Lost(_) => None,
    };
    SoFar {
        // Known when it is put away.
        received: 0,
        stdout: Kept::of(&talk.stdout),
        stderr: Kept::of(&talk.stderr),
        exited,
    }
}

/// Whether the supervisor itself has told what the kernel killed for memory.
fn has_told_memory_kills(end: &TalkEnd) -> bool {
    match end {
        TalkEnd::Reported(exited) => exited.usage.memory_kills.is_some(),
        TalkEnd::LateAtDeadline(_) | TalkEnd::LateOnCancel | TalkEnd::Lost(_) => false,
    }
}

/// Stores the request's script beside the artifacts, before anything of the program's arrives.
async fn store_setup(staging: Staging, script: Option<&str>) -> Result<Staging, String> {
    let Some(script) = script.map(str::to_owned) else {
        return Ok(staging);
    };
    let stored = spawn_blocking(move || -> Result<Staging, StoreArtifactError> {
        if let Ok(path) = ArtifactPath::from_bytes(SETUP_NAME.as_bytes()) {
            let mut file = staging.create(&path)?;
            file.write(script.as_bytes())?;
            let now = (clock::now().as_second(), 0);
            file.finish(Attributes {
                executable: false,
                modified: now,
            })?;
        }
        Ok(staging)
    });
    match stored.await {
        Ok(Ok(staging)) => Ok(staging),
        Ok(Err(error)) => {
            log_chain("the setup script could not be stored", &error);
            Err("The artifacts were lost: the output directory cannot be written to.".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}
