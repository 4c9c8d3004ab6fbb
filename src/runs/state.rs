//! The states of a run and every transition between them: a pure function, without clock or I/O.
//!
//! ```text
//! Queued ──start──▶ Running ──finish──▶ Ended
//!    └──cancel──────────┼──────────────────▲
//!                       └──cancel (asked; the execution ends it)
//! ```

use jiff::Timestamp;

use super::record::{Ending, RunOutcome};

/// Where a run is. A terminal state is written once and never changes (invariant 3).
#[derive(Debug, Clone, PartialEq)]
pub enum RunState {
    /// Accepted and waiting for its turn.
    Queued,
    /// Being carried out.
    Running {
        /// When its turn came.
        started_at: Timestamp,
        /// Whether a client has asked for its end.
        cancel_requested: bool,
    },
    /// Over.
    Ended {
        /// When its turn came; `None` if it never did.
        started_at: Option<Timestamp>,
        /// When it was over.
        ended_at: Timestamp,
        /// How.
        outcome: Box<RunOutcome>,
    },
}

/// Something that happens to a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Its turn has come.
    Start {
        /// When.
        at: Timestamp,
    },
    /// A client wants it to end.
    CancelRequested {
        /// When.
        at: Timestamp,
    },
    /// It is over.
    Finish {
        /// When.
        at: Timestamp,
        /// How.
        outcome: Box<RunOutcome>,
    },
}

/// An event that has no place in the state it met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The run is over; its state is final.
    #[error("the run has already ended")]
    AlreadyEnded,
    /// The run was started before.
    #[error("the run has already been started")]
    AlreadyStarted,
    /// The run has not been started.
    #[error("the run has not been started")]
    NotStarted,
}

impl RunState {
    /// The status as the interface writes it.
    #[must_use]
    pub fn status(&self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Running { .. } => "RUNNING",
            Self::Ended { outcome, .. } => match outcome.ending {
                Ending::Success => "SUCCESS",
                Ending::Fail => "FAIL",
                Ending::Cancelled => "CANCELLED",
            },
        }
    }

    /// The outcome, once there is one.
    #[must_use]
    pub fn outcome(&self) -> Option<&RunOutcome> {
        match self {
            Self::Queued | Self::Running { .. } => None,
            Self::Ended { outcome, .. } => Some(outcome),
        }
    }

    /// The state after `event`.
    ///
    /// # Errors
    ///
    /// [`Refused`] if the event has no place in this state; the state stays as it was.
    pub fn after(&self, event: Event) -> Result<Self, Refused> {
        match (self, event) {
            (Self::Ended { .. }, _) => Err(Refused::AlreadyEnded),
            (Self::Queued, Event::Start { at }) => Ok(Self::Running {
                started_at: at,
                cancel_requested: false,
            }),
            (Self::Running { .. }, Event::Start { .. }) => Err(Refused::AlreadyStarted),
            (Self::Queued, Event::CancelRequested { at }) => Ok(Self::Ended {
                started_at: None,
                ended_at: at,
                outcome: Box::new(RunOutcome::cancelled_before_start()),
            }),
            (Self::Running { started_at, .. }, Event::CancelRequested { .. }) => {
                Ok(Self::Running {
                    started_at: *started_at,
                    cancel_requested: true,
                })
            }
            (Self::Queued, Event::Finish { .. }) => Err(Refused::NotStarted),
            (Self::Running { started_at, .. }, Event::Finish { at, outcome }) => Ok(Self::Ended {
                started_at: Some(*started_at),
                ended_at: at,
                outcome,
            }),
        }
    }
}

impl RunOutcome {
    /// A run that ended before any program was started.
    #[must_use]
    pub fn without_execution(ending: Ending, final_error: String) -> Self {
        Self {
            ending,
            iterations: 0,
            final_metrics: None,
            prediction_artifact_reference: None,
            model_artifact_reference: None,
            execution_duration: None,
            final_error: Some(final_error),
            generation: None,
        }
    }

    fn cancelled_before_start() -> Self {
        Self::without_execution(
            Ending::Cancelled,
            "Cancelled before it was started.".to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn finish() -> Event {
        let outcome = RunOutcome::without_execution(Ending::Fail, "x".to_owned());
        Event::Finish {
            at: at(3),
            outcome: Box::new(outcome),
        }
    }

    #[test]
    fn every_event_in_every_state_has_one_answer() {
        let queued = RunState::Queued;
        let running = queued.after(Event::Start { at: at(1) }).unwrap();
        let ended = running.after(finish()).unwrap();
        let cancel = || Event::CancelRequested { at: at(2) };

        assert_eq!(queued.after(cancel()).unwrap().status(), "CANCELLED");
        assert_eq!(queued.after(finish()), Err(Refused::NotStarted));
        assert_eq!(
            running.after(Event::Start { at: at(2) }),
            Err(Refused::AlreadyStarted)
        );
        assert!(matches!(
            running.after(cancel()).unwrap(),
            RunState::Running {
                cancel_requested: true,
                ..
            }
        ));
        assert_eq!(ended.status(), "FAIL");
        for event in [Event::Start { at: at(4) }, cancel(), finish()] {
            assert_eq!(ended.after(event), Err(Refused::AlreadyEnded));
        }
    }

    #[test]
    fn a_cancelled_run_that_ends_meanwhile_keeps_its_true_end() {
        let running = RunState::Queued.after(Event::Start { at: at(1) }).unwrap();
        let cancelling = running.after(Event::CancelRequested { at: at(2) }).unwrap();
        assert_eq!(cancelling.after(finish()).unwrap().status(), "FAIL");
    }
}
