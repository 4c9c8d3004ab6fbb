//! The circuits of an engine's calls, by kind, and what is known of them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::client::{self, Call};
use crate::clock;
use crate::sandbox::circuit::{Circuit, CircuitPolicy, Failure, Outcome, Standing, Ticket};
use crate::sandbox::engine::EngineError;
use crate::sandbox::health::{CallBounds, CallHealth, CallKind, CallState};

/// Whether a call respects its circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// It is not made while the circuit rests.
    Polite,
    /// It is made whatever the circuit says: it harms nobody, or must not be left out.
    Insistent,
}

/// All calls to one engine.
#[derive(Debug)]
pub(super) struct Calls {
    bounds: CallBounds,
    guarded: Mutex<[Guarded; CallKind::ALL.len()]>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Guarded {
    kind: CallKind,
    circuit: Circuit,
    /// When the first call failed, and how, while it is open.
    trouble: Option<(Timestamp, String)>,
    /// Whether what it met while it is open is that nobody was there at all.
    is_deserted: bool,
    opened: u64,
    failed: u64,
    retried: u64,
}

impl Calls {
    pub(super) fn new(bounds: CallBounds) -> Self {
        let policy = CircuitPolicy {
            failures: bounds.failures,
            pause: bounds.pause,
            longest_pause: bounds.longest_pause,
        };
        let guarded = CallKind::ALL.map(|kind| Guarded {
            kind,
            circuit: Circuit::new(policy),
            trouble: None,
            is_deserted: false,
            opened: 0,
            failed: 0,
            retried: 0,
        });
        Self {
            bounds,
            guarded: Mutex::new(guarded),
            changed: watch::Sender::new(()),
        }
    }

    pub(super) fn bounds(&self) -> &CallBounds {
        &self.bounds
    }

    /// Tells whoever follows that something is not as before.
    pub(super) fn tell(&self) {
        self.changed.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The right to make a call.
    pub(super) fn begin(&self, call: Call, manner: Manner) -> Result<Turn<'_>, EngineError> {
        let kind = call.kind();
        let ticket = match manner {
            Manner::Insistent => Circuit::insist(),
            Manner::Polite => {
                let mut guarded = self.guarded();
                let guarded = &mut guarded[kind as usize];
                let passed = guarded.circuit.pass(Instant::now());
                passed.ok_or_else(|| EngineError::Resting {
                    reason: guarded
                        .trouble
                        .as_ref()
                        .map_or_else(String::new, |(_, reason)| reason.clone()),
                })?
            }
        };
        Ok(Turn {
            calls: self,
            kind,
            ticket: Some(ticket),
        })
    }

    pub(super) fn health(&self) -> Vec<CallHealth> {
        let now = Instant::now();
        let guarded = self.guarded();
        let health = guarded.iter().map(|guarded| {
            let trouble = guarded.trouble.clone().unzip();
            CallHealth {
                kind: guarded.kind,
                state: match guarded.circuit.standing(now) {
                    Standing::Closed => CallState::Well,
                    Standing::Resting { .. } => CallState::Resting,
                    Standing::Probing { .. } => CallState::Probing,
                },
                since: trouble.0,
                reason: trouble.1,
                opened: guarded.opened,
                failed: guarded.failed,
                retried: guarded.retried,
            }
        });
        health.collect()
    }

    fn settle(&self, kind: CallKind, ticket: Ticket, outcome: Outcome, words: Option<String>) {
        let now = Instant::now();
        let mut all = self.guarded();
        let was_away = all[CallKind::Ping as usize].trouble.is_some();
        let guarded = &mut all[kind as usize];
        if let Outcome::Failed(_) = outcome {
            guarded.failed += 1;
        }
        guarded.circuit.settle(ticket, outcome, now);
        let mut is_news = true;
        match (guarded.circuit.standing(now), guarded.trouble.is_some()) {
            (Standing::Closed, false) => is_news = false,
            (Standing::Closed, true) => {
                guarded.trouble = None;
                guarded.is_deserted = false;
                info!(
                    engine.call = kind.as_str(),
                    "the container engine answers again"
                );
            }
            // Known already; how long it rests may be new.
            (Standing::Resting { .. } | Standing::Probing { .. }, true) => {}
            (Standing::Resting { since, .. } | Standing::Probing { since }, false) => {
                guarded.opened += 1;
                let reason = words.unwrap_or_default();
                warn!(
                    engine.call = kind.as_str(),
                    reason, "the container engine does not answer: it is not asked for a while"
                );
                let ago = SignedDuration::try_from(now - since).unwrap_or_default();
                let at = clock::now();
                let at = at.checked_sub(ago).unwrap_or(at);
                guarded.trouble = Some((at, reason));
                guarded.is_deserted = outcome == Outcome::Failed(Failure::Certain);
            }
        }
        if kind == CallKind::Ping && outcome == Outcome::Answered {
            // Somebody is there: whoever was not, or was away, is back, and what others have met
            // belongs to that time.
            for other in all.iter_mut() {
                if was_away || other.is_deserted {
                    is_news = true;
                    other.trouble = None;
                    other.is_deserted = false;
                    other.circuit.forgive();
                }
            }
        }
        drop(all);
        if is_news {
            self.tell();
        }
    }

    fn guarded(&self) -> MutexGuard<'_, [Guarded; CallKind::ALL.len()]> {
        self.guarded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is being made. Dropping it says that nobody waits for its answer any more.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    calls: &'a Calls,
    kind: CallKind,
    ticket: Option<Ticket>,
}

impl Turn<'_> {
    /// Takes note of a failure that is not the end of the call.
    pub(super) fn tries_again(&self) {
        let mut guarded = self.calls.guarded();
        let guarded = &mut guarded[self.kind as usize];
        guarded.failed += 1;
        guarded.retried += 1;
    }

    /// Takes note of the end.
    pub(super) fn end<T>(mut self, answer: &Result<T, EngineError>) {
        let (outcome, words) = match answer {
            Ok(_) => (Outcome::Answered, None),
            Err(error) if client::is_answer(error) => (Outcome::Answered, None),
            Err(error @ EngineError::Unreachable(_)) => {
                (Outcome::Failed(Failure::Certain), Some(error.to_string()))
            }
            Err(error) => (Outcome::Failed(Failure::Doubtful), Some(error.to_string())),
        };
        if let Some(ticket) = self.ticket.take() {
            self.calls.settle(self.kind, ticket, outcome, words);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.calls
                .settle(self.kind, ticket, Outcome::Abandoned, None);
        }
    }
}
