//! The engine and what goes with it, as a configuration asks for them: what the daemon, a single run
//! and the doctor have in common.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::{AppError, identity};
use crate::artifacts::OutputRoot;
use crate::config::Config;
use crate::doctor::Examiner;
use crate::execution::redaction::Place;
use crate::ids::InstanceId;
use crate::orchestrator::{Executor, Handoffs, HostPaths, LeftExecution, Sandboxes, Takeover};
use crate::sandbox::Engine;
use crate::sandbox::docker::DockerEngine;
use crate::sandbox::docker::images::default_reference;
use crate::sandbox::pool::{Pool, PoolSettings, Wish};
use crate::sandbox::slots::Slots;
use crate::sandbox::survey::Survey;

/// An engine and what programs are run with: what `serve` and `run` have in common.
#[derive(Debug)]
pub struct Workshop {
    /// The engine.
    pub engine: Arc<DockerEngine>,
    /// Whose everything on the engine is.
    pub instance: InstanceId,
    /// Where artifacts go.
    pub outputs: OutputRoot,
    slots: Slots,
    host_paths: HostPaths,
    /// The image that is used where none is configured.
    pub default_image: String,
}

impl Workshop {
    /// The parts that a configuration asks for; `owner` names the file of the state directory that
    /// holds the identity of what is made on the engine.
    ///
    /// # Errors
    ///
    /// [`AppError`] if the state directory or the output root cannot be used.
    pub async fn open(config: &Config, owner: &'static str) -> Result<Self, AppError> {
        let state_dir = config.app.state_dir.clone();
        let outputs = OutputRoot::new(&config.app.output_root);
        let probed = outputs.clone();
        let seen = directories(config);
        let (instance, host_paths) = spawn_blocking(move || -> Result<_, AppError> {
            let instance = identity::read_or_make(&state_dir, owner)?;
            // Only tried: what is half-done there may be another process's, at work on it.
            probed.probe()?;
            Ok((instance, HostPaths::look_up(seen)))
        })
        .await??;
        let engine = Arc::new(DockerEngine::bounded(
            &config.engine.host,
            instance.clone(),
            config.engine.bounds(),
        ));
        let default_image = config
            .execution
            .image
            .clone()
            .unwrap_or_else(default_reference);
        Ok(Self {
            engine,
            instance,
            outputs,
            slots: Slots::new(config.execution.uid_base),
            host_paths,
            default_image,
        })
    }

    /// What an earlier daemon left of these executions, and the place where it is put away for a
    /// later one. Before the pool is started, whose sandboxes take uids.
    ///
    /// # Errors
    ///
    /// [`AppError`] if the state directory cannot be used.
    pub async fn takeover(
        &self,
        config: &Config,
        executions: &[LeftExecution],
    ) -> Result<Takeover, AppError> {
        let state_dir = config.app.state_dir.clone();
        let handoffs = spawn_blocking(move || Handoffs::open(&state_dir)).await??;
        Ok(Takeover::read(handoffs, &self.slots, executions).await)
    }

    /// An executor whose sandboxes come from the pool, if there is one, and who waits so long for
    /// an engine that is away. With `takeover` the next daemon can take over what it runs.
    #[must_use]
    pub fn executor(
        &self,
        pool: Option<Pool>,
        patience: Option<Duration>,
        takeover: Option<Takeover>,
    ) -> Executor {
        let engine = Arc::clone(&self.engine) as Arc<dyn Engine>;
        let sandboxes = Sandboxes::new(engine, self.slots.clone(), pool);
        let sandboxes = match patience {
            Some(patience) => sandboxes.patient(patience),
            None => sandboxes,
        };
        let outputs = self.outputs.clone();
        Executor::new(sandboxes, outputs, self.host_paths.clone(), takeover)
    }

    /// A doctor for the sandboxes that are made here.
    #[must_use]
    pub fn examiner(&self, config: &Config) -> Examiner {
        Examiner {
            engine: Arc::clone(&self.engine) as Arc<dyn Survey>,
            slots: self.slots.clone(),
            image: self.default_image.clone(),
            engine_host: config.engine.host.clone(),
            directory: config.app.state_dir.clone(),
        }
    }

    /// Starts the pool that the configuration asks for; `None` if it asks for none. What an earlier
    /// daemon left has to be swept before, or the pool's sandboxes would be, too.
    #[must_use]
    pub fn pool(&self, config: &Config) -> Option<Pool> {
        if config.pool.size == 0 {
            return None;
        }
        let execution = &config.execution;
        let longest = Duration::try_from_secs_f64(execution.max_timeout_seconds);
        let settings = PoolSettings {
            size: config.pool.size,
            memory_bytes: config.pool.memory_mb << 20,
            preload: config.pool.preload.clone(),
            longest_program: longest.unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        };
        let usual = Wish {
            image: self.default_image.clone(),
            runtime: execution.runtime.clone(),
            dataset: None,
            limits: execution.default_limits().of_sandbox(),
            interpreter: true,
        };
        let engine = Arc::clone(&self.engine) as Arc<dyn Engine>;
        Some(Pool::start(engine, self.slots.clone(), settings, usual))
    }
}

/// The directories of the host that a program may come to know, unless nobody minds that.
fn directories(config: &Config) -> Vec<(PathBuf, Place)> {
    if !config.execution.redact_host_paths {
        return Vec::new();
    }
    let own = config.tenants.values();
    let own = own.filter_map(|tenant| tenant.allowed_data_root.as_ref());
    let roots = own.chain([&config.app.allowed_data_root]).flatten();
    let roots = roots.map(|root| (root.clone(), Place::DataRoot));
    let ours = [
        (config.app.output_root.clone(), Place::Outputs),
        (config.app.state_dir.clone(), Place::State),
    ];
    roots.chain(ours).collect()
}
