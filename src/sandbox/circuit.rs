//! When calls of one kind are let through: a pure state machine, whose clock is its caller's.
//!
//! Closed, every call passes. After failures in a row it rests: calls are refused at once instead
//! of each waiting for its own deadline. When the rest is over one call passes as a probe; its
//! success closes the circuit, its failure begins a longer rest, up to a bound. So whatever it
//! guards is asked again for ever, ever less often, and is used again as soon as it answers.

use std::time::Duration;

use tokio::time::Instant;

/// When a circuit opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitPolicy {
    /// Doubtful failures in a row after which it rests; at least 1.
    pub failures: u32,
    /// The first rest.
    pub pause: Duration,
    /// The longest rest: each is twice the one before.
    pub longest_pause: Duration,
}

/// What a failure says of what is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Nobody is there: once is enough.
    Certain,
    /// It was late, or broke off: that can be this one call.
    Doubtful,
}

/// How a call ended, as far as the circuit is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered, whatever the answer is.
    Answered,
    /// It was not.
    Failed(Failure),
    /// Its caller went away: nothing is known.
    Abandoned,
}

/// The right to make one call; its end has to be told with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    is_probe: bool,
}

/// What a circuit is like at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Calls pass.
    Closed,
    /// Calls are refused.
    Resting {
        /// The first failure of this time.
        since: Instant,
        /// When a probe may pass.
        until: Instant,
    },
    /// One call may pass, or is on its way; all others are refused.
    Probing {
        /// The first failure of this time.
        since: Instant,
    },
}

/// A circuit.
#[derive(Debug, Clone)]
pub struct Circuit {
    policy: CircuitPolicy,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed {
        failures: u32,
        first: Option<Instant>,
    },
    Open {
        since: Instant,
        until: Instant,
        pause: Duration,
        is_probed: bool,
    },
}

impl State {
    const WELL: Self = Self::Closed {
        failures: 0,
        first: None,
    };
}

impl Circuit {
    /// A closed circuit.
    #[must_use]
    pub fn new(policy: CircuitPolicy) -> Self {
        Self {
            policy,
            state: State::WELL,
        }
    }

    /// The right to make a call now; `None` if it is refused.
    pub fn pass(&mut self, now: Instant) -> Option<Ticket> {
        match &mut self.state {
            State::Closed { .. } => Some(Ticket { is_probe: false }),
            State::Open {
                until, is_probed, ..
            } if !*is_probed && *until <= now => {
                *is_probed = true;
                Some(Ticket { is_probe: true })
            }
            State::Open { .. } => None,
        }
    }

    /// The right to make a call that is worth trying whatever the circuit says: one that harms
    /// nobody, or one that must not be left out. It is no probe, but its success counts.
    #[must_use]
    pub fn insist() -> Ticket {
        Ticket { is_probe: false }
    }

    /// Takes note of how a call ended.
    pub fn settle(&mut self, ticket: Ticket, outcome: Outcome, now: Instant) {
        match (outcome, &mut self.state) {
            // Of a call that began long ago, too: it is news all the same.
            (Outcome::Answered, _) => self.state = State::WELL,
            (Outcome::Failed(failure), State::Closed { failures, first }) => {
                *failures = failures.saturating_add(1);
                let since = *first.get_or_insert(now);
                if failure == Failure::Certain || *failures >= self.policy.failures {
                    let pause = self.policy.pause.min(self.policy.longest_pause);
                    self.state = State::Open {
                        since,
                        until: now + pause,
                        pause,
                        is_probed: false,
                    };
                }
            }
            (
                Outcome::Failed(_),
                State::Open {
                    until,
                    pause,
                    is_probed,
                    ..
                },
            ) if ticket.is_probe => {
                *pause = pause.saturating_mul(2).min(self.policy.longest_pause);
                *until = now + *pause;
                *is_probed = false;
            }
            (Outcome::Abandoned, State::Open { is_probed, .. }) if ticket.is_probe => {
                *is_probed = false;
            }
            // Calls that began before it opened add nothing to what is known.
            (Outcome::Failed(_) | Outcome::Abandoned, _) => {}
        }
    }

    /// Closes it: whatever it has met is over.
    pub fn forgive(&mut self) {
        self.state = State::WELL;
    }

    /// What it is like now.
    #[must_use]
    pub fn standing(&self, now: Instant) -> Standing {
        match self.state {
            State::Closed { .. } => Standing::Closed,
            State::Open {
                since,
                until,
                is_probed,
                ..
            } if !is_probed && now < until => Standing::Resting { since, until },
            State::Open { since, .. } => Standing::Probing { since },
        }
    }

    /// Failures in a row that have not opened it yet.
    #[must_use]
    pub fn doubts(&self) -> u32 {
        match self.state {
            State::Closed { failures, .. } => failures,
            State::Open { .. } => self.policy.failures,
        }
    }
}

#[cfg(test)]
mod tests;
