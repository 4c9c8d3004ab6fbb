//! The HTTP interface (contract section 1).
//!
//! Owns routes, JSON shapes and the one mapping from errors to answers. Decides nothing about
//! runs: a handler parses, calls the service, and converts. No answer holds a program, an absolute
//! path, a variable of the environment, or an error's internals.

mod router;

mod serve;

mod tls;

mod origin;

mod identity;

mod tenants;

mod rate_limit;

mod held;

mod layers;

mod error;

mod body;

mod extract;

mod health;

mod metrics;

mod settings;

mod runs;

mod views;

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use router::{RouteEntry, metrics_router, router, routes};
pub use serve::{Peer, ServeSettings, serve};
pub use tls::{Tls, TlsError};

use self::tenants::Tenants;
use crate::auth::Keyring;
use crate::config::Config;
use crate::execution::ExecutionResult;
use crate::ids::ClientKey;
use crate::runs::RunService;
use crate::runs::task::ModelUsage;

/// Whether the daemon can do its work. Implemented where the parts are wired.
#[async_trait]
pub trait Readiness: Send + Sync + std::fmt::Debug {
    /// Why it cannot, in words without paths or addresses; empty if it can. Must be bounded in
    /// time.
    async fn check(&self) -> Vec<String>;

    /// The engine as it is now.
    fn engine(&self) -> EngineReport;

    /// How many sandboxes wait for a run.
    fn waiting_sandboxes(&self) -> usize;

    /// What the model was asked, if there is one.
    fn model(&self) -> Option<ModelReport> {
        None
    }
}

/// What the model was asked since the daemon's start, for `/metrics`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModelReport {
    /// What its answers cost.
    pub usage: ModelUsage,
    /// Attempts without an answer.
    pub failures: u64,
}

/// How well the engine is, for `/ready` and `/metrics`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineReport {
    /// Whether sandboxes can be made.
    pub available: bool,
    /// Since when they cannot.
    pub since: Option<Timestamp>,
    /// Sandboxes whose end or removal it has not confirmed.
    pub set_aside: usize,
    /// So many of them, and no further run is started.
    pub set_aside_limit: usize,
    /// What it is asked for, by kind.
    pub calls: Vec<CallReport>,
}

/// Calls of one kind since the daemon's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallReport {
    /// A word for the kind.
    pub kind: &'static str,
    /// Whether they are made, and not refused until one has succeeded.
    pub available: bool,
    /// Those that were not answered, those tried again included.
    pub failed: u64,
    /// Those that were tried again.
    pub retried: u64,
    /// How often they were found to fail one after the other.
    pub outages: u64,
}

/// What the interface is built from.
#[derive(Debug)]
pub struct ApiParts {
    /// The runs.
    pub runs: Arc<RunService>,
    /// The effective configuration.
    pub config: Arc<Config>,
    /// The tokens that are good; without them everybody who gets here is the default tenant.
    pub keyring: Option<Arc<Keyring>>,
    /// The image that is used where the configuration names none.
    pub built_image: String,
    /// Asked by `GET /ready`.
    pub readiness: Arc<dyn Readiness>,
    /// Cancelled when the daemon goes down: waiting requests are answered at once.
    pub shutdown: CancellationToken,
}

/// What every handler gets.
#[derive(Debug, Clone)]
pub struct ApiState {
    runs: Arc<RunService>,
    config: Arc<Config>,
    keyring: Option<Arc<Keyring>>,
    tenants: Arc<Tenants>,
    readiness: Arc<dyn Readiness>,
    shutdown: CancellationToken,
    life: runs::Life,
    body_budget: Arc<Semaphore>,
    long_answers: Arc<Semaphore>,
}

impl ApiState {
    /// The state of an interface over these parts.
    #[must_use]
    pub fn new(parts: ApiParts) -> Self {
        let ApiParts {
            runs,
            config,
            keyring,
            built_image,
            readiness,
            shutdown,
        } = parts;
        let gate = runs.gate().clone();
        Self {
            runs,
            keyring,
            tenants: Arc::new(Tenants::new(&config, &built_image, &gate)),
            readiness,
            shutdown,
            life: runs::Life::random(),
            body_budget: Arc::new(body::budget(config.api.max_body_bytes)),
            // Event streams and waits last long; half of the connections stay for everything else.
            long_answers: Arc::new(Semaphore::new(
                (config.api.max_connections / 2).clamp(1, Semaphore::MAX_PERMITS),
            )),
            config,
        }
    }
}

/// Whose request it is where there are no tokens: the address it came from.
fn client_key(address: Option<IpAddr>) -> ClientKey {
    ClientKey(address.map_or_else(|| "local".to_owned(), |ip| ip.to_canonical().to_string()))
}

/// An execution's result in the shape of the interface, for whoever prints it elsewhere.
#[must_use]
pub fn result_json(result: &ExecutionResult) -> serde_json::Value {
    serde_json::to_value(views::ResultView::from(result.clone())).unwrap_or_default()
}
