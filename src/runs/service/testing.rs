//! What the tests of the core share: a store in a directory of its own, runs and episodes to put
//! into it, and an orchestrator that does what a test tells it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::{Semaphore, mpsc, watch};
use uuid::Uuid;

use super::inner::{Timing, now};
use super::{CarriedOut, Orchestrator, Origin, RunContext, RunService, ServiceSettings};
use crate::config::Execution;
use crate::execution::cause::Verdict;
use crate::execution::{Artifact, ExecutionResult};
use crate::ids::{ClientKey, ExecutionId, RunId, TenantId};
use crate::receipt::testing::{evidence, notary};
use crate::runs::gate::Gate;
use crate::runs::record::{Ending, Episode, RecordedEpisode, RunOutcome, RunRecord};
use crate::runs::recovery::LeftRun;
use crate::runs::request::{LlmMode, RunRequest};
use crate::runs::state::Event;
use crate::runs::store::sqlite::SqliteStore;
use crate::runs::store::{Alongside, Inserted, NewRun, Store};
use crate::runs::tenants::Quotas;

/// A directory with a store's file in it.
pub(crate) struct Place {
    pub(crate) directory: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn file(&self) -> std::path::PathBuf {
        self.directory.path().join("state").join("fumehood.db")
    }

    pub(crate) async fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.file(), notary()).await.unwrap()
    }

    /// Commits that are in the write-ahead log: frames that carry the size of the database after
    /// them, of the log's present generation.
    pub(crate) fn commits(&self) -> usize {
        let log = std::fs::read(self.directory.path().join("state/fumehood.db-wal")).unwrap();
        let number = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
        let page = usize::try_from(number(8)).unwrap();
        let salts = &log[16..24];
        (32..log.len())
            .step_by(24 + page)
            .take_while(|frame| log[frame + 8..frame + 16] == *salts)
            .filter(|frame| number(frame + 4) != 0)
            .count()
    }

    /// Puts a run of `client` into the store.
    pub(crate) async fn insert(&self, store: &SqliteStore, client: &str) -> RunId {
        let run = new_run(client);
        let inserted = store.insert(&run, 1000).await.unwrap();
        assert!(matches!(inserted, Inserted::New { .. }), "{inserted:?}");
        run.id
    }
}

pub(crate) async fn start(store: &dyn Store, id: RunId) {
    let event = Event::Start { at: now() };
    let started = store.apply(id, event, &Alongside::Nothing).await;
    started.unwrap().unwrap().unwrap();
}

pub(crate) fn finish(ending: Ending) -> Event {
    Event::Finish {
        at: now(),
        outcome: Box::new(outcome(ending)),
    }
}

pub(crate) fn client(name: &str) -> ClientKey {
    ClientKey(name.to_owned())
}

/// The tenant of a daemon without tokens.
pub(crate) fn tenant() -> &'static TenantId {
    static TENANT: LazyLock<TenantId> = LazyLock::new(TenantId::default);
    &TENANT
}

pub(crate) fn new_run(name: &str) -> NewRun {
    NewRun {
        id: RunId::random(),
        tenant: TenantId::default(),
        quotas: Quotas::default(),
        client: client(name),
        request: request(),
        accepted_at: now(),
        reserved_cpu_microseconds: 0,
        idempotency: None,
    }
}

pub(crate) fn request() -> RunRequest {
    RunRequest {
        dataset_path: None,
        dataset: None,
        user_instruction: Some("say \"hello\" ☃".to_owned()),
        code: Some("print('secret')".to_owned()),
        input_files: BTreeMap::from([("a.bin".to_owned(), vec![0, 255, 10])]),
        expected_output_files: vec!["b.csv".to_owned()],
        bash_script: Some("true".to_owned()),
        llm_mode: LlmMode::Mock,
        max_iterations: 3,
        disable_judge: false,
        image: "image".to_owned(),
        runtime: None,
        preload: true,
        retries: 0,
        limits: Execution::default().default_limits(),
    }
}

pub(crate) fn outcome(ending: Ending) -> RunOutcome {
    RunOutcome::without_execution(ending, "as told".to_owned())
}

pub(crate) fn episode(run_id: RunId, iteration: u32, execution: &ExecutionId) -> Episode {
    let verdict = Verdict::infrastructure("none".to_owned(), Vec::new());
    Episode {
        episode_id: Uuid::new_v4(),
        run_id,
        iteration,
        timestamp: Timestamp::UNIX_EPOCH,
        execution: ExecutionResult {
            execution_id: execution.clone(),
            success: false,
            status: verdict.status,
            return_code: None,
            stdout: String::new(),
            stderr: String::new(),
            duration_seconds: 1.5,
            timed_out: false,
            output_files: Vec::new(),
            missing_expected_files: Vec::new(),
            error_info: None,
            workspace_dir: format!("outputs/models/{execution}"),
            limit: None,
            cause: verdict.cause,
            warnings: Vec::new(),
            stdout_bytes: 0,
            stderr_bytes: 0,
            stdout_tail: None,
            stderr_tail: None,
            usage: None,
            sandbox: None,
            started_at: None,
            finished_at: Timestamp::UNIX_EPOCH,
            artifacts: vec![Artifact {
                path: format!("{iteration}.csv"),
                size: 3,
                sha256: "00".to_owned(),
            }],
            artifacts_skipped: Vec::new(),
        },
        code_sha256: "00".to_owned(),
        code_bytes: 7,
        judge_decision: None,
        judge_reason: None,
        summary: "x".to_owned(),
        suggested_fix: None,
        error_category: None,
        error_message: None,
        perceived: None,
        model_usage: None,
    }
}

/// The episode as it is recorded.
pub(crate) fn recorded(episode: &Episode, code: &str) -> RecordedEpisode {
    RecordedEpisode {
        episode: episode.clone(),
        code: code.to_owned(),
        evidence: evidence(),
    }
}

/// What the fake orchestrator does with a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Waits for [`Fake::let_end`] or for the wish to end.
    Obedient,
    /// Waits for [`Fake::let_end`], whatever anybody wishes.
    Deaf,
    /// Like `Obedient`, but ends with success when it is told to end.
    FasterThanCancel,
    /// Fails in a way that it must not.
    Panics,
}

/// An orchestrator that starts no program.
#[derive(Debug)]
pub(crate) struct Fake {
    manner: Manner,
    started: mpsc::Sender<RunRecord>,
    ends: Semaphore,
    now: AtomicUsize,
    pub(crate) most: AtomicUsize,
    pub(crate) left_behind: AtomicUsize,
    origins: Mutex<Vec<Origin>>,
    recorded: watch::Sender<Vec<ExecutionId>>,
}

impl Fake {
    /// The fake, and where it tells which runs it was given.
    pub(crate) fn new(manner: Manner) -> (Arc<Self>, mpsc::Receiver<RunRecord>) {
        let (started, receiver) = mpsc::channel(1000);
        let fake = Self {
            manner,
            started,
            ends: Semaphore::new(0),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            left_behind: AtomicUsize::new(0),
            origins: Mutex::default(),
            recorded: watch::Sender::default(),
        };
        (Arc::new(fake), receiver)
    }

    /// Lets `runs` end with success.
    pub(crate) fn let_end(&self, runs: usize) {
        self.ends.add_permits(runs);
    }

    /// What it was to go on with, of what was not new.
    pub(crate) fn origins(&self) -> Vec<Origin> {
        let origins = self.origins.lock().unwrap();
        let left = origins
            .iter()
            .filter(|origin| !matches!(origin, Origin::New(_)));
        left.cloned().collect()
    }

    /// Waits until it was told that the end of this execution is on disk.
    pub(crate) async fn until_recorded(&self, execution: &ExecutionId) {
        let mut recorded = self.recorded.subscribe();
        let told = recorded.wait_for(|recorded| recorded.contains(execution));
        told.await.unwrap();
    }
}

#[async_trait]
impl Orchestrator for Fake {
    async fn recorded(&self, execution: &ExecutionId) {
        let execution = execution.clone();
        self.recorded
            .send_modify(|recorded| recorded.push(execution));
    }

    async fn leave_behind(&self) {
        self.left_behind.fetch_add(1, Ordering::SeqCst);
    }

    async fn carry_out(&self, run: &RunRecord, context: &RunContext) -> CarriedOut {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.origins.lock().unwrap().push(context.origin.clone());
        self.started.send(run.clone()).await.unwrap();
        let ending = match self.manner {
            Manner::Obedient | Manner::FasterThanCancel => tokio::select! {
                permit = self.ends.acquire() => { permit.unwrap().forget(); Ending::Success }
                () = context.cancel.cancelled() => match self.manner {
                    Manner::FasterThanCancel => Ending::Success,
                    Manner::Obedient | Manner::Deaf | Manner::Panics => Ending::Cancelled,
                },
            },
            Manner::Deaf => {
                self.ends.acquire().await.unwrap().forget();
                Ending::Success
            }
            Manner::Panics => panic!("a fault"),
        };
        self.now.fetch_sub(1, Ordering::SeqCst);
        outcome(ending).into()
    }
}

/// Delays short enough for tests that have to see them pass.
pub(in crate::runs::service) fn quick() -> Timing {
    Timing {
        grace: Duration::from_millis(50),
        finish_pauses: [Duration::from_millis(1); 4],
        start_pause: Duration::from_millis(1),
        task_limit: Duration::from_secs(10),
    }
}

/// Three runs waiting, `width` going on, a minute for each.
pub(crate) fn settings(width: usize) -> ServiceSettings {
    ServiceSettings {
        max_concurrent_runs: width,
        max_queued_runs: 3,
        run_timeout: Duration::from_secs(60),
        shares: HashMap::new(),
    }
}

pub(crate) async fn serve(
    store: Arc<dyn Store>,
    fake: &Arc<Fake>,
    settings: ServiceSettings,
) -> Arc<RunService> {
    let orchestrator: Arc<dyn Orchestrator> = Arc::clone(fake) as _;
    RunService::start_with(store, orchestrator, settings, quick())
        .await
        .unwrap()
}

/// Goes on with what was left.
pub(crate) async fn take_over(
    store: Arc<dyn Store>,
    fake: &Arc<Fake>,
    settings: ServiceSettings,
    left: Vec<LeftRun>,
) -> Arc<RunService> {
    let orchestrator: Arc<dyn Orchestrator> = Arc::clone(fake) as _;
    let parts = (store, orchestrator, Gate::open());
    RunService::start_gated(parts, settings, quick(), left)
        .await
        .unwrap()
}
