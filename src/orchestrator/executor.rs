//! One program in one sandbox, from its preparation to its start; what comes after is in `following`.

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fumehood_protocol::ResumeToken;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{info, warn};

use super::collection::First;
use super::conclusion::never_started;
use super::conversation;
use super::course::Course;
use super::ending::HeldSandboxes;
use super::evidence;
use super::following::Followed;
use super::handoff::{Handoff, Keeper, Unkept};
use super::host_paths::{HostPaths, Redacting, redact};
use super::sandboxes::{Prepared, Sandboxes};
use super::stopping;
use super::takeover::{Left, Takeover};
use super::trouble::Trouble;
use crate::artifacts::{OutputRoot, Staging};
use crate::execution::cause::Verdict;
use crate::execution::paths::input_file_path;
use crate::execution::redaction::Redaction;
use crate::execution::result::{ExecutionResult, SandboxStart};
use crate::execution::spec::ExecutionSpec;
use crate::fault_point::FaultPoint;
use crate::ids::ExecutionId;
use crate::receipt::Evidence;
use crate::runs::gate::Gate;
use crate::runs::service::Observer;
use crate::telemetry::log_chain;

/// Runs programs. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Executor {
    pub(super) sandboxes: Sandboxes,
    pub(super) outputs: OutputRoot,
    host_paths: HostPaths,
    /// `None` if no other process takes over what is executed here.
    pub(super) takeover: Option<Arc<Takeover>>,
    pub(super) held: HeldSandboxes,
    /// Programs that are just being started; closed once all is to be left behind.
    starts: TaskTracker,
}

/// How long a start that is under way is waited for: a file and a message.
const START_UNDER_WAY: Duration = Duration::from_secs(2);

/// Who ends a program early, and who is told what it does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Talk<'a> {
    pub(super) cancel: &'a CancellationToken,
    pub(super) observer: &'a dyn Observer,
}

/// An execution that is over.
#[derive(Debug)]
pub struct Executed {
    /// How it ended.
    pub result: ExecutionResult,
    /// What it was made from and of.
    pub evidence: Evidence,
}

/// A program that was told to start, who puts away how far the talk about it is, and what leads back
/// into that.
type Started = (Prepared, Box<dyn Keeper>, ResumeToken);

impl Executor {
    /// An executor that publishes artifacts under `outputs` and takes `host_paths` out of what
    /// programs show. With `takeover` another process can take over what it runs.
    #[must_use]
    pub fn new(
        sandboxes: Sandboxes,
        outputs: OutputRoot,
        host_paths: HostPaths,
        takeover: Option<Takeover>,
    ) -> Self {
        Self {
            sandboxes,
            outputs,
            host_paths,
            takeover: takeover.map(Arc::new),
            held: HeldSandboxes::default(),
            starts: TaskTracker::new(),
        }
    }

    /// From now on sandboxes that are dropped stay, for the next daemon to take over. Waits, within a
    /// bound, for those that are just being told to start their programs, so that the next daemon finds
    /// programs that run; no other one is told to any more.
    pub async fn leave_behind(&self) {
        self.sandboxes.leave_behind();
        self.starts.close();
        if timeout(START_UNDER_WAY, self.starts.wait()).await.is_err() {
            warn!("a start is under way; the next daemon finds out what became of it");
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

    /// What is taken out of what a program with this data set shows.
    pub(super) fn redaction(&self, dataset: Option<&Path>) -> Redaction {
        self.host_paths.redaction(dataset)
    }

    /// Runs one program to its end. Never fails: whatever happens is in the result.
    pub async fn execute(
        &self,
        spec: &ExecutionSpec,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Executed {
        self.executed(spec, cancel, observer, None).await
    }

    /// A new execution, or one that an earlier daemon left.
    pub(super) async fn executed(
        &self,
        spec: &ExecutionSpec,
        cancel: &CancellationToken,
        observer: &dyn Observer,
        left: Option<(Left, &Gate)>,
    ) -> Executed {
        let mut evidence = evidence::of(spec);
        let dataset = spec.dataset.as_ref().map(|pin| pin.path.as_path());
        let redaction = self.host_paths.redaction(dataset);
        let observer = Redacting::new(observer, &redaction);
        let talk = Talk {
            cancel,
            observer: &observer,
        };
        let mut result = match left {
            None => self.execute_knowing(spec, talk, &mut evidence).await,
            Some(left) => {
                self.take_over_knowing(spec, left, talk, &mut evidence)
                    .await
            }
        };
        observer.finish();
        redact(&mut result, &redaction);
        Executed { result, evidence }
    }

    /// Adds to the evidence what turns out on the way.
    pub(super) async fn execute_knowing(
        &self,
        spec: &ExecutionSpec,
        talk: Talk<'_>,
        evidence: &mut Evidence,
    ) -> ExecutionResult {
        let cancel = talk.cancel;
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
        let (mut prepared, keeper, token) = match self.start(spec, prepared, cancel).await {
            Ok(started) => started,
            Err(trouble) => return failed_before_start(spec, &trouble),
        };
        let sandbox_use = prepared.sandbox_use;
        evidence.isolation = Some(prepared.ready.isolation.clone());
        if let Some(dataset) = &mut evidence.dataset {
            dataset.listing = prepared.dataset.take();
        }
        let followed = Followed {
            sandbox: prepared.ready.sandbox,
            session: prepared.ready.session,
            token,
            staging: Some(staging),
            keeper,
            first: First::Certainly,
            notes: prepared.notes,
        };
        let course = Course::new(&spec.limits);
        let mut result = self.follow(spec, followed, course, talk, evidence).await;
        result.sandbox = Some(sandbox_use);
        result
    }

    async fn prepare(&self, spec: &ExecutionSpec) -> Result<(Prepared, Staging), Trouble> {
        tokio::try_join!(self.sandboxes.prepare(spec), self.stage(&spec.id))
    }

    pub(super) async fn stage(&self, id: &ExecutionId) -> Result<Staging, Trouble> {
        let (outputs, id) = (self.outputs.clone(), id.clone());
        let staging = spawn_blocking(move || outputs.stage(&id)).await??;
        FaultPoint::AfterStage.reached();
        Ok(staging)
    }

    /// Starts the program. A sandbox that has waited may have died or frozen since it was taken: the
    /// program gets a new one then. Not any more once a sandbox was told to start it: nobody knows
    /// then whether it ran, and no program runs twice (invariant 3).
    async fn start(
        &self,
        spec: &ExecutionSpec,
        prepared: Prepared,
        cancel: &CancellationToken,
    ) -> Result<Started, Trouble> {
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
        self.start_in(spec, prepared).await
    }

    /// To be held from when it is put away that a program may have been started until it was. Never comes
    /// once all is left behind: whoever waits is dropped then, and nothing was started.
    async fn start_begins(&self) -> TaskTrackerToken {
        let under_way = self.starts.token();
        if !self.starts.is_closed() {
            return under_way;
        }
        drop(under_way);
        pending().await
    }

    /// Starts the program in its sandbox, or destroys that. What the next daemon needs is put away
    /// before the program can start.
    async fn start_in(
        &self,
        spec: &ExecutionSpec,
        mut prepared: Prepared,
    ) -> Result<Started, Trouble> {
        let starting = async {
            let _under_way = self.start_begins().await;
            let ready = &mut prepared.ready;
            let token = conversation::new_token();
            let keeper: Box<dyn Keeper> = match &self.takeover {
                None => Box::new(Unkept),
                Some(takeover) => {
                    let handoff = Handoff::of_start(
                        token,
                        ready.request.uid,
                        &ready.isolation,
                        prepared.dataset.as_ref(),
                        (prepared.sandbox_use, &prepared.notes),
                    );
                    let keeper = takeover.handoffs.put(&spec.id, handoff).await?;
                    ready.sandbox.outlive();
                    Box::new(keeper)
                }
            };
            FaultPoint::BeforeProgram.reached();
            conversation::start(&mut ready.session, &spec.limits, token).await?;
            FaultPoint::AfterProgram.reached();
            Ok((keeper, token))
        };
        match starting.await {
            Ok((keeper, token)) => Ok((prepared, keeper, token)),
            Err(trouble) => {
                stopping::destroy(prepared.ready.sandbox).await;
                Err(trouble)
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

pub(super) fn failed_before_start(spec: &ExecutionSpec, trouble: &Trouble) -> ExecutionResult {
    if matches!(trouble, Trouble::Cancelled) {
        info!(execution.id = %spec.id, "cancelled before the program was started");
    } else {
        log_chain("a program could not be started", trouble);
    }
    never_started(spec, trouble.verdict())
}
