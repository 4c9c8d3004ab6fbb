//! The loop as a pure function: what is under way and what came of it give what is done next (contract
//! section 3). No I/O, no clock.
//!
//! ```text
//! Perceive ─▶ Write ─▶ Execute ─▶ Judge ─▶ (FIX: Analyse) ─▶ Record ─▶ End
//!               ▲                                               │
//!               └──────────── FIX, and budget left ─────────────┘
//! ```
//!
//! Everything it needs follows from the recorded episodes and from a program that is planned ([`begin`]),
//! and from what is spent by then, so that a run can be gone on with by somebody who knows nothing else.

use std::time::Duration;

use super::judge::Decision;
use crate::execution::Status;
use crate::runs::Episode;

/// What a run may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Turns.
    pub iterations: u32,
    /// Wall clock from the run's start, without the time between two daemons.
    pub wall: Duration,
    /// Tokens of the model, sent and received; `None` without a bound.
    pub tokens: Option<u64>,
}

/// What a run has used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// Recorded turns.
    pub iterations: u32,
    /// Wall clock.
    pub wall: Duration,
    /// Tokens.
    pub tokens: u64,
}

/// What is done next, and then under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Look at the data set.
    Perceive,
    /// Have a program written.
    Write {
        /// For this turn, from 1.
        iteration: u32,
    },
    /// Run it.
    Execute,
    /// Judge what came of it.
    Judge(Program),
    /// Explain why it failed.
    Analyse,
    /// Write the turn down.
    Record(Then),
    /// Nothing: the run is over.
    End(End),
}

/// What comes after a turn was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// Another turn, if the budget allows one.
    GoOn,
    /// The end.
    End(End),
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The last program did what was asked.
    Success,
    /// It did not, and there is no further turn.
    Failure,
    /// On request.
    Cancelled,
    /// No program was written.
    NotWritten(String),
    /// The engine or the host ended an execution.
    Infrastructure,
    /// The wall clock is used up.
    OutOfTime,
    /// The tokens are used up.
    OutOfTokens,
    /// Something could not be written down, or makes no sense.
    Broken(&'static str),
}

/// How a program ended, as far as the loop goes by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// With success.
    Succeeded,
    /// With the program's own failure.
    Failed,
    /// By us or the host.
    Infrastructure,
    /// On request.
    Cancelled,
}

impl From<Status> for Program {
    fn from(status: Status) -> Self {
        match status {
            Status::Success => Self::Succeeded,
            Status::Failure | Status::Timeout | Status::InvalidOutput => Self::Failed,
            Status::Error => Self::Infrastructure,
            Status::Cancelled => Self::Cancelled,
        }
    }
}

/// How far the turn is that nothing is recorded of yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextTurn {
    /// It has not begun, as far as anybody knows.
    Unwritten,
    /// Its program is written, and may have been started.
    Written,
}

/// What came of what was under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The look at the data set is over, and recorded. It failing is no reason to stop.
    Perceived(Program),
    /// There is a program.
    Written,
    /// There is none, and why.
    NotWritten(String),
    /// The program is over.
    Executed(Program),
    /// It is judged.
    Judged(Decision),
    /// Its failure is explained.
    Analysed,
    /// The turn is written down.
    Recorded,
    /// The turn or the plan of it could not be written down.
    NotRecorded,
    /// A client or the daemon wants the end.
    Cancelled,
    /// The wall clock ran out.
    OutOfTime,
}

/// What is done first in a run of which these episodes are recorded, and of whose next turn the program
/// may be written already.
#[must_use]
pub fn begin(episodes: &[Episode], next: NextTurn, budget: &Budget, spent: &Spent) -> Action {
    if next == NextTurn::Written {
        return Action::Execute;
    }
    let Some(last) = episodes.last() else {
        return Action::Perceive;
    };
    let program = Program::from(last.execution.status);
    if !last.is_turn() {
        return perceived(program, budget, spent);
    }
    let decision = match last.judge_decision.as_deref() {
        Some("FINISH") => Some(Decision::Finish),
        Some(_) => Some(Decision::Fix),
        None => None,
    };
    match after_turn(program, decision) {
        Then::End(end) => Action::End(end),
        Then::GoOn => write_next(budget, spent),
    }
}

/// What is done after `event` came of what is under way.
#[must_use]
pub fn step(under_way: &Action, event: Event, budget: &Budget, spent: &Spent) -> Action {
    match (under_way, event) {
        (Action::End(end), _) => Action::End(end.clone()),
        (_, Event::Cancelled) => Action::End(End::Cancelled),
        (_, Event::OutOfTime) => Action::End(End::OutOfTime),
        (_, Event::NotRecorded) => {
            Action::End(End::Broken("a turn of it could not be written down"))
        }
        (Action::Perceive, Event::Perceived(program)) => perceived(program, budget, spent),
        (Action::Write { .. }, Event::Written) => Action::Execute,
        (Action::Write { .. }, Event::NotWritten(why)) => Action::End(End::NotWritten(why)),
        (Action::Execute, Event::Executed(program)) => match program {
            Program::Succeeded | Program::Failed => Action::Judge(program),
            Program::Infrastructure | Program::Cancelled => {
                Action::Record(after_turn(program, None))
            }
        },
        // Explained even if there is no further turn: the run says why it failed.
        (Action::Judge(_), Event::Judged(Decision::Fix)) => Action::Analyse,
        (Action::Judge(program), Event::Judged(Decision::Finish)) => {
            Action::Record(after_turn(*program, Some(Decision::Finish)))
        }
        (Action::Analyse, Event::Analysed) => Action::Record(Then::GoOn),
        (Action::Record(Then::End(end)), Event::Recorded) => Action::End(end.clone()),
        (Action::Record(Then::GoOn), Event::Recorded) => write_next(budget, spent),
        (
            Action::Perceive
            | Action::Write { .. }
            | Action::Execute
            | Action::Judge(_)
            | Action::Analyse
            | Action::Record(_),
            _,
        ) => Action::End(End::Broken("it lost its thread")),
    }
}

fn perceived(program: Program, budget: &Budget, spent: &Spent) -> Action {
    match program {
        Program::Succeeded | Program::Failed => write_next(budget, spent),
        Program::Infrastructure => Action::End(End::Infrastructure),
        Program::Cancelled => Action::End(End::Cancelled),
    }
}

/// What a turn leads to. `FINISH` ends the loop, but never turns a failure into success.
fn after_turn(program: Program, decision: Option<Decision>) -> Then {
    match (program, decision) {
        (Program::Infrastructure, _) => Then::End(End::Infrastructure),
        (Program::Cancelled, _) => Then::End(End::Cancelled),
        (Program::Succeeded, Some(Decision::Finish)) => Then::End(End::Success),
        (Program::Failed, Some(Decision::Finish)) => Then::End(End::Failure),
        (Program::Succeeded | Program::Failed, Some(Decision::Fix) | None) => Then::GoOn,
    }
}

fn write_next(budget: &Budget, spent: &Spent) -> Action {
    if spent.iterations >= budget.iterations {
        Action::End(End::Failure)
    } else if spent.wall >= budget.wall {
        Action::End(End::OutOfTime)
    } else if budget.tokens.is_some_and(|most| spent.tokens >= most) {
        Action::End(End::OutOfTokens)
    } else {
        let iteration = spent.iterations + 1;
        Action::Write { iteration }
    }
}

#[cfg(test)]
mod tests;
