//! One program of a run, executed as often as the infrastructure ends it and the client wants it again.

use std::future::pending;
use std::time::Duration;

use super::executor::Executed;
use super::retry;
use super::runner::Runner;
use crate::execution::ExecutionSpec;
use crate::ids::ExecutionId;
use crate::runs::RunRecord;
use crate::runs::events::RunEvent;
use crate::runs::record::PlannedProgram;
use crate::runs::service::{Observer, Origin, RunContext};
use crate::telemetry::log_chain;

/// The execution that is about to begin or to be gone on with; its id is in the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attempt {
    /// From 1.
    pub(super) number: u32,
    /// Whether an earlier daemon planned it, and may have started it.
    pub(super) is_left: bool,
}

impl Attempt {
    pub(super) const FIRST: Self = Self {
        number: 1,
        is_left: false,
    };

    /// The execution that a run begins with; `None` if there is none.
    pub(super) fn of(origin: &Origin) -> Option<(ExecutionId, Self)> {
        match origin {
            Origin::New(id) => Some((id.clone(), Self::FIRST)),
            Origin::Left(open) => {
                let attempt = Self {
                    number: open.attempt,
                    is_left: true,
                };
                Some((open.id.clone(), attempt))
            }
            Origin::Between => None,
        }
    }
}

/// Who executes what for whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempts<'a> {
    pub(super) runner: &'a dyn Runner,
    pub(super) run: &'a RunRecord,
    pub(super) context: &'a RunContext,
    /// Is told what happens.
    pub(super) observer: &'a dyn Observer,
    /// What has to be written down of each further attempt.
    pub(super) program: Option<&'a PlannedProgram>,
}

impl Attempts<'_> {
    /// Executes it, and again under another id. In the end `spec` has the last one.
    pub(super) async fn execute(&self, spec: &mut ExecutionSpec, first: Attempt) -> Executed {
        let retries = self.run.request.retries;
        let mut attempt = first;
        let mut earlier = Vec::new();
        loop {
            let mut executed = self.once(spec, attempt.is_left).await;
            let result = &mut executed.result;
            let next = match retry::pause(result, attempt.number, retries) {
                Some(pause) if !self.context.cancel.is_cancelled() => {
                    self.again((&spec.id, attempt.number), pause).await
                }
                Some(_) | None => None,
            };
            let Some(next) = next else {
                result.warnings.extend(earlier);
                return executed;
            };
            earlier.push(retry::note(result, attempt.number, retries));
            spec.id = next;
            attempt = Attempt {
                number: attempt.number + 1,
                is_left: false,
            };
        }
    }

    async fn once(&self, spec: &ExecutionSpec, is_left: bool) -> Executed {
        let RunContext { gate, cancel, .. } = self.context;
        let observer = self.observer;
        observer.observe(RunEvent::ExecutionStarted(spec.id.clone()));
        let executed = if is_left {
            self.runner.take_over(spec, gate, cancel, observer).await
        } else {
            self.runner.execute(spec, cancel, observer).await
        };
        let status = executed.result.status.as_str();
        observer.observe(RunEvent::ExecutionEnded(spec.id.clone(), status));
        executed
    }

    /// Plans another execution in place of one that the infrastructure ended, and gives its id; `None`
    /// if that could not be written down, or if the run is to end meanwhile. Once the daemon goes down
    /// the lost one stays open, for the next daemon to find and try again.
    async fn again(
        &self,
        (lost, attempt): (&ExecutionId, u32),
        pause: Duration,
    ) -> Option<ExecutionId> {
        let waiting = async {
            tokio::time::sleep(pause).await;
            self.context.gate.opened().await;
        };
        let waiting = before_closing(self.context, waiting);
        self.context.cancel.run_until_cancelled(waiting).await?;
        let next = ExecutionId::random();
        // In this order: a program that is carried out always has an execution that is open.
        let planned = async {
            let journal = &self.context.journal;
            let planning = journal.plan_execution(self.run.id, &next, attempt + 1, self.program);
            planning.await?;
            journal.abandon_execution(lost).await
        };
        match planned.await {
            Ok(()) => {
                self.runner.settle(lost).await;
                // Nothing of it is recorded.
                self.runner.withdraw(lost).await;
                Some(next)
            }
            Err(error) => {
                log_chain("another attempt could not be written down", &error);
                None
            }
        }
    }
}

/// What comes before something new is begun in a run. Once the daemon goes down nothing is: the run is
/// left to the next start as it is, and this never comes.
pub(super) async fn before_closing<T>(context: &RunContext, work: impl Future<Output = T>) -> T {
    match context.closing.run_until_cancelled(work).await {
        Some(done) if !context.closing.is_cancelled() => done,
        Some(_) | None => {
            context.leave.cancel();
            pending().await
        }
    }
}
