//! The interface over a real store, without a socket and with an orchestrator that does what the
//! program says.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, Response};
use fumehood_protocol::message::Stream;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::api::{ApiParts, ApiState, EngineReport, Readiness, router};
use crate::auth::{Keyring, NewToken, Role, TokenRecord, update};
use crate::config::Config;
use crate::ids::TenantId;
use crate::receipt::testing::notary;
use crate::runs::events::RunEvent;
use crate::runs::record::{Ending, RunOutcome, RunRecord};
use crate::runs::service::testing::{episode, recorded};
use crate::runs::service::{CarriedOut, Orchestrator, RunContext, RunService, ServiceSettings};
use crate::runs::store::Store;
use crate::runs::store::sqlite::SqliteStore;
use crate::runs::tenants::Share;

/// `ok` succeeds with an episode, `hang` waits to be cancelled.
#[derive(Debug)]
struct Scripted;

#[async_trait]
impl Orchestrator for Scripted {
    async fn carry_out(&self, run: &RunRecord, context: &RunContext) -> CarriedOut {
        if run.request.code.as_deref() == Some("hang SECRET") {
            context.cancel.cancelled().await;
            return RunOutcome::without_execution(Ending::Cancelled, "as asked".to_owned()).into();
        }
        let id = context.origin.execution().unwrap().clone();
        context
            .observer
            .observe(RunEvent::ExecutionStarted(id.clone()));
        context.observer.observe(RunEvent::Output {
            stream: Stream::Stdout,
            bytes: b"hello".to_vec(),
        });
        let last_episode = Box::new(recorded(&episode(run.id, 1, &id), "SECRET"));
        context
            .observer
            .observe(RunEvent::ExecutionEnded(id, "SUCCESS"));
        let outcome = RunOutcome {
            iterations: 1,
            final_error: None,
            final_metrics: Some(json!({"big": 1e300, "n": 5}).as_object().unwrap().clone()),
            prediction_artifact_reference: Some("exec_x/predictions.csv".to_owned()),
            ..RunOutcome::without_execution(Ending::Success, String::new())
        };
        CarriedOut {
            outcome,
            last_episode: Some(last_episode),
        }
    }
}

#[derive(Debug)]
struct Reasons(Vec<String>);

#[async_trait]
impl Readiness for Reasons {
    async fn check(&self) -> Vec<String> {
        self.0.clone()
    }

    fn engine(&self) -> EngineReport {
        EngineReport {
            available: true,
            ..EngineReport::default()
        }
    }

    fn waiting_sandboxes(&self) -> usize {
        0
    }
}

pub(super) struct Fixture {
    pub(super) dir: TempDir,
    pub(super) runs: Arc<RunService>,
    router: Router,
    keyring: Option<Arc<Keyring>>,
    pub(super) shutdown: CancellationToken,
}

pub(super) struct Seen {
    pub(super) status: u16,
    headers: HeaderMap,
    pub(super) text: String,
}

impl Seen {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    /// All that a client sees, in one text.
    pub(super) fn whole(&self) -> String {
        format!("{} {:?} {}", self.status, self.headers, self.text)
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Fixture {
    pub(super) async fn new() -> Self {
        Self::with(|_| {}, Vec::new()).await
    }

    pub(super) async fn with(change: impl FnOnce(&mut Config), reasons: Vec<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("data/iris")).unwrap();
        let mut config = Config::default();
        config.app.allowed_data_root = vec![dir.path().join("data")];
        config.api.max_body_bytes = 100_000;
        change(&mut config);
        let mut keyring = None;
        if let Some(name) = config.auth.tokens_file.take() {
            let path = dir.path().join(name);
            update(&path, |_| Ok(())).await.unwrap();
            keyring = Some(Arc::new(Keyring::open(&path).unwrap()));
            config.auth.tokens_file = Some(path);
        }
        let file = dir.path().join("state/fumehood.db");
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&file, notary()).await.unwrap());
        let settings = ServiceSettings {
            max_concurrent_runs: 1,
            max_queued_runs: config.app.max_queued_runs,
            run_timeout: std::time::Duration::from_secs(60),
            shares: Share::all(&config),
        };
        let runs = RunService::start(store, Arc::new(Scripted), settings)
            .await
            .unwrap();
        let shutdown = CancellationToken::new();
        let router = router(ApiState::new(ApiParts {
            runs: Arc::clone(&runs),
            config: Arc::new(config),
            keyring: keyring.clone(),
            built_image: "built:1".to_owned(),
            readiness: Arc::new(Reasons(reasons)),
            shutdown: shutdown.clone(),
        }));
        Self {
            dir,
            runs,
            router,
            keyring,
            shutdown,
        }
    }

    pub(super) async fn call(&self, request: Request<Body>) -> Seen {
        let response: Response<Body> = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, 1 << 24).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(parts.headers["x-content-type-options"], "nosniff");
        assert_eq!(parts.headers["cache-control"], "no-store");
        assert!(!text.contains("SECRET"), "{text}");
        assert!(!text.contains(self.dir.path().to_str().unwrap()), "{text}");
        Seen {
            status: parts.status.as_u16(),
            headers: parts.headers,
            text,
        }
    }

    /// Where the tokens are.
    pub(super) fn tokens_file(&self) -> std::path::PathBuf {
        self.dir.path().join("tokens")
    }

    /// Makes a token that is changed before it is kept, and gives its text.
    pub(super) async fn token(
        &self,
        tenant: &str,
        role: Role,
        change: impl FnOnce(&mut TokenRecord),
    ) -> String {
        let token = NewToken::generate().unwrap();
        let mut record = TokenRecord {
            key: token.key.clone(),
            tenant: TenantId::parse(tenant).unwrap(),
            role,
            name: None,
            sha256: token.digest,
            created_at: jiff::Timestamp::UNIX_EPOCH,
            expires_at: None,
            revoked_at: None,
        };
        change(&mut record);
        let path = self.tokens_file();
        let adding = update(&path, |tokens| {
            tokens.push(record);
            Ok(())
        });
        adding.await.unwrap();
        self.refresh();
        token.text.expose().to_owned()
    }

    /// Looks at the tokens file, as a running daemon does by itself.
    pub(super) fn refresh(&self) {
        self.keyring.as_ref().unwrap().refresh();
    }

    /// Asks with an `Authorization` header and, for a submission, a body.
    pub(super) async fn ask_as(
        &self,
        (method, path): (&str, &str),
        authorization: Option<&str>,
        body: &Value,
    ) -> Seen {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json");
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        self.call(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    pub(super) async fn ask(&self, method: &str, path: &str) -> Seen {
        let request = Request::builder().method(method).uri(path);
        self.call(request.body(Body::empty()).unwrap()).await
    }

    pub(super) async fn get(&self, path: &str) -> Seen {
        self.ask("GET", path).await
    }

    pub(super) async fn post(&self, body: &Value, headers: &[(&str, &str)]) -> Seen {
        let mut request = Request::post("/runs").header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.call(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    /// Posts a run and gives its id.
    pub(super) async fn run(&self, body: &Value) -> String {
        let seen = self.post(body, &[]).await;
        assert_eq!(seen.status, 200, "{}", seen.text);
        seen.json()["run_id"].as_str().unwrap().to_owned()
    }
}
