//! Whether runs are taken and started at this moment, and on which runtimes.
//!
//! Somebody outside looks at the host and says so here; this knows neither hosts nor sandboxes. A
//! gate that is closed refuses new runs and lets those that wait go on waiting; while it is being
//! found out whether it may open, new runs can wait for that. One that is held takes new runs and
//! lets them wait, too: what it is held for is expected to pass. What runs already is not touched.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::execution::runtime::Offered;

/// A gate. Cheap to clone: all clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    state: watch::Sender<State>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    /// Why it is closed, for clients: no paths; open if there is no reason.
    reasons: Vec<String>,
    /// Whether it is being found out if it may open.
    is_pending: bool,
    held: Option<Held>,
    offered: Offered,
}

/// Why runs wait that could be started otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// For clients: no paths.
    pub reason: String,
    /// Since when, if that is known.
    pub since: Option<Timestamp>,
}

impl Gate {
    /// An open gate, which knows of no runtime but the usual one.
    #[must_use]
    pub fn open() -> Self {
        Self {
            state: watch::Sender::new(State::default()),
        }
    }

    /// A gate of which it is being found out whether it may open.
    #[must_use]
    pub fn pending(reason: &str) -> Self {
        let gate = Self::open();
        gate.pend(reason);
        gate
    }

    /// Opens it for these runtimes.
    pub fn admit(&self, offered: Offered) {
        self.state.send_modify(|state| {
            state.reasons.clear();
            state.is_pending = false;
            state.offered = offered;
        });
    }

    /// Closes it until it is found out whether it may open, which is under way.
    pub fn pend(&self, reason: &str) {
        self.state.send_modify(|state| {
            state.reasons = vec![reason.to_owned()];
            state.is_pending = true;
        });
    }

    /// Closes it. Without a reason nothing changes: whoever is refused is told why.
    pub fn close(&self, reasons: Vec<String>) {
        if !reasons.is_empty() {
            self.state.send_modify(|state| {
                state.reasons = reasons;
                state.is_pending = false;
            });
        }
    }

    /// Holds it, or lets it go with `None`. Tells whether that is new.
    pub fn hold(&self, held: Option<Held>) -> bool {
        self.state.send_if_modified(|state| {
            let is_new = state.held != held;
            state.held = held;
            is_new
        })
    }

    /// Why it is held, if it is.
    #[must_use]
    pub fn held(&self) -> Option<Held> {
        self.state.borrow().held.clone()
    }

    /// Why it is closed; empty if it is open.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        self.state.borrow().reasons.clone()
    }

    /// The runtimes that runs may use.
    #[must_use]
    pub fn offered(&self) -> Offered {
        self.state.borrow().offered.clone()
    }

    /// Waits until it is found out whether it is open, at most for `bound`.
    pub async fn settled(&self, bound: Duration) {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| !state.is_pending);
        // Who is not told in time is refused by what is known.
        drop(timeout(bound, settled).await);
    }

    /// Waits until it is open and not held.
    pub async fn opened(&self) {
        let mut state = self.state.subscribe();
        let is_free = |state: &State| state.reasons.is_empty() && state.held.is_none();
        // This holds the other end, so that it cannot be gone.
        drop(state.wait_for(is_free).await);
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_gate_opens_for_everybody_who_waits_and_is_never_closed_without_a_reason() {
        let gate = Gate::pending("not yet");
        assert_eq!(gate.reasons(), ["not yet"]);
        let other = gate.clone();
        let offered = Offered {
            runtimes: vec!["runc".to_owned()],
            default: Some("runc".to_owned()),
        };
        tokio::join!(gate.opened(), async { other.admit(offered.clone()) });
        assert_eq!((gate.reasons(), gate.offered()), (Vec::new(), offered));
        gate.close(Vec::new());
        assert_eq!(gate.reasons(), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_while_it_is_found_out_waits_for_the_answer_but_not_for_ever() {
        let gate = Gate::pending("not yet");
        let bound = Duration::from_secs(15);
        gate.settled(bound).await;
        assert_eq!(gate.reasons(), ["not yet"]);
        tokio::join!(gate.settled(Duration::MAX), async {
            gate.close(vec!["unfit".to_owned()]);
        });
        gate.pend("again");
        tokio::join!(gate.settled(Duration::MAX), async {
            gate.admit(Offered::default());
        });
        assert_eq!(gate.reasons(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_held_gate_takes_runs_and_starts_none_whatever_else_is_said_of_it() {
        let gate = Gate::open();
        let held = Held {
            reason: "the engine is away".to_owned(),
            since: Some(Timestamp::UNIX_EPOCH),
        };
        assert!(gate.hold(Some(held.clone())));
        assert!(!gate.hold(Some(held.clone())), "nothing new");
        assert_eq!((gate.reasons(), gate.held()), (Vec::new(), Some(held)));
        // Examined and found fit, which is another question.
        gate.admit(Offered::default());
        let waiting = gate.opened();
        tokio::pin!(waiting);
        let early = timeout(Duration::ZERO, &mut waiting).await;
        assert!(early.is_err(), "it was opened while it was held");
        gate.close(vec!["unfit".to_owned()]);
        assert!(gate.hold(None));
        let early = timeout(Duration::ZERO, &mut waiting).await;
        assert!(early.is_err(), "it was opened while it was closed");
        gate.admit(Offered::default());
        waiting.await;
    }
}
