//! Taking over what an earlier daemon left: its sandboxes are attached to again, and their programs
//! followed to the end as if nothing had happened.
//!
//! `rules` decides; this file asks, attaches and repeats. What is left of executions is read
//! before anything new is started ([`Takeover::read`]), so that nothing new gets the uid
//! of a sandbox that is there.

pub(super) mod rules;

mod losses;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fumehood_protocol::message::Stream;
use rand::Rng as _;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::losses::{cancelled, lost, told};
use self::rules::{Host, Loss, Patience, PutAway, Seen, Step, step};
use super::collection::First;
use super::conclusion::{Gathered, conclude};
use super::conversation::{self, HOLD, TalkEnd};
use super::course::{Course, wall};
use super::evidence;
use super::executor::{Executed, Executor, Talk, failed_before_start};
use super::following::Followed;
use super::handoff::{Handoff, HandoffError, Handoffs, Keeper, Unkept};
use super::resuming::{ASK_AGAIN, Resume};
use super::stopping;
use crate::execution::cause::Stop;
use crate::execution::result::ExecutionResult;
use crate::execution::spec::ExecutionSpec;
use crate::ids::ExecutionId;
use crate::receipt::Evidence;
use crate::runs::events::RunEvent;
use crate::runs::gate::Gate;
use crate::runs::service::Observer;
use crate::sandbox::Sandbox;
use crate::sandbox::engine::Remains;
use crate::sandbox::session::Gap;
use crate::sandbox::slots::{Slot, Slots};
use crate::telemetry::log_chain;

/// How long a supervisor may take to be attached to again by a run that is to end: it still has the end of
/// the program to tell.
const LAST_ATTEMPT: Duration = Duration::from_secs(5);

/// For a result of which something may not have been heard.
const MAY_BE_INCOMPLETE: &str =
    "The daemon was restarted while the program ran; its output may be incomplete.";

/// What an earlier daemon left of an execution.
#[derive(Debug)]
pub(super) struct Left {
    handoff: Result<Option<Handoff>, HandoffError>,
    host: Host,
    /// Kept from others for its sandbox.
    slot: Option<Slot>,
}

/// An execution that an earlier daemon left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftExecution {
    /// Its id.
    pub id: ExecutionId,
    /// Whether the host was started anew since it was planned, or may have been.
    pub host_restarted: bool,
}

/// Where the next daemon finds what it needs, and what an earlier one left.
#[derive(Debug)]
pub struct Takeover {
    pub(super) handoffs: Handoffs,
    left: Mutex<HashMap<ExecutionId, Left>>,
}

impl Takeover {
    /// Reads what is left of these executions, which are to be taken over, and forgets all others.
    /// The slots of their sandboxes are taken: to be called before anything else takes one.
    pub async fn read(handoffs: Handoffs, slots: &Slots, executions: &[LeftExecution]) -> Self {
        let mut left = HashMap::new();
        for LeftExecution { id, host_restarted } in executions {
            let handoff = handoffs.left(id).await;
            let known = handoff.as_ref().ok().and_then(Option::as_ref);
            let slot = known.and_then(|handoff| slots.take_uid(handoff.uid));
            let host = if *host_restarted {
                Host::Restarted
            } else {
                Host::Same
            };
            let found = Left {
                handoff,
                host,
                slot,
            };
            left.insert(id.clone(), found);
        }
        let ids: Vec<ExecutionId> = left.keys().cloned().collect();
        handoffs.keep_only(&ids).await;
        Self {
            handoffs,
            left: Mutex::new(left),
        }
    }

    fn take(&self, id: &ExecutionId) -> Option<Left> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.remove(id)
    }
}

impl Executor {
    /// Goes on with an execution that an earlier daemon left, as [`Takeover::read`] found it; carries
    /// out any other one. Never fails: whatever happens is in the result.
    pub async fn take_over(
        &self,
        spec: &ExecutionSpec,
        gate: &Gate,
        cancel: &CancellationToken,
        observer: &dyn Observer,
    ) -> Executed {
        let takeover = self.takeover.as_ref();
        let left = takeover.and_then(|takeover| takeover.take(&spec.id));
        let left = left.map(|left| (left, gate));
        self.executed(spec, cancel, observer, left).await
    }

    /// Adds to the evidence what is known of the execution.
    pub(super) async fn take_over_knowing(
        &self,
        spec: &ExecutionSpec,
        (left, gate): (Left, &Gate),
        talk: Talk<'_>,
        evidence: &mut Evidence,
    ) -> ExecutionResult {
        let Left {
            handoff,
            host,
            slot,
        } = left;
        let (put_away, handoff) = match handoff {
            Ok(None) => (PutAway::Nothing, None),
            Ok(Some(handoff)) => (handoff.put_away(), Some(handoff)),
            Err(error) => {
                log_chain("an execution cannot be taken over", &error);
                (PutAway::Senseless, None)
            }
        };
        let patience = Instant::now() + patience(spec, handoff.as_ref());
        let looking = self.look(&spec.id, (put_away, host), patience, talk.cancel);
        let (step, found) = looking.await;
        info!(execution.id = %spec.id, ?step, "an execution of an earlier daemon is taken over");
        if let Some(handoff) = &handoff {
            evidence.isolation = Some(handoff.isolation.clone());
            if let Some(dataset) = &mut evidence.dataset {
                dataset.listing.clone_from(&handoff.dataset);
            }
        }
        let mut result = match (step, found, handoff) {
            (Step::Attach, Found::Running(mut sandbox), Some(handoff)) => {
                if let Some(slot) = slot {
                    sandbox.keep(slot);
                }
                let sandbox_use = handoff.sandbox_use;
                let running = self.sandboxes.running();
                let going_on = self.go_on(spec, sandbox, (handoff, host), talk, evidence);
                if let Some(mut result) = going_on.await {
                    result.sandbox = Some(sandbox_use);
                    return result;
                }
                drop(running);
                return self.afresh(spec, gate, talk, evidence).await;
            }
            (Step::Afresh, found, _) => {
                drop(found);
                return self.afresh(spec, gate, talk, evidence).await;
            }
            (Step::Lost(loss), found, handoff) => {
                let memory_kill = match found {
                    Found::Stopped { memory_kill } => Some(memory_kill),
                    Found::Running(_) | Found::Nothing => None,
                };
                let stop = self.clear(&spec.id).await;
                if stop != Stop::Confirmed
                    && let Some(slot) = slot
                {
                    // Something may still run under this uid.
                    slot.never_free();
                }
                if talk.cancel.is_cancelled() {
                    return cancelled(spec, handoff.as_ref(), stop);
                }
                lost(spec, loss, handoff.as_ref(), memory_kill)
            }
            // Looking ends with none of these.
            (Step::Attach | Step::Wait, _, handoff) => {
                lost(spec, Loss::Senseless, handoff.as_ref(), None)
            }
        };
        result.warnings.push(MAY_BE_INCOMPLETE.to_owned());
        result
    }

    /// Looks at what is left, until it is known what to do with it.
    async fn look(
        &self,
        id: &ExecutionId,
        (put_away, host): (PutAway, Host),
        patience: Instant,
        cancel: &CancellationToken,
    ) -> (Step, Found) {
        loop {
            let (seen, found) = match self.sandboxes.engine().remains(id).await {
                Ok(Remains::Missing) => (Seen::Missing, Found::Nothing),
                Ok(Remains::Stopped {
                    memory_kill,
                    never_started,
                }) => (stopped(never_started), Found::Stopped { memory_kill }),
                Ok(Remains::Running(sandbox)) => (Seen::Running, Found::Running(sandbox)),
                Err(error) => {
                    log_chain("the engine cannot be asked for a sandbox", &error);
                    (Seen::Unknown, Found::Nothing)
                }
            };
            // Who does not want the result any more does not wait for it either.
            let patience = if Instant::now() < patience && !cancel.is_cancelled() {
                Patience::Left
            } else {
                Patience::Over
            };
            match step(put_away, host, seen, patience) {
                Step::Wait => {
                    cancel.run_until_cancelled(sleep(ASK_AGAIN)).await;
                }
                step @ (Step::Afresh | Step::Attach | Step::Lost(_)) => return (step, found),
            }
        }
    }

    /// Carries out an execution that was certainly never started, as if nothing had been done for it.
    async fn afresh(
        &self,
        spec: &ExecutionSpec,
        gate: &Gate,
        talk: Talk<'_>,
        evidence: &mut Evidence,
    ) -> ExecutionResult {
        info!(execution.id = %spec.id, "an execution that was never started is carried out afresh");
        *evidence = evidence::of(spec);
        // First: once its sandbox is gone nobody could tell any more that it was never started.
        if let Some(takeover) = &self.takeover {
            takeover.handoffs.forget(&spec.id).await;
        }
        self.clear(&spec.id).await;
        // Nothing new runs on a host that is not known to be fit for it.
        talk.cancel.run_until_cancelled(gate.opened()).await;
        // A sandbox that the earlier daemon asked for may come true in this moment.
        self.sandboxes.engine().may_appear(&spec.id);
        self.execute_knowing(spec, talk, evidence).await
    }

    /// Removes the sandbox of an execution, and what was published of it: nothing of it is recorded.
    /// Tells what is known of the end of the sandbox.
    async fn clear(&self, id: &ExecutionId) -> Stop {
        let stop = match self.sandboxes.engine().destroy(id).await {
            Ok(()) => Stop::Confirmed,
            Err(error) => {
                log_chain("a sandbox could not be removed; it will be", &error);
                if error.is_absence() {
                    Stop::Unanswered
                } else {
                    Stop::Failed
                }
            }
        };
        self.withdraw(id).await;
        stop
    }

    /// Takes back what an earlier daemon published and did not record.
    pub(super) async fn withdraw(&self, id: &ExecutionId) {
        let (outputs, id) = (self.outputs.clone(), id.clone());
        if let Err(error) = tokio::task::spawn_blocking(move || outputs.withdraw(&id)).await {
            warn!(%error, "what was published of an execution could not be taken back");
        }
    }

    /// Goes on with a program whose sandbox is there. `None` if it turns out that it was never started;
    /// its supervisor has ended then.
    async fn go_on(
        &self,
        spec: &ExecutionSpec,
        mut sandbox: Box<dyn Sandbox>,
        (handoff, host): (Handoff, Host),
        talk: Talk<'_>,
        evidence: &Evidence,
    ) -> Option<ExecutionResult> {
        let limits = &spec.limits;
        self.withdraw(&spec.id).await;
        // The program needs none to go on: there may be room by its end.
        let staging = self.stage(&spec.id).await;
        let staging = staging.inspect_err(|trouble| {
            log_chain("artifacts cannot be gathered yet", trouble);
        });
        // Repeated for those who follow it here; what comes after is sent again anyway.
        for (stream, kept) in [
            (Stream::Stdout, &handoff.progress.stdout),
            (Stream::Stderr, &handoff.progress.stderr),
        ] {
            let bytes = kept.bytes().to_vec();
            if !bytes.is_empty() {
                talk.observer.observe(RunEvent::Output { stream, bytes });
            }
        }
        let course = Course::resumed(limits, &handoff);
        let until = Instant::now() + patience(spec, Some(&handoff));
        let is_unwanted = async {
            talk.cancel.cancelled().await;
            sleep(LAST_ATTEMPT).await;
        };
        let attached = tokio::select! {
            attached = resume(&handoff).attach(sandbox.as_mut(), until) => {
                attached.map_err(TalkEnd::Lost)
            }
            () = is_unwanted => Err(TalkEnd::LateOnCancel),
        };
        let mut session = match attached {
            Ok(session) => session,
            Err(end) => {
                if let TalkEnd::Lost(error) = &end {
                    log_chain("a supervisor could not be attached to again", error);
                }
                let seen = stopped(sandbox.has_never_started().await.unwrap_or(false));
                if step(handoff.put_away(), host, seen, Patience::Over) == Step::Afresh {
                    stopping::destroy(sandbox).await;
                    return None;
                }
                let mut notes = handoff.notes.clone();
                notes.push(MAY_BE_INCOMPLETE.to_owned());
                let (sandbox, stop) = stopping::kill(sandbox, &mut notes).await;
                let mut memory_kill = None;
                if let Some(sandbox) = sandbox {
                    memory_kill = sandbox.memory_kill_seen().await.ok();
                    notes.extend(stopping::destroy(sandbox).await);
                }
                let talk = course.ended(told(&handoff, end, &mut notes));
                let engine = (stop, memory_kill);
                return Some(conclude(spec, talk, engine, Gathered::default(), notes));
            }
        };
        let progress = &handoff.progress;
        if progress.received == 0
            && let Err(trouble) = conversation::catch_up(&mut session).await
        {
            stopping::destroy(sandbox).await;
            return Some(failed_before_start(spec, &trouble));
        }
        let exited = progress.exited.clone();
        let keeper: Box<dyn Keeper> = match &self.takeover {
            None => Box::new(Unkept),
            Some(takeover) => match takeover.handoffs.put(&spec.id, handoff.clone()).await {
                Ok(keeper) => Box::new(keeper),
                Err(error) => {
                    log_chain("an execution could not be put away again", &error);
                    Box::new(Unkept)
                }
            },
        };
        let followed = Followed {
            sandbox,
            session,
            token: handoff.token,
            staging: staging.ok(),
            keeper,
            first: First::NotCertainly(rand::rng().random()),
            notes: handoff.notes,
        };
        Some(match exited {
            Some(exited) => {
                let conversation = course.ended(TalkEnd::Reported(exited));
                self.end(spec, followed, conversation, evidence).await
            }
            None => self.follow(spec, followed, course, talk, evidence).await,
        })
    }
}

/// What the engine found.
#[derive(Debug)]
enum Found {
    Nothing,
    Stopped { memory_kill: bool },
    Running(Box<dyn Sandbox>),
}

/// What a sandbox is in which nothing runs.
fn stopped(never_started: bool) -> Seen {
    if never_started {
        Seen::NeverStarted
    } else {
        Seen::Stopped
    }
}

/// How long there can be a result in a sandbox that cannot be reached at the moment.
fn patience(spec: &ExecutionSpec, handoff: Option<&Handoff>) -> Duration {
    let longest = rules::longest_held(wall(&spec.limits));
    handoff.map_or(HOLD, |handoff| longest.saturating_sub(handoff.passed()))
}

/// Where the talk of an earlier daemon is gone on with.
fn resume(handoff: &Handoff) -> Resume {
    let progress = &handoff.progress;
    Resume {
        token: handoff.token,
        received: progress.received,
        gap: match progress.exited {
            Some(_) => Gap::Allowed,
            None => Gap::None,
        },
    }
}

#[cfg(test)]
mod tests;
