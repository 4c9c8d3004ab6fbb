//! What to do with an execution that an earlier daemon left: pure decisions, no clock and no I/O.
//!
//! ```text
//! put away │ host      │ sandbox          │
//! ─────────┼───────────┼──────────────────┼──────────────────────────────────────────
//! nothing  │ the same  │ any              │ never started: carried out afresh
//! nothing  │ restarted │ any              │ lost: it may have been started
//! no sense │ any       │ any              │ lost: nobody can talk to its supervisor
//! a start  │ the same  │ says: never told │ never started: carried out afresh
//! all      │ any       │ nobody can tell  │ wait for the engine, then lost
//! all      │ any       │ runs             │ attach, and go on
//! all      │ any       │ stands, or none  │ lost
//! ```
//!
//! `a start` is `all`, of a program of which nothing was heard yet: its daemon may have died before it
//! told the supervisor to start it. Such a supervisor ends, and says so, at the latest when it is attached
//! to; then this is asked again.
//!
//! Only these two lines start anything, and only where certainly nothing was: an execution starts at most
//! once.

use std::time::Duration;

use crate::orchestrator::conversation::HOLD;

/// What an earlier daemon put away of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::orchestrator) enum PutAway {
    /// Nothing: its program was never told to start.
    Nothing,
    /// Something that cannot be used.
    Senseless,
    /// All that is needed, before the program was told to start; nothing was heard of it since.
    Start,
    /// All that is needed, and something that was heard of the program.
    Everything,
}

/// What became of the host since the execution was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Host {
    /// It runs on. What was written is there, whether or not it was flushed.
    Same,
    /// It was started anew, or nobody can tell.
    Restarted,
}

/// What the engine says of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// It does not answer.
    Unknown,
    /// There is none.
    Missing,
    /// It is there, and nothing runs in it.
    Stopped,
    /// The same, and its supervisor said at its end that it had not been told to start a program.
    NeverStarted,
    /// It runs.
    Running,
}

/// Whether it is worth waiting for an engine that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// The sandbox may still hold a result.
    Left,
    /// It cannot any more.
    Over,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Remove what there is, and carry the execution out as if it were new.
    Afresh,
    /// Attach to its supervisor.
    Attach,
    /// Ask the engine again a little later.
    Wait,
    /// Nothing can be known of its end any more.
    Lost(Loss),
}

/// Why an execution is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The host was started anew.
    HostRestarted,
    /// What was put away makes no sense.
    Senseless,
    /// The container is gone.
    Vanished,
    /// The container stands still.
    Stopped,
    /// The engine did not answer for as long as the sandbox held the result.
    EngineAway,
}

/// What to do next.
pub(super) fn step(put_away: PutAway, host: Host, seen: Seen, patience: Patience) -> Step {
    match (put_away, host, seen) {
        (PutAway::Nothing, Host::Restarted, _) => Step::Lost(Loss::HostRestarted),
        (PutAway::Senseless, _, _) => Step::Lost(Loss::Senseless),
        (PutAway::Nothing | PutAway::Start | PutAway::Everything, _, Seen::Unknown) => {
            match patience {
                Patience::Left => Step::Wait,
                // Carrying it out will say that there is no engine.
                Patience::Over if put_away == PutAway::Nothing => Step::Afresh,
                Patience::Over => Step::Lost(Loss::EngineAway),
            }
        }
        (
            PutAway::Nothing,
            Host::Same,
            Seen::Missing | Seen::Stopped | Seen::NeverStarted | Seen::Running,
        )
        | (PutAway::Start, Host::Same, Seen::NeverStarted) => Step::Afresh,
        (PutAway::Start | PutAway::Everything, _, Seen::Running) => Step::Attach,
        (
            PutAway::Start | PutAway::Everything,
            Host::Restarted,
            Seen::Missing | Seen::Stopped | Seen::NeverStarted,
        ) => Step::Lost(Loss::HostRestarted),
        (PutAway::Start | PutAway::Everything, Host::Same, Seen::Missing) => {
            Step::Lost(Loss::Vanished)
        }
        (PutAway::Start | PutAway::Everything, Host::Same, Seen::Stopped)
        | (PutAway::Everything, Host::Same, Seen::NeverStarted) => Step::Lost(Loss::Stopped),
    }
}

/// Far beyond any run's limit, and so near that it can be added to a clock.
const LONGEST: Duration = Duration::from_secs(86_400 * 365);

/// For the engine to answer the last question about a sandbox that is given up, and to remove it.
const ANSWERS: Duration = Duration::from_secs(120);

/// From the start of a program with this limit of its wall clock on, how long its sandbox can hold
/// something.
pub(in crate::orchestrator) fn longest_held(wall: Duration) -> Duration {
    wall.saturating_add(HOLD).min(LONGEST)
}

/// What a run has at least that is taken over, whatever was configured meanwhile: it is not ended while
/// its sandbox may hold its result, only because the engine is away. It gives its program no time: that
/// has what it had left.
pub(in crate::orchestrator) fn longest_left(wall: Duration) -> Duration {
    longest_held(wall) + ANSWERS
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL_PUT_AWAY: [PutAway; 4] = [
        PutAway::Nothing,
        PutAway::Senseless,
        PutAway::Start,
        PutAway::Everything,
    ];

    const ALL_SEEN: [Seen; 5] = [
        Seen::Unknown,
        Seen::Missing,
        Seen::Stopped,
        Seen::NeverStarted,
        Seen::Running,
    ];

    #[test]
    fn only_what_was_certainly_never_started_is_carried_out_afresh() {
        for put_away in ALL_PUT_AWAY {
            for host in [Host::Same, Host::Restarted] {
                for seen in ALL_SEEN {
                    for patience in [Patience::Left, Patience::Over] {
                        let afresh = step(put_away, host, seen, patience) == Step::Afresh;
                        let never_started = host == Host::Same
                            && (put_away == PutAway::Nothing
                                || put_away == PutAway::Start && seen == Seen::NeverStarted);
                        assert!(!afresh || never_started, "{put_away:?} {host:?} {seen:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn one_that_says_that_it_was_never_told_is_carried_out_afresh_if_nothing_was_heard_of_it() {
        let at = |put_away, host| step(put_away, host, Seen::NeverStarted, Patience::Over);
        assert_eq!(at(PutAway::Start, Host::Same), Step::Afresh);
        let lost = at(PutAway::Start, Host::Restarted);
        assert_eq!(lost, Step::Lost(Loss::HostRestarted));
        let lost = at(PutAway::Everything, Host::Same);
        assert_eq!(lost, Step::Lost(Loss::Stopped));
        let lost = at(PutAway::Senseless, Host::Same);
        assert_eq!(lost, Step::Lost(Loss::Senseless));
    }

    #[test]
    fn a_sandbox_that_runs_is_attached_to_and_every_other_one_is_lost_for_its_own_reason() {
        for put_away in [PutAway::Start, PutAway::Everything] {
            let at = |host, seen| step(put_away, host, seen, Patience::Left);
            assert_eq!(at(Host::Same, Seen::Running), Step::Attach);
            assert_eq!(at(Host::Same, Seen::Missing), Step::Lost(Loss::Vanished));
            assert_eq!(at(Host::Same, Seen::Stopped), Step::Lost(Loss::Stopped));
            for seen in [Seen::Missing, Seen::Stopped] {
                assert_eq!(at(Host::Restarted, seen), Step::Lost(Loss::HostRestarted));
            }
        }
    }

    #[test]
    fn an_engine_that_does_not_answer_is_waited_for_as_long_as_there_can_be_a_result() {
        for put_away in [PutAway::Nothing, PutAway::Start, PutAway::Everything] {
            let waiting = step(put_away, Host::Same, Seen::Unknown, Patience::Left);
            assert_eq!(waiting, Step::Wait);
        }
        let given_up = |put_away| step(put_away, Host::Same, Seen::Unknown, Patience::Over);
        assert_eq!(given_up(PutAway::Everything), Step::Lost(Loss::EngineAway));
        assert_eq!(given_up(PutAway::Start), Step::Lost(Loss::EngineAway));
        assert_eq!(given_up(PutAway::Nothing), Step::Afresh);
    }

    #[test]
    fn a_run_that_is_taken_over_outlasts_the_wait_for_its_result() {
        for wall in [Duration::ZERO, Duration::from_secs(3600), Duration::MAX] {
            let wait = longest_held(wall);
            assert!(wait >= wall.min(LONGEST) && wait >= HOLD.min(LONGEST));
            assert!(longest_left(wall) >= wait + Duration::from_secs(60));
            // It can be added to a clock.
            assert!(
                std::time::Instant::now()
                    .checked_add(longest_left(wall))
                    .is_some()
            );
        }
    }
}
