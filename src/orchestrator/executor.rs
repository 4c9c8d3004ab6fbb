//! One program in one sandbox: prepared, followed, collected, destroyed, judged.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::collection::collect;
use super::conclusion::{Gathered, conclude, never_started};
use super::conversation::{self, TalkEnd};
use super::evidence;
use super::host_paths::{HostPaths, Redacting, redact};
use super::sandboxes::{Prepared, Sandboxes};
use super::trouble::Trouble;
use crate::artifacts::collect::Caps;
use crate::artifacts::path::ArtifactPath;
use crate::artifacts::staging::{Attributes, StoreArtifactError};
use crate::artifacts::{Collector, OutputRoot, Staging};
use crate::execution::cause::Verdict;
use crate::execution::paths::input_file_path;
use crate::execution::result::{ExecutionResult, SandboxStart};
use crate::execution::spec::{ExecutionSpec, Limits, SETUP_NAME};
use crate::ids::ExecutionId;
use crate::receipt::Evidence;
use crate::runs::service::Observer;
use crate::sandbox::preparation::ReadySandbox;
use crate::sandbox::session::Session;
use crate::sandbox::{EngineError, Sandbox};
use crate::telemetry::log_chain;

/// What a supervisor needs for the end of a program if it gets its turns.
const UNTHROTTLE_AFTER: Duration = Duration::from_millis(100);

/// For a supervisor to take the last word.
const LEAVE_BOUND: Duration = Duration::from_secs(1);

/// Runs programs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Executor {
    sandboxes: Sandboxes,
    outputs: OutputRoot,
    host_paths: HostPaths,
}

/// Who ends a program early, and who is told what it does.
#[derive(Debug, Clone, Copy)]
struct Talk<'a> {
    cancel: &'a CancellationToken,
    observer: &'a dyn Observer,
}

/// An execution that is over.
#[derive(Debug)]
pub struct Executed {
    /// How it ended.
    pub result: ExecutionResult,
    /// What it was made from and of.
    pub evidence: Evidence,
}

impl Executor {
    /// An executor that publishes artifacts under `outputs` and takes `host_paths` out of what
    /// programs show.
    #[must_use]
    pub fn new(sandboxes: Sandboxes, outputs: OutputRoot, host_paths: HostPaths) -> Self {
        Self {
            sandboxes,
            outputs,
            host_paths,
        }
    }

    /// Where an execution's artifacts are published.
    #[must_use]
    pub fn outputs(&self) -> &OutputRoot {
        &self.outputs
    }

    /// Keeps a waiting sandbox for an execution like this one, if there is one, and gives the id
    /// that the execution has to have then. To be called before it is written down; never waits.
    #[must_use]
    pub fn reserve(&self, spec: ExecutionSpec) -> ExecutionId {
        self.sandboxes.reserve(spec)
    }

    /// How many executions can be expected usefully.
    #[must_use]
    pub fn looks_ahead(&self) -> usize {
        self.sandboxes.looks_ahead()
    }

    /// Executions like these are next, instead of those that were expected before.
    pub fn expect(&self, specs: &[ExecutionSpec]) {
        self.sandboxes.expect(specs);
    }

    /// Gives up what was kept for this execution.
    pub fn release(&self, id: &ExecutionId) {
        self.sandboxes.release(id);
    }

    /// Runs one program to its end. Never fails: whatever happens is in the result.
    pub async fn execute(
        &self,
        spec: &ExecutionSpec,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Executed {
        let mut evidence = evidence::of(spec);
        let dataset = spec.dataset.as_ref().map(|pin| pin.path.as_path());
        let redaction = self.host_paths.redaction(dataset);
        let observer = Redacting::new(observer, &redaction);
        let ending = self.execute_knowing(spec, cancel, &observer, &mut evidence);
        let mut result = ending.await;
        observer.finish();
        redact(&mut result, &redaction);
        Executed { result, evidence }
    }

    /// Adds to the evidence what turns out on the way.
    async fn execute_knowing(
        &self,
        spec: &ExecutionSpec,
        cancel: &CancellationToken,
        observer: &dyn Observer,
        evidence: &mut Evidence,
    ) -> ExecutionResult {
        if let Some(reason) = refusal(spec) {
            self.sandboxes.release(&spec.id);
            return never_started(spec, Verdict::refused(reason));
        }
        let _running = self.sandboxes.running();
        let preparing = cancel.run_until_cancelled(self.prepare(spec));
        let (prepared, staging) = match preparing.await {
            Some(Ok(prepared)) => prepared,
            Some(Err(trouble)) => return failed_before_start(spec, &trouble),
            None => {
                self.sandboxes.release(&spec.id);
                return failed_before_start(spec, &Trouble::Cancelled);
            }
        };
        let mut prepared = match self.start(spec, prepared, cancel).await {
            Ok(prepared) => prepared,
            Err(trouble) => return failed_before_start(spec, &trouble),
        };
        let sandbox_use = prepared.sandbox_use;
        evidence.isolation = Some(prepared.ready.isolation.clone());
        if let Some(dataset) = &mut evidence.dataset {
            dataset.listing = prepared.dataset.take();
        }
        let talk = Talk { cancel, observer };
        let mut result = self.run(spec, prepared, staging, talk, evidence).await;
        result.sandbox = Some(sandbox_use);
        result
    }

    async fn prepare(&self, spec: &ExecutionSpec) -> Result<(Prepared, Staging), Trouble> {
        tokio::try_join!(self.sandboxes.prepare(spec), self.stage(&spec.id))
    }

    async fn stage(&self, id: &ExecutionId) -> Result<Staging, Trouble> {
        let (outputs, id) = (self.outputs.clone(), id.clone());
        Ok(spawn_blocking(move || outputs.stage(&id)).await??)
    }

    /// Starts the program. A sandbox that has waited may have died or frozen since it was taken:
    /// the program gets a new one then, and what may have run of it is thrown away unseen.
    async fn start(
        &self,
        spec: &ExecutionSpec,
        prepared: Prepared,
        cancel: &CancellationToken,
    ) -> Result<Prepared, Trouble> {
        let has_waited = prepared.sandbox_use.start != SandboxStart::Cold;
        let trouble = match start(spec, prepared).await {
            Err(trouble) if has_waited => trouble,
            outcome => return outcome,
        };
        log_chain(
            "a waiting sandbox did not start the program; another is made",
            &trouble,
        );
        let making = cancel.run_until_cancelled(self.sandboxes.make(spec));
        start(spec, making.await.ok_or(Trouble::Cancelled)??).await
    }

    /// Follows a program that was started.
    async fn run(
        &self,
        spec: &ExecutionSpec,
        prepared: Prepared,
        staging: Staging,
        talk: Talk<'_>,
        evidence: &Evidence,
    ) -> ExecutionResult {
        let Prepared {
            ready:
                ReadySandbox {
                    sandbox,
                    mut session,
                    ..
                },
            mut notes,
            sandbox_use: _,
            dataset: _,
        } = prepared;
        let Talk { cancel, observer } = talk;
        let talk = tokio::select! {
            talk = conversation::follow(&mut session, &spec.limits, cancel, observer) => talk,
            never = unthrottle_at_the_end(sandbox.as_ref(), &spec.limits, cancel) => match never {},
        };
        // First of all nothing of it runs any more; questions come after.
        let sandbox = match &talk.end {
            TalkEnd::Reported(_) => Some(sandbox),
            TalkEnd::LateAtDeadline(_) | TalkEnd::LateOnCancel | TalkEnd::Lost(_) => {
                let (sandbox, note) = kill(sandbox).await;
                notes.extend(note);
                sandbox
            }
        };
        let inputs = evidence::input_digests(evidence);
        let collected = self
            .collect(spec, &mut session, staging, inputs, &talk.end, &mut notes)
            .await;
        let saw_memory_kill = {
            let known = sandbox.as_deref();
            let unclear = known.filter(|_| !has_told_memory_kills(&talk.end));
            match unclear.map(Sandbox::memory_kill_seen) {
                Some(asked) => asked.await.ok(),
                None => None,
            }
        };
        let is_empty = matches!(&talk.end, TalkEnd::Reported(exited) if exited.survivors == 0);
        notes.extend(match sandbox {
            Some(sandbox) if is_empty => retire(sandbox, session).await,
            Some(sandbox) => destroy(sandbox).await,
            None => None,
        });
        let mut collected = collected;
        let staging = collected.take_staging();
        if let Some(staging) = staging {
            match spawn_blocking(move || staging.publish()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    log_chain("artifacts could not be published", &error);
                    notes.push(format!("The artifacts were lost: {error}."));
                    collected.forget();
                }
                Err(error) => notes.push(format!("The artifacts were lost: {error}.")),
            }
        }
        conclude(spec, talk, saw_memory_kill, collected, notes)
    }

    async fn collect(
        &self,
        spec: &ExecutionSpec,
        session: &mut Session,
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
        match collect(session, collector, &spec.limits).await {
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

/// Gives the supervisor of a program that is to end a turn, if it has not ended it at once.
async fn unthrottle_at_the_end(
    sandbox: &dyn Sandbox,
    limits: &Limits,
    cancel: &CancellationToken,
) -> Infallible {
    let wall = Duration::try_from_secs_f64(limits.timeout_seconds).unwrap_or(Duration::MAX);
    drop(timeout(wall, cancel.cancelled()).await);
    sleep(UNTHROTTLE_AFTER).await;
    if let Err(error) = sandbox.unthrottle().await {
        log_chain("a sandbox keeps its share of the CPU to its end", &error);
    }
    pending().await
}

/// Starts the program in its sandbox, or destroys that.
async fn start(spec: &ExecutionSpec, mut prepared: Prepared) -> Result<Prepared, Trouble> {
    match conversation::start(&mut prepared.ready.session, spec).await {
        Ok(()) => Ok(prepared),
        Err(trouble) => {
            destroy(prepared.ready.sandbox).await;
            Err(trouble)
        }
    }
}

/// Why a program is not even tried (contract sections 2.2 and 2.3).
fn refusal(spec: &ExecutionSpec) -> Option<String> {
    if spec.code.trim().is_empty() {
        return Some("Code artifact is empty.".to_owned());
    }
    // The interpreter may stop reading there and run half of the program.
    if spec.code.contains('\0') {
        return Some("Code artifact contains a NUL character.".to_owned());
    }
    let mut names = spec.input_files.keys();
    names
        .find_map(|name| input_file_path(name).err())
        .map(|error| error.to_string())
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
            let now = (Timestamp::now().as_second(), 0);
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

/// Whether the supervisor itself has told what the kernel killed for memory.
fn has_told_memory_kills(end: &TalkEnd) -> bool {
    match end {
        TalkEnd::Reported(exited) => exited.usage.memory_kills.is_some(),
        TalkEnd::LateAtDeadline(_) | TalkEnd::LateOnCancel | TalkEnd::Lost(_) => false,
    }
}

/// Ends everything in a sandbox. One whose end is not confirmed is nobody's any more: an engine that
/// does not do that in time would not answer questions about it either. Then there is a note.
async fn kill(sandbox: Box<dyn Sandbox>) -> (Option<Box<dyn Sandbox>>, Option<String>) {
    let Err(error) = sandbox.kill().await else {
        return (Some(sandbox), None);
    };
    log_chain("the end of a sandbox was not confirmed", &error);
    sandbox.quarantine();
    let note = "Clean-up is pending: the container engine did not confirm the end of the sandbox, \
                which is set aside until it does.";
    (None, Some(note.to_owned()))
}

/// Destroys a sandbox; a note if that has to be done later.
async fn destroy(sandbox: Box<dyn Sandbox>) -> Option<String> {
    removal_note(sandbox.destroy().await)
}

/// Has a sandbox removed in which nothing runs any more: its supervisor leaves when it hears that
/// everything has arrived, and the rest is for the engine to do in its own time.
async fn retire(sandbox: Box<dyn Sandbox>, mut session: Session) -> Option<String> {
    match timeout(LEAVE_BOUND, session.acknowledge_all()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log_chain("a supervisor could not be told to leave", &error),
        Err(_) => warn!("a supervisor does not listen any more"),
    }
    removal_note(sandbox.retire().await)
}

fn removal_note(removed: Result<(), EngineError>) -> Option<String> {
    match removed {
        Ok(()) => None,
        Err(error) => {
            log_chain("a sandbox could not be removed at once; it will be", &error);
            Some(
                "Clean-up is pending: the container engine did not remove the sandbox at once."
                    .to_owned(),
            )
        }
    }
}

fn failed_before_start(spec: &ExecutionSpec, trouble: &Trouble) -> ExecutionResult {
    if matches!(trouble, Trouble::Cancelled) {
        info!(execution.id = %spec.id, "cancelled before the program was started");
    } else {
        log_chain("a program could not be started", trouble);
    }
    never_started(spec, trouble.verdict())
}
