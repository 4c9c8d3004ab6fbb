//! How well an engine is, as plain data: for `/ready`, for metrics, and for the queue, which holds
//! while no sandbox can be made.

use std::time::Duration;

use jiff::Timestamp;

/// What an engine is asked for, by what it needs: each has its deadline, its retries and its
/// circuit, so that one that hangs takes no other with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Whether anybody is there.
    Ping,
    /// Questions.
    Ask,
    /// Making something.
    Create,
    /// Opening the streams of a sandbox.
    Attach,
    /// Starting a sandbox.
    Start,
    /// Ending what runs in a sandbox.
    Kill,
    /// Removing a sandbox.
    Remove,
}

impl CallKind {
    /// All of them, each at its own number.
    pub const ALL: [Self; 7] = [
        Self::Ping,
        Self::Ask,
        Self::Create,
        Self::Attach,
        Self::Start,
        Self::Kill,
        Self::Remove,
    ];

    /// A word for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ping => "ping",
            Self::Ask => "ask",
            Self::Create => "create",
            Self::Attach => "attach",
            Self::Start => "start",
            Self::Kill => "kill",
            Self::Remove => "remove",
        }
    }

    /// Whether no run can be started without it.
    #[must_use]
    pub fn is_needed_to_start(self) -> bool {
        match self {
            Self::Ping | Self::Ask | Self::Create | Self::Attach | Self::Start => true,
            Self::Kill | Self::Remove => false,
        }
    }
}

/// The bounds of the calls to an engine; the defaults are those of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallBounds {
    /// How long a question may take, its retries included.
    pub ask: Duration,
    /// How long making something may take.
    pub create: Duration,
    /// How long opening streams, and a start, may take.
    pub start: Duration,
    /// How long the end of what runs in a sandbox may take to be confirmed.
    pub kill: Duration,
    /// How long a removal may take.
    pub remove: Duration,
    /// How often a call that may be repeated is tried again, within its deadline.
    pub retries: u32,
    /// Calls of a kind that may fail in a row before the others of this kind are not tried.
    pub failures: u32,
    /// The first pause before one is tried again.
    pub pause: Duration,
    /// The longest one.
    pub longest_pause: Duration,
    /// Sandboxes that could not be removed before no run is started any more.
    pub max_quarantined: usize,
}

impl Default for CallBounds {
    fn default() -> Self {
        Self {
            ask: Duration::from_secs(10),
            create: Duration::from_secs(30),
            start: Duration::from_secs(30),
            kill: Duration::from_secs(5),
            remove: Duration::from_secs(15),
            retries: 2,
            failures: 3,
            pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(10),
            max_quarantined: 24,
        }
    }
}

impl CallBounds {
    /// The deadline of a kind.
    #[must_use]
    pub fn deadline(&self, kind: CallKind) -> Duration {
        match kind {
            // The engine needs nothing for it but itself.
            CallKind::Ping => self.ask / 2,
            CallKind::Ask => self.ask,
            CallKind::Create => self.create,
            CallKind::Attach | CallKind::Start => self.start,
            CallKind::Kill => self.kill,
            CallKind::Remove => self.remove,
        }
    }
}

/// Whether calls of a kind are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallState {
    /// They are.
    Well,
    /// They are refused until a probe has succeeded.
    Resting,
    /// One is made, to see whether the others can be.
    Probing,
}

/// Calls of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHealth {
    /// Which.
    pub kind: CallKind,
    /// Whether they are made.
    pub state: CallState,
    /// Since when they fail; `None` if they do not.
    pub since: Option<Timestamp>,
    /// Why, in words for clients; `None` if they do not fail.
    pub reason: Option<String>,
    /// How often they were found to fail since the daemon's start.
    pub opened: u64,
    /// Calls that were not answered since then, those tried again included.
    pub failed: u64,
    /// Calls that were tried again since then.
    pub retried: u64,
}

/// Sandboxes whose removal the engine has not confirmed, with their uids, which nobody else gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quarantine {
    /// How many.
    pub sandboxes: usize,
    /// Since when there is one.
    pub since: Option<Timestamp>,
}

/// An engine at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineHealth {
    /// Its calls, by kind.
    pub calls: Vec<CallHealth>,
    /// What it does not remove.
    pub quarantine: Quarantine,
    /// How many there may be before nothing is started.
    pub max_quarantined: usize,
}

/// Why no run is started, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// For clients: no paths.
    pub reason: String,
    /// The first failure, or the first sandbox that stayed.
    pub since: Option<Timestamp>,
}

impl EngineHealth {
    /// Why no run can be started on it at the moment; `None` if one can be, or is worth trying.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        let needed = self
            .calls
            .iter()
            .filter(|call| call.kind.is_needed_to_start());
        // Whether anybody is there is asked all the time: it costs no run to wait for the answer.
        // For the others a run is what has to be tried.
        let failing = needed.clone().find(|call| match (call.state, call.kind) {
            (CallState::Resting, _) | (CallState::Probing, CallKind::Ping) => true,
            (CallState::Well | CallState::Probing, _) => false,
        });
        if let Some(call) = failing {
            return Some(Hold {
                reason: call.reason.clone().unwrap_or_default(),
                // Of whatever failed first: one trouble shows in several kinds.
                since: needed.filter_map(|call| call.since).min(),
            });
        }
        if self.max_quarantined > 0 && self.quarantine.sandboxes >= self.max_quarantined {
            return Some(Hold {
                reason: format!(
                    "the container engine does not remove sandboxes: {} are set aside; check that \
                     it is well (for example with `systemctl status docker`)",
                    self.quarantine.sandboxes
                ),
                since: self.quarantine.since,
            });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(kind: CallKind, state: CallState) -> CallHealth {
        CallHealth {
            kind,
            state,
            since: (state != CallState::Well).then_some(Timestamp::UNIX_EPOCH),
            reason: (state != CallState::Well).then(|| format!("{} fails", kind.as_str())),
            opened: 0,
            failed: 0,
            retried: 0,
        }
    }

    fn health(calls: &[(CallKind, CallState)], sandboxes: usize) -> EngineHealth {
        EngineHealth {
            calls: calls
                .iter()
                .map(|&(kind, state)| call(kind, state))
                .collect(),
            quarantine: Quarantine {
                sandboxes,
                since: Some(Timestamp::UNIX_EPOCH),
            },
            max_quarantined: 2,
        }
    }

    #[test]
    fn a_kind_is_found_at_its_number() {
        for (number, kind) in CallKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
        }
    }

    #[test]
    fn the_queue_holds_for_what_a_start_needs_and_not_for_what_an_end_needs() {
        for kind in CallKind::ALL {
            let held = health(&[(kind, CallState::Resting)], 0).hold();
            assert_eq!(held.is_some(), kind.is_needed_to_start(), "{kind:?}");
            if let Some(hold) = held {
                assert_eq!(hold.reason, format!("{} fails", kind.as_str()));
                assert_eq!(hold.since, Some(Timestamp::UNIX_EPOCH));
            }
            assert_eq!(health(&[(kind, CallState::Well)], 0).hold(), None);
        }
    }

    #[test]
    fn a_run_is_let_through_to_try_what_only_a_run_can_try() {
        let probing = |kind| health(&[(kind, CallState::Probing)], 0).hold().is_some();
        assert!(probing(CallKind::Ping));
        for kind in [
            CallKind::Ask,
            CallKind::Create,
            CallKind::Attach,
            CallKind::Start,
        ] {
            assert!(!probing(kind), "{kind:?}");
        }
    }

    #[test]
    fn sandboxes_that_stay_hold_the_queue_when_they_are_too_many() {
        assert_eq!(health(&[], 1).hold(), None);
        let hold = health(&[], 2).hold().unwrap();
        assert!(hold.reason.contains("2 are set aside"), "{}", hold.reason);
    }
}
