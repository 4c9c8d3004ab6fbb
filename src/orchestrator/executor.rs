//! One program in one sandbox: prepared, followed, collected, destroyed, judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::collection::collect;
use super::conclusion::{Gathered, conclude, never_started};
use super::conversation::{self, TalkEnd};
use super::trouble::Trouble;
use crate::artifacts::collect::Caps;
use crate::artifacts::path::ArtifactPath;
use crate::artifacts::staging::{Attributes, StoreArtifactError};
use crate::artifacts::{Collector, OutputRoot, Staging};
use crate::execution::cause::Verdict;
use crate::execution::paths::input_file_path;
use crate::execution::result::ExecutionResult;
use crate::execution::spec::{DatasetPin, ExecutionSpec, SETUP_NAME};
use crate::runs::dataset_contents::{self, Scan};
use crate::runs::dataset_path;
use crate::runs::service::Observer;
use crate::sandbox::session::Session;
use crate::sandbox::slots::{Slot, Slots};
use crate::sandbox::template::Template;
use crate::sandbox::{Engine, Sandbox, check};
use crate::telemetry::log_chain;

/// Runs programs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Executor {
    engine: Arc<dyn Engine>,
    outputs: OutputRoot,
    slots: Slots,
}

/// A sandbox whose supervisor is ready, and the place for what it will leave.
struct Prepared {
    sandbox: Box<dyn Sandbox>,
    session: Session,
    staging: Staging,
    /// What deserves a warning already.
    notes: Vec<String>,
}

impl Executor {
    /// An executor on `engine` that publishes artifacts under `outputs`.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, outputs: OutputRoot, slots: Slots) -> Self {
        Self {
            engine,
            outputs,
            slots,
        }
    }

    /// Where an execution's artifacts are published.
    #[must_use]
    pub fn outputs(&self) -> &OutputRoot {
        &self.outputs
    }

    /// Runs one program to its end. Never fails: whatever happens is in the result.
    pub async fn execute(
        &self,
        spec: &ExecutionSpec,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> ExecutionResult {
        if let Some(reason) = refusal(spec) {
            return never_started(spec, Verdict::refused(reason));
        }
        let slot = self.slots.take();
        let prepared = match cancel.run_until_cancelled(self.prepare(spec, slot)).await {
            Some(Ok(prepared)) => prepared,
            Some(Err(trouble)) => return failed_before_start(spec, &trouble),
            None => return failed_before_start(spec, &Trouble::Cancelled),
        };
        self.run(spec, prepared, cancel, observer).await
    }

    async fn prepare(&self, spec: &ExecutionSpec, slot: Slot) -> Result<Prepared, Trouble> {
        let outputs = self.outputs.clone();
        let id = spec.id.clone();
        let staging = spawn_blocking(move || outputs.stage(&id)).await??;
        let notes = match spec.dataset.clone() {
            Some(pin) => spawn_blocking(move || check_dataset(&pin)).await??,
            None => Vec::new(),
        };
        let template = Template {
            image: self.engine.image(&spec.image).await?,
            runtime: spec.runtime.clone(),
            uid: slot.uid(),
            dataset: spec.dataset.clone(),
            limits: spec.limits.clone(),
        };
        let mut sandbox = self.engine.create(&spec.id, &template).await?;
        sandbox.keep(slot);
        let mut session = Session::new(sandbox.start().await?);
        let ready = conversation::ready(&mut session).await?;
        check::check(&ready, &template)?;
        Ok(Prepared {
            sandbox,
            session,
            staging,
            notes,
        })
    }

    async fn run(
        &self,
        spec: &ExecutionSpec,
        prepared: Prepared,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> ExecutionResult {
        let Prepared {
            sandbox,
            mut session,
            staging,
            mut notes,
        } = prepared;
        if let Err(trouble) = conversation::start(&mut session, spec).await {
            destroy(sandbox).await;
            return failed_before_start(spec, &trouble);
        }
        let talk = conversation::follow(&mut session, &spec.limits, cancel, observer).await;
        if !matches!(talk.end, TalkEnd::Reported(_)) {
            // First of all nothing of it runs any more; questions come after.
            if let Err(error) = sandbox.kill().await {
                log_chain("a sandbox could not be killed; it will be removed", &error);
            }
        }
        let collected = self
            .collect(spec, &mut session, staging, &talk.end, &mut notes)
            .await;
        let saw_memory_kill = match &talk.end {
            TalkEnd::Reported(exited) if exited.usage.memory_kills.is_some() => None,
            TalkEnd::Reported(_)
            | TalkEnd::LateAtDeadline(_)
            | TalkEnd::LateOnCancel
            | TalkEnd::Lost(_) => sandbox.memory_kill_seen().await.ok(),
        };
        notes.extend(destroy(sandbox).await);
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
        let collector = Collector::new(staging, caps, input_digests(spec));
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

/// Whether the data set is still the one that was admitted, and safe to share; notes on what could
/// not be found out. Blocks on the file system.
fn check_dataset(pin: &DatasetPin) -> Result<Vec<String>, Trouble> {
    let directory = dataset_path::reopen(pin).map_err(Trouble::Dataset)?;
    let scan = dataset_contents::scan(&directory)?;
    let unseen = (scan == Scan::Incomplete).then(|| {
        format!(
            "The data set has more than {} entries: sockets and devices beyond were not looked for.",
            dataset_contents::MAX_ENTRIES
        )
    });
    Ok(unseen.into_iter().collect())
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

fn input_digests(spec: &ExecutionSpec) -> BTreeMap<String, String> {
    let digest = |bytes: &Vec<u8>| hex::encode(Sha256::digest(bytes));
    spec.input_files
        .iter()
        .map(|(name, bytes)| (name.clone(), digest(bytes)))
        .collect()
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

/// Destroys a sandbox; a note if that has to be done later.
async fn destroy(sandbox: Box<dyn Sandbox>) -> Option<String> {
    match sandbox.destroy().await {
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
