//! The only place that wires the parts together.

mod holding;

mod workshop;

mod keeping;

mod state;

mod identity;

mod sweeping;

mod writing;

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use self::holding::EngineReadiness;
pub(crate) use self::keeping::{EarlierDone, Keeping, earlier, store_settings, things};
pub use self::sweeping::sweep;
pub use self::workshop::Workshop;
use crate::api::{self, ApiParts, ApiState, ServeSettings, Tls, TlsError};
use crate::artifacts::OutputRootError;
use crate::auth::{Keyring, TokensError};
use crate::config::Config;
use crate::doctor::watch::{NOT_YET, WatchSettings, watch};
use crate::ids::{ExecutionId, InstanceId};
use crate::orchestrator::handoff::HandoffError;
use crate::orchestrator::llm::SettingsError;
use crate::orchestrator::{EveryRun, Executor, LeftExecution};
use crate::receipt::Notary;
use crate::receipt::key::{KeyError, ReceiptKey};
use crate::runs::gate::Gate;
use crate::runs::recovery::{Cleaner, LeftRun, recover};
use crate::runs::service::{RunService, ServiceSettings};
use crate::runs::store::sqlite::SqliteStore;
use crate::runs::store::{Store, StoreError};
use crate::runs::tenants::Share;
use crate::sandbox::Engine as _;
use crate::sandbox::docker::DockerEngine;

/// How long answers may take to go out once the daemon goes down.
const ANSWER_DRAIN: Duration = Duration::from_secs(5);

/// Connections to the listener for metrics: its clients are few.
const METRICS_CONNECTIONS: usize = 16;

/// What preparing sandboxes and collecting artifacts may add to the time of a run's programs.
const RUN_ALLOWANCE: Duration = Duration::from_secs(60);

/// How long removing the last sandboxes may hold up the daemon's end.
const REAP_BOUND: Duration = Duration::from_secs(20);

/// Why the daemon cannot be started. Each names the thing and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The state directory.
    #[error("the state directory {path} cannot be used: make it writable or set app.state_dir")]
    State {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another daemon is at work with what is in the state directory.
    #[error(
        "the state directory {path} is in use by another fumehood: stop it or give this one its own \
         with app.state_dir"
    )]
    StateInUse {
        /// Which.
        path: PathBuf,
    },
    /// The file of the daemon's identity holds something else.
    #[error(
        "{path} does not hold the identity of a fumehood (12 of a-z and 0-9): restore it, or remove it if no \
         program of an earlier daemon runs any more; the label fumehood.instance of its containers says what \
         it was"
    )]
    Identity {
        /// Which.
        path: PathBuf,
    },
    /// Another daemon of this host has the same identity.
    #[error(
        "another fumehood with the identity {instance} is at work on this host: one of the two uses a copy \
         of the other's app.state_dir; give it a directory and a store.path of its own"
    )]
    IdentityInUse {
        /// Which.
        instance: InstanceId,
        /// What the kernel says.
        #[source]
        source: std::io::Error,
    },
    /// The output root.
    #[error(transparent)]
    Output(#[from] OutputRootError),
    /// What is put away of executions.
    #[error(transparent)]
    Handoff(#[from] HandoffError),
    /// The key that receipts are signed with.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The address to listen on.
    #[error("cannot listen on {address}: choose another with {setting}")]
    Listen {
        /// What sets it.
        setting: &'static str,
        /// As configured.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The tokens.
    #[error(transparent)]
    Tokens(#[from] TokensError),
    /// Certificate and key.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The model.
    #[error(transparent)]
    Model(#[from] SettingsError),
    /// The certificates of the model's server.
    #[error("the certificates in {path} cannot be read: check llm.ca_file")]
    Certificates {
        /// As configured.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A task of the start was lost.
    #[error("an internal task failed")]
    Task(#[from] tokio::task::JoinError),
}

/// When the daemon is to go down.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    /// Cancelled when nothing more is to be accepted and what runs may come to its end.
    pub gently: CancellationToken,
    /// Cancelled when everything is to be left as it is, for the next start.
    pub now: CancellationToken,
}

/// Runs the daemon until it is told to stop, then lets running programs end for at most `drain`; what
/// runs longer is left to the next start. `listening` is told the address once connections are taken.
///
/// # Errors
///
/// [`AppError`] if it cannot be started.
pub async fn serve(
    config: Config,
    stop: Stop,
    drain: Duration,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), AppError> {
    let at_work = AtWork::default();
    let serving = serve_gently(config, stop.gently, drain, listening, &at_work);
    // At any time, at the start and in the end as well: what waits on the engine goes with it.
    match stop.now.run_until_cancelled(serving).await {
        Some(served) => served,
        None => {
            at_work.leave_behind().await;
            Ok(())
        }
    }
}

/// What has sandboxes, as soon as it is there.
#[derive(Default)]
struct AtWork {
    engine: OnceLock<Arc<DockerEngine>>,
    executor: OnceLock<Executor>,
}

impl AtWork {
    /// Leaves every sandbox to the next daemon.
    async fn leave_behind(&self) {
        if let Some(executor) = self.executor.get() {
            executor.leave_behind().await;
        } else if let Some(engine) = self.engine.get() {
            engine.leave_behind();
        }
    }
}

/// All of it but for being told to leave at once; fills `at_work` for that.
async fn serve_gently(
    config: Config,
    shutdown: CancellationToken,
    drain: Duration,
    listening: impl FnOnce(SocketAddr),
    at_work: &AtWork,
) -> Result<(), AppError> {
    let (listener, bound) = bind(config.api.listen, "--listen or api.listen").await?;
    let metrics_listener = match config.api.metrics_listen {
        Some(address) => Some(bind(address, "api.metrics_listen").await?),
        None => None,
    };
    let (keyring, tls) = credentials(&config).await?;
    warn_of_open_doors(&config, tls.as_ref());
    let model = writing::client(&config.llm).await?;

    // Before anything that is kept there is looked at, and as long as something is at work: if this is
    // cut off, until the process is gone.
    let alone = ManuallyDrop::new(state::lock(&config).await?);
    let workshop = Workshop::open(&config, "instance").await?;
    let known = ManuallyDrop::new(identity::claim(&workshop.instance)?);
    at_work.engine.get_or_init(|| Arc::clone(&workshop.engine));
    let notary = notary(&config, workshop.instance.clone()).await?;
    let kept =
        SqliteStore::open_with(&store_path(&config), notary, store_settings(&config)).await?;
    let kept = Arc::new(kept);
    let store: Arc<dyn Store> = Arc::clone(&kept) as _;
    let records = Arc::clone(&store);
    // With all that is locked no other daemon of this state is there whose work this could be.
    let outputs = workshop.outputs.clone();
    spawn_blocking(move || outputs.prepare()).await??;
    let recovered = recover(store.as_ref(), &EngineCleaner(Arc::clone(&workshop.engine))).await?;
    info!(
        runs.left = recovered.left.len(),
        runs.interrupted = recovered.interrupted_runs,
        executions.destroyed = recovered.destroyed_executions,
        executions.left = recovered.left_executions,
        "put in order what an earlier daemon left"
    );
    let left: Vec<LeftExecution> = recovered.left.iter().filter_map(left_execution).collect();
    let takeover = workshop.takeover(&config, &left).await?;
    sweep(&workshop.engine, &left).await;

    let settings = ServiceSettings {
        max_concurrent_runs: config.app.max_concurrent_runs,
        max_queued_runs: config.app.max_queued_runs,
        run_timeout: Duration::from_secs(config.app.run_timeout_seconds) + RUN_ALLOWANCE,
        shares: Share::all(&config),
    };
    let pool = workshop.pool(&config);
    // Shorter than the run's own bound: then the run says what it has waited for.
    let patience = Duration::from_secs(config.app.run_timeout_seconds);
    let executor = workshop.executor(pool.clone(), Some(patience), Some(takeover));
    at_work.executor.get_or_init(|| executor.clone());
    let generated = writing::generated(&config, executor.clone(), model.clone());
    let orchestrator = Arc::new(EveryRun::new(executor, generated));
    let background = TaskTracker::new();
    if let Some(keyring) = &keyring {
        background.spawn(Arc::clone(keyring).follow(shutdown.clone()));
    }
    let broken = kept.broken();
    let keeping = Keeping::new(&config, &workshop, kept);
    background.spawn(keeping.follow(shutdown.clone()));
    let gate = if config.doctor.at_start {
        Gate::pending(NOT_YET)
    } else {
        Gate::open()
    };
    let watching = CancellationToken::new();
    let closing = CancellationToken::new();
    let watchers = TaskTracker::new();
    let watched = WatchSettings {
        examine: config.doctor.at_start,
        runtime: config.execution.runtime.clone(),
    };
    let examiner = workshop.examiner(&config);
    let serving = async {
        holding::hold_at_first(&gate);
        let runs = RunService::start_behind(
            (store, orchestrator, gate.clone()),
            settings,
            recovered.left,
        )
        .await?;
        // Beside the interface, which answers from the beginning.
        watchers.spawn(watch(examiner, watched, gate.clone(), watching.clone()));
        let engine = Arc::clone(&workshop.engine);
        watchers.spawn(holding::hold(engine, gate.clone(), watching.clone()));
        let engine = Arc::clone(&workshop.engine);
        watchers.spawn(sweeping::follow(engine, records, watching.clone()));
        watchers.close();

        let readiness = EngineReadiness {
            engine: Arc::clone(&workshop.engine),
            image: workshop.default_image.clone(),
            pool: pool.clone(),
            gate,
            model,
        };
        let state = ApiState::new(ApiParts {
            runs: Arc::clone(&runs),
            config: Arc::new(config.clone()),
            keyring: keyring.clone(),
            built_image: workshop.default_image.clone(),
            readiness: Arc::new(readiness),
            shutdown: closing.clone(),
        });
        let measuring = async {
            if let Some((listener, address)) = metrics_listener {
                info!(%address, "metrics can be read");
                let router = api::metrics_router(state.clone());
                let few = ServeSettings {
                    max_connections: METRICS_CONNECTIONS,
                    ..ServeSettings::new(&config.api, ANSWER_DRAIN)
                };
                api::serve(listener, router, few, None, closing.clone()).await;
            }
        };
        let router = api::router(state.clone());
        listening(bound);
        info!(address = %bound, "accepting runs");
        let serving = api::serve(
            listener,
            router,
            ServeSettings::new(&config.api, ANSWER_DRAIN),
            tls,
            closing.clone(),
        );
        // Clients can see their runs end, and are told to come again later with new ones.
        let draining = async {
            shutdown.cancelled().await;
            info!(drain.seconds = drain.as_secs(), "shutting down");
            watching.cancel();
            tokio::join!(runs.drain(drain), watchers.wait());
            closing.cancel();
        };
        let served = tokio::select! {
            _ = async { tokio::join!(serving, measuring, draining) } => Ok(()),
            () = broken.cancelled() => Err(AppError::from(StoreError::Unflushed)),
        };
        // What waits in the pool goes; what runs stays. Without a journal that is so, too: nothing that
        // ends now could be recorded, and the next start finds out what is on disk.
        if let Some(pool) = &pool {
            pool.stop().await;
        }
        runs.leave().await;
        served
    };
    let served = serving.await;
    shutdown.cancel();
    background.close();
    if timeout(ANSWER_DRAIN, background.wait()).await.is_err() {
        warn!("the disk of the tokens file or of the artifacts, or the engine, does not answer");
    }
    if let Some(pool) = pool {
        pool.stop().await;
    }
    workshop.engine.finish(REAP_BOUND).await;
    drop(ManuallyDrop::into_inner(known));
    drop(ManuallyDrop::into_inner(alone));
    served
}

/// Listens on an address, which `setting` sets, and tells which it is.
async fn bind(
    address: SocketAddr,
    setting: &'static str,
) -> Result<(TcpListener, SocketAddr), AppError> {
    let taken = |source| AppError::Listen {
        setting,
        address,
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(taken)?;
    let bound = listener.local_addr().map_err(taken)?;
    Ok((listener, bound))
}

/// Who signs this daemon's receipts, with the key of its state directory.
pub(crate) async fn notary(config: &Config, instance: InstanceId) -> Result<Notary, AppError> {
    let state_dir = config.app.state_dir.clone();
    let key = spawn_blocking(move || ReceiptKey::load_or_make(&state_dir)).await??;
    info!(receipt.public_key = %key.public(), "receipts are signed");
    Ok(Notary::new(key, instance))
}

/// What clients are known by, and what the daemon is known by.
type Credentials = (Option<Arc<Keyring>>, Option<Tls>);

async fn credentials(config: &Config) -> Result<Credentials, AppError> {
    let (tokens, api) = (config.auth.tokens_file.clone(), config.api.clone());
    spawn_blocking(move || -> Result<Credentials, AppError> {
        let keyring = tokens.as_deref().map(Keyring::open).transpose()?;
        Ok((keyring.map(Arc::new), Tls::of(&api)?))
    })
    .await?
}

fn warn_of_open_doors(config: &Config, tls: Option<&Tls>) {
    if !config.api.listen.ip().is_loopback() && tls.is_none() {
        warn!(
            address = %config.api.listen,
            "tokens and programs travel unencrypted: set api.tls_cert and api.tls_key, or let only \
             a proxy that speaks TLS reach this address"
        );
    }
}

/// Where the daemon of this configuration keeps its records.
pub(crate) fn store_path(config: &Config) -> PathBuf {
    config
        .store
        .path
        .clone()
        .unwrap_or_else(|| config.app.state_dir.join("fumehood.db"))
}

fn left_execution(left: &LeftRun) -> Option<LeftExecution> {
    let open = left.execution.as_ref()?;
    Some(LeftExecution {
        id: open.id.clone(),
        host_restarted: open.host_restarted,
    })
}

#[derive(Debug)]
struct EngineCleaner(Arc<DockerEngine>);

#[async_trait]
impl Cleaner for EngineCleaner {
    async fn destroy(
        &self,
        execution: &ExecutionId,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.0.destroy(execution).await?)
    }
}
