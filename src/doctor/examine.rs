//! One examination: of engine and host, and of the sandboxes of one runtime after the other.
//!
//! Two sandboxes do: the probe, and beside it a neighbour that wants to outlive its limits. A
//! runtime with a kernel of its own, which ends as a whole when its memory does, gets a third one
//! for that. Everything is bounded, and nothing of it stays.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::DoctorError;
use super::bench::Bench;
use super::controls::{self, Score};
use super::facts::{MachineFacts, SandboxFacts};
use super::host;
use super::visit::Visit;
use crate::execution::runtime::{has_own_kernel, tier};
use crate::ids::ExecutionId;
use crate::sandbox::EngineError;
use crate::sandbox::slots::Slots;
use crate::sandbox::survey::{EngineFacts, Survey};

/// All of one runtime.
const BOUND: Duration = Duration::from_secs(180);

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What is mandatory, as fast as it goes.
    Mandatory,
    /// Everything: the whole image is searched, every system call tried.
    Thorough,
}

/// Examines an engine's sandboxes. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Examiner {
    /// The engine.
    pub engine: Arc<dyn Survey>,
    /// The uids, shared with whoever else makes sandboxes there.
    pub slots: Slots,
    /// The image, as configured.
    pub image: String,
    /// The engine's address.
    pub engine_host: String,
    /// Where files for sandboxes may be made.
    pub directory: PathBuf,
}

/// Facts of one runtime, or what keeps its sandboxes from being made as they should.
#[derive(Debug)]
enum Examined {
    Facts(Box<SandboxFacts>),
    NotApplied(String),
}

impl Examiner {
    /// What engine and host tell about themselves.
    ///
    /// # Errors
    ///
    /// [`DoctorError::Engine`] if the engine cannot be asked.
    pub async fn machine(&self) -> Result<MachineFacts, DoctorError> {
        let engine = self.engine.survey().await?;
        let (address, data) = (self.engine_host.clone(), engine.data_directory.clone());
        let host = spawn_blocking(move || host::look(&address, &data)).await?;
        Ok(MachineFacts { host, engine })
    }

    /// The runtimes to examine: those whose tier is known, and the one that is used anyway.
    #[must_use]
    pub fn runtimes(engine: &EngineFacts, configured: Option<&str>) -> Vec<String> {
        let known = engine.runtimes.iter();
        // An engine lists its own shim's name beside runc.
        let known = known.filter(|name| tier(name).is_some() && !name.starts_with("io.containerd"));
        let mut names: Vec<String> = known.cloned().collect();
        let usual = configured.unwrap_or(&engine.default_runtime);
        if !usual.is_empty() && !names.iter().any(|name| name == usual) {
            names.push(usual.to_owned());
        }
        names.sort();
        names
    }

    /// Examines the sandboxes of one runtime and judges what was seen.
    ///
    /// # Errors
    ///
    /// [`DoctorError`] if that could not be done: no verdict at all.
    pub async fn runtime(
        &self,
        runtime: &str,
        depth: Depth,
        machine: &MachineFacts,
    ) -> Result<Vec<Score>, DoctorError> {
        let late = |_| DoctorError::TimedOut {
            seconds: BOUND.as_secs(),
        };
        let examined = timeout(BOUND, self.examine(runtime, depth, machine));
        let mut scores = Vec::new();
        match examined.await.map_err(late)?? {
            Examined::Facts(facts) => {
                scores.push(controls::every_setting_applied(None));
                scores.extend(controls::judge_sandbox(&facts));
            }
            Examined::NotApplied(settings) => {
                scores.push(controls::every_setting_applied(Some(&settings)));
            }
        }
        Ok(scores)
    }

    async fn examine(
        &self,
        runtime: &str,
        depth: Depth,
        machine: &MachineFacts,
    ) -> Result<Examined, DoctorError> {
        let image = self.engine.image(&self.image).await?;
        let directory = self.directory.clone();
        let bench = spawn_blocking(move || Bench::make(&directory)).await?;
        let visit = Visit {
            examiner: self,
            runtime,
            own_kernel: has_own_kernel(Some(runtime)),
            image,
            bench: bench.map_err(DoctorError::Bench)?,
            thorough: depth == Depth::Thorough,
            neighbour: format!("fumehood-{}", ExecutionId::random()),
        };
        match visit.facts(machine).await {
            Err(DoctorError::Engine(EngineError::PolicyNotApplied(settings))) => {
                Ok(Examined::NotApplied(settings))
            }
            Err(error) => Err(error),
            Ok(facts) => Ok(Examined::Facts(Box::new(facts))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_runtimes_and_the_usual_one_are_examined() {
        let engine = EngineFacts {
            runtimes: ["io.containerd.runc.v2", "nvidia", "runc", "runsc"]
                .map(str::to_owned)
                .to_vec(),
            default_runtime: "runc".to_owned(),
            ..EngineFacts::default()
        };
        assert_eq!(Examiner::runtimes(&engine, None), ["runc", "runsc"]);
        let configured = Examiner::runtimes(&engine, Some("nvidia"));
        assert_eq!(configured, ["nvidia", "runc", "runsc"]);
        let silent = EngineFacts::default();
        assert_eq!(Examiner::runtimes(&silent, None), Vec::<String>::new());
    }
}
