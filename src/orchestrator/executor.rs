//! One program in one sandbox: prepared, followed, collected, destroyed, judged.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::collection::collect;
use super::conclusion::{Gathered, conclude, never_started};
use super::conversation::{self, TalkEnd};
use super::evidence;
use super::host_paths::{HostPaths, Redacting, redact};
use super::sandboxes::{Prepared, Sandboxes};
use super::stopping;
use super::trouble::Trouble;
use crate::artifacts::collect::Caps;
use crate::artifacts::path::ArtifactPath;
use crate::artifacts::staging::{Attributes, StoreArtifactError};
use crate::artifacts::{Collector, OutputRoot, Staging};
use crate::execution::cause::{Stop, Verdict};
use crate::execution::paths::input_file_path;
use crate::execution::result::{ExecutionResult, SandboxStart};
use crate::execution::spec::{ExecutionSpec, SETUP_NAME};
use crate::ids::ExecutionId;
use crate::receipt::Evidence;
use crate::runs::service::Observer;
use crate::sandbox::Sandbox;
use crate::sandbox::preparation::ReadySandbox;
use crate::sandbox::session::Session;
use crate::telemetry::log_chain;

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

    /// Starts the program. A sandbox that has waited may have died or frozen since it was taken: the
    /// program gets a new one then. Not any more once a sandbox was told to start it: nobody knows
    /// then whether it ran, and no program runs twice (invariant 3).
    async fn start(
        &self,
        spec: &ExecutionSpec,
        prepared: Prepared,
        cancel: &CancellationToken,
    ) -> Result<Prepared, Trouble> {
        let has_waited = prepared.sandbox_use.start != SandboxStart::Cold;
        let handing = cancel.run_until_cancelled(hand_over(spec, prepared));
        let prepared = match handing.await.ok_or(Trouble::Cancelled)? {
            Err(trouble) if has_waited => {
                log_chain(
                    "a waiting sandbox did not take the program; another is made",
                    &trouble,
                );
                let making = async { hand_over(spec, self.sandboxes.make(spec).await?).await };
                let made = cancel.run_until_cancelled(making);
                made.await.ok_or(Trouble::Cancelled)??
            }
            handed => handed?,
        };
        start(spec, prepared).await
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
            never = stopping::unthrottle(sandbox.as_ref(), &spec.limits, cancel) => match never {},
        };
        // First of all nothing of it runs any more; questions come after.
        let (sandbox, stop) = match &talk.end {
            TalkEnd::Reported(_) => (Some(sandbox), Stop::Confirmed),
            TalkEnd::LateAtDeadline(_) | TalkEnd::LateOnCancel | TalkEnd::Lost(_) => {
                stopping::kill(sandbox, &mut notes).await
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
            Some(sandbox) if is_empty => stopping::retire(sandbox, session).await,
            Some(sandbox) => stopping::destroy(sandbox).await,
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
        conclude(spec, talk, (stop, saw_memory_kill), collected, notes)
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

/// Hands everything over to the sandbox that is to run the program, or destroys it. One that has
/// waited has to show that it is still there: after the next message that could not be found out.
async fn hand_over(spec: &ExecutionSpec, mut prepared: Prepared) -> Result<Prepared, Trouble> {
    let has_waited = prepared.sandbox_use.start != SandboxStart::Cold;
    let ready = &mut prepared.ready;
    let handing = async {
        conversation::hand_over(&mut ready.session, spec).await?;
        if has_waited {
            ready.answers().await?;
        }
        Ok(())
    };
    match handing.await {
        Ok(()) => Ok(prepared),
        Err(trouble) => {
            stopping::destroy(prepared.ready.sandbox).await;
            Err(trouble)
        }
    }
}

/// Starts the program in its sandbox, or destroys that.
async fn start(spec: &ExecutionSpec, mut prepared: Prepared) -> Result<Prepared, Trouble> {
    match conversation::start(&mut prepared.ready.session, &spec.limits).await {
        Ok(()) => Ok(prepared),
        Err(trouble) => {
            stopping::destroy(prepared.ready.sandbox).await;
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

fn failed_before_start(spec: &ExecutionSpec, trouble: &Trouble) -> ExecutionResult {
    if matches!(trouble, Trouble::Cancelled) {
        info!(execution.id = %spec.id, "cancelled before the program was started");
    } else {
        log_chain("a program could not be started", trouble);
    }
    never_started(spec, trouble.verdict())
}
