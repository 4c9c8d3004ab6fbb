//! Executions that never took place, and a coder, a judge and an analyser that are told what to do.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use fumehood_protocol::message::Stream;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::super::*;
use super::journal::MemoryJournal;
use crate::execution::redaction::Redaction;
use crate::execution::{ExecutionResult, Status};
use crate::ids::{RunId, TenantId};
use crate::orchestrator::analysis::{Explained, Failure};
use crate::orchestrator::executor::Executed;
use crate::orchestrator::judge::{Decision, Judged, Review, Verdict};
use crate::orchestrator::testing::result;
use crate::receipt::testing::evidence;
use crate::runs::RunOutcome;
use crate::runs::events::RunEvent;
use crate::runs::gate::Gate;
use crate::runs::record::Ending;
use crate::runs::service::{Observer, Origin, testing};
use crate::runs::state::RunState;

pub(super) const SCRIPT_OUTPUT: &str = r#"{"files": [{"path": "breast.csv", "bytes": 9, "table":
    {"rows": 9, "ragged_rows": 0, "complete": true, "delimiter": ",", "columns_total": 2, "columns": [
    {"name": "a", "type": "float", "missing": 0, "distinct": 9, "distinct_complete": true, "examples": []},
    {"name": "target", "type": "int", "missing": 0, "distinct": 2, "distinct_complete": true, "examples": []}
    ]}}], "files_total": 1, "complete": true, "libraries": {"sklearn": "1"}}"#;

/// A run and everybody who has a part in it.
pub(super) struct Fakes {
    pub(super) run: RunRecord,
    pub(super) origin: Origin,
    pub(super) takeovers: u32,
    pub(super) runner: FakeRunner,
    pub(super) coder: FakeCoder,
    pub(super) judge: Option<Judging>,
    /// One that says nothing, and before that cancels what it is given.
    pub(super) silent_analyser: Option<Option<CancellationToken>>,
    pub(super) journal: Arc<MemoryJournal>,
    pub(super) bounds: LoopBounds,
    pub(super) gate: Gate,
    pub(super) cancel: CancellationToken,
    pub(super) closing: CancellationToken,
    pub(super) leave: CancellationToken,
    watcher: Arc<Watcher>,
}

impl Fakes {
    /// Programs that end so, one after the other.
    pub(super) fn new(statuses: &[Status]) -> Self {
        let mut request = testing::request();
        request.code = None;
        let run = RunRecord {
            id: RunId::random(),
            sequence: 1,
            tenant: TenantId::default(),
            client: testing::client("a"),
            request,
            state: RunState::Running {
                started_at: Timestamp::now(),
                cancel_requested: false,
            },
            accepted_at: Timestamp::now(),
        };
        Self {
            run,
            origin: Origin::New(ExecutionId::random()),
            takeovers: 0,
            runner: FakeRunner {
                statuses: Arc::new(Mutex::new(statuses.iter().copied().collect())),
                look: Status::Success,
                look_output: SCRIPT_OUTPUT.to_owned(),
                looked: Arc::default(),
                calls: Arc::default(),
                taken_over: Arc::default(),
                settled: Arc::default(),
                specs: Arc::default(),
                meanwhile: None,
                ran_seconds: 0.0,
            },
            coder: FakeCoder::default(),
            judge: None,
            silent_analyser: None,
            journal: Arc::default(),
            bounds: LoopBounds {
                wall: Duration::from_secs(600),
                tokens: None,
            },
            gate: Gate::open(),
            cancel: CancellationToken::new(),
            closing: CancellationToken::new(),
            leave: CancellationToken::new(),
            watcher: Arc::default(),
        }
    }

    pub(super) async fn carry_out(&self) -> CarriedOut {
        let judge = self
            .judge
            .map(|judging| Arc::new(FakeJudge(judging)) as Arc<dyn Judge>);
        let analyser = self.silent_analyser.clone();
        let crew = Crew {
            coder: Arc::new(self.coder.clone()),
            judge,
            analyser: analyser.map(|cancels| Arc::new(SilentAnalyser(cancels)) as _),
        };
        let runner = Arc::new(self.runner.clone());
        let generated = Generated::new(runner, crew.clone(), crew, self.bounds);
        let context = RunContext {
            origin: self.origin.clone(),
            takeovers: self.takeovers,
            gate: self.gate.clone(),
            cancel: self.cancel.clone(),
            closing: self.closing.clone(),
            leave: self.leave.clone(),
            journal: Arc::clone(&self.journal) as _,
            observer: Arc::clone(&self.watcher) as _,
        };
        generated.carry_out(&self.run, &context).await
    }

    /// It is not carried out to its end, but left to the next daemon.
    pub(super) async fn is_left(&self) {
        tokio::select! {
            biased;
            () = self.leave.cancelled() => {}
            done = self.carry_out() => panic!("{done:?}"),
        }
    }

    pub(super) fn observed(&self) -> Vec<String> {
        self.watcher.0.lock().unwrap().clone()
    }
}

#[derive(Debug, Clone)]
pub(super) struct FakeRunner {
    statuses: Arc<Mutex<VecDeque<Status>>>,
    pub(super) look: Status,
    pub(super) look_output: String,
    looked: Arc<AtomicBool>,
    pub(super) calls: Arc<AtomicUsize>,
    pub(super) taken_over: Arc<AtomicUsize>,
    /// Told that their results are on disk.
    pub(super) settled: Arc<Mutex<Vec<ExecutionId>>>,
    pub(super) specs: Arc<Mutex<Vec<ExecutionSpec>>>,
    /// Cancelled while a program of a turn runs.
    pub(super) meanwhile: Option<CancellationToken>,
    /// How long programs say that they ran.
    pub(super) ran_seconds: f64,
}

impl FakeRunner {
    /// No look at the data set is expected.
    pub(super) fn skip_look(&self) {
        self.looked.store(true, Ordering::SeqCst);
    }
}

#[async_trait]
impl Runner for FakeRunner {
    fn reserve(&self, spec: ExecutionSpec) -> ExecutionId {
        spec.id
    }

    fn release(&self, _id: &ExecutionId) {}

    fn redaction(&self, _dataset: Option<&Path>) -> Redaction {
        Redaction::default()
    }

    async fn execute(
        &self,
        spec: &ExecutionSpec,
        _cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Executed {
        self.calls.fetch_add(1, Ordering::SeqCst);
        self.specs.lock().unwrap().push(spec.clone());
        let (status, stdout) = if self.looked.swap(true, Ordering::SeqCst) {
            if let Some(token) = &self.meanwhile {
                token.cancel();
            }
            let next = self.statuses.lock().unwrap().pop_front();
            (
                next.expect("no further execution is expected"),
                "output".to_owned(),
            )
        } else {
            (self.look, self.look_output.clone())
        };
        observer.observe(RunEvent::Output {
            stream: Stream::Stdout,
            bytes: stdout.clone().into_bytes(),
        });
        let mut result = result(status);
        result.execution_id = spec.id.clone();
        result.stdout = stdout;
        result.duration_seconds = self.ran_seconds;
        if status == Status::InvalidOutput {
            result.missing_expected_files = vec!["predictions.csv".to_owned()];
        }
        Executed {
            result,
            evidence: evidence(),
        }
    }

    async fn take_over(
        &self,
        spec: &ExecutionSpec,
        _gate: &Gate,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Executed {
        self.taken_over.fetch_add(1, Ordering::SeqCst);
        self.execute(spec, cancel, observer).await
    }

    async fn settle(&self, id: &ExecutionId) {
        self.settled.lock().unwrap().push(id.clone());
    }

    async fn withdraw(&self, _id: &ExecutionId) {}

    async fn outcome(&self, result: &mut ExecutionResult) -> RunOutcome {
        RunOutcome {
            execution_duration: Some(result.duration_seconds),
            ..RunOutcome::without_execution(Ending::Fail, String::new())
        }
    }
}

/// What a coder does.
#[derive(Debug, Clone, Default)]
pub(super) enum Coding {
    /// Writes.
    #[default]
    Writes,
    Empty,
    FailsAt(u32),
    HangsAt(u32),
    CancelsAt(u32, CancellationToken),
    /// Writes after so long.
    TakesSeconds(u64),
    /// Writes, but by then this is cancelled.
    WritesAfter(CancellationToken),
}

#[derive(Debug, Clone, Default)]
pub(super) struct FakeCoder {
    pub(super) manner: Coding,
    /// The programs that it was told of.
    pub(super) knew: Arc<Mutex<Vec<String>>>,
    pub(super) profile_was_known: Arc<AtomicBool>,
    stops_after: Arc<AtomicU32>,
}

impl FakeCoder {
    pub(super) fn stops_after(&self, iteration: u32) {
        self.stops_after.store(iteration, Ordering::SeqCst);
    }
}

#[async_trait]
impl Coder for FakeCoder {
    async fn write(&self, assignment: &Assignment<'_>) -> Written {
        let iteration = assignment.iteration;
        let previous = assignment.previous.map_or("", |previous| previous.code);
        self.knew.lock().unwrap().push(previous.to_owned());
        let known = assignment.seen.profile.training_table().is_some();
        self.profile_was_known.store(known, Ordering::SeqCst);
        let stops_after = self.stops_after.load(Ordering::SeqCst);
        let failed = || Err("nothing came to mind".to_owned());
        let written = || {
            if stops_after > 0 && iteration > stops_after {
                failed()
            } else {
                Ok(format!("program {iteration}"))
            }
        };
        let code = match &self.manner {
            Coding::Writes => written(),
            Coding::Empty => Ok("  \n".to_owned()),
            Coding::FailsAt(at) if *at == iteration => failed(),
            Coding::HangsAt(at) if *at == iteration => std::future::pending().await,
            Coding::CancelsAt(at, cancel) if *at == iteration => {
                cancel.cancel();
                std::future::pending().await
            }
            Coding::TakesSeconds(seconds) => {
                tokio::time::sleep(Duration::from_secs(*seconds)).await;
                written()
            }
            Coding::WritesAfter(token) => {
                token.cancel();
                written()
            }
            Coding::FailsAt(_) | Coding::HangsAt(_) | Coding::CancelsAt(..) => written(),
        };
        Written {
            code,
            usage: ModelUsage {
                calls: 1,
                prompt_tokens: 100,
                completion_tokens: 10,
                ..ModelUsage::default()
            },
        }
    }
}

/// What a judge does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Judging {
    Always(Decision),
    Hangs,
    Panics,
}

#[derive(Debug)]
struct FakeJudge(Judging);

#[async_trait]
impl Judge for FakeJudge {
    async fn judge(&self, _review: &Review<'_>) -> Judged {
        let decision = match self.0 {
            Judging::Always(decision) => decision,
            Judging::Hangs => std::future::pending().await,
            Judging::Panics => panic!("nobody is to be asked"),
        };
        Judged {
            verdict: Ok(Verdict {
                decision,
                confidence: 0.9,
                issues: Vec::new(),
                reason: Some("As told.".to_owned()),
            }),
            usage: ModelUsage::default(),
        }
    }
}

#[derive(Debug)]
struct SilentAnalyser(Option<CancellationToken>);

#[async_trait]
impl Analyser for SilentAnalyser {
    async fn explain(&self, _failure: &Failure<'_>) -> Explained {
        if let Some(token) = &self.0 {
            token.cancel();
        }
        std::future::pending().await
    }
}

#[derive(Debug, Default)]
struct Watcher(Mutex<Vec<String>>);

impl Observer for Watcher {
    fn observe(&self, event: RunEvent) {
        let text = if let RunEvent::Output { bytes, .. } = event {
            String::from_utf8(bytes).unwrap()
        } else {
            format!("{event:?}")
        };
        self.0.lock().unwrap().push(text);
    }
}
