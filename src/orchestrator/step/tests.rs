//! The lines of contract section 3, one by one.

use super::*;
use crate::orchestrator::testing::{episode, perception};

const BUDGET: Budget = Budget {
    iterations: 3,
    wall: Duration::from_secs(600),
    tokens: Some(1000),
};

/// What is done in each turn of a script, until the end.
fn play(turns: &[(Program, Decision)]) -> (End, u32) {
    let mut spent = Spent::default();
    let mut action = begin(&[], NextTurn::Unwritten, &BUDGET, &spent);
    let mut turns = turns.iter().cycle();
    let mut turn = (Program::Failed, Decision::Fix);
    for _ in 0..100 {
        let event = match &action {
            Action::Perceive => Event::Perceived(Program::Succeeded),
            Action::Write { iteration } => {
                assert_eq!(*iteration, spent.iterations + 1);
                turn = *turns.next().unwrap();
                Event::Written
            }
            Action::Execute => Event::Executed(turn.0),
            Action::Judge(program) => {
                assert_eq!(*program, turn.0);
                Event::Judged(turn.1)
            }
            Action::Analyse => Event::Analysed,
            Action::Record(_) => {
                spent.iterations += 1;
                Event::Recorded
            }
            Action::End(end) => return (end.clone(), spent.iterations),
        };
        action = step(&action, event, &BUDGET, &spent);
    }
    panic!("it never ends");
}

#[test]
fn every_course_of_a_run_ends_as_the_contract_says() {
    use Decision::{Finish, Fix};
    use Program::{Cancelled, Failed, Infrastructure, Succeeded};
    /// How programs end and are judged, how the run ends, and after how many turns.
    type Case<'a> = (&'a [(Program, Decision)], End, u32);
    let cases: [Case<'_>; 9] = [
        // First success: one iteration.
        (&[(Succeeded, Finish)], End::Success, 1),
        // Failure, then success: two.
        (&[(Failed, Fix), (Succeeded, Finish)], End::Success, 2),
        // Always failing: all of them.
        (&[(Failed, Fix)], End::Failure, 3),
        // FINISH ends the loop, but a failure stays one.
        (&[(Failed, Finish)], End::Failure, 1),
        (&[(Failed, Fix), (Failed, Finish)], End::Failure, 2),
        // A success that is sent back is none.
        (&[(Succeeded, Fix)], End::Failure, 3),
        (&[(Succeeded, Fix), (Succeeded, Finish)], End::Success, 2),
        // Neither ours nor a client's end is the program's, so nobody repairs it.
        (&[(Infrastructure, Fix)], End::Infrastructure, 1),
        (&[(Failed, Fix), (Cancelled, Fix)], End::Cancelled, 2),
    ];
    for (turns, end, iterations) in cases {
        assert_eq!(play(turns), (end, iterations), "{turns:?}");
    }
}

#[test]
fn a_coder_that_fails_ends_the_loop() {
    let writing = Action::Write { iteration: 2 };
    let event = Event::NotWritten("why".to_owned());
    let next = step(&writing, event, &BUDGET, &Spent::default());
    assert_eq!(next, Action::End(End::NotWritten("why".to_owned())));
}

#[test]
fn each_budget_ends_the_loop_between_two_turns_only() {
    let spent = |iterations, seconds, tokens| Spent {
        iterations,
        wall: Duration::from_secs(seconds),
        tokens,
    };
    let recorded = Action::Record(Then::GoOn);
    let cases = [
        (spent(1, 599, 999), Action::Write { iteration: 2 }),
        (spent(3, 0, 0), Action::End(End::Failure)),
        (spent(1, 600, 0), Action::End(End::OutOfTime)),
        (spent(1, 0, 1000), Action::End(End::OutOfTokens)),
        // The first one that is used up counts.
        (spent(3, 600, 1000), Action::End(End::Failure)),
    ];
    for (spent, expected) in cases {
        assert_eq!(step(&recorded, Event::Recorded, &BUDGET, &spent), expected);
        let perceived = Event::Perceived(Program::Failed);
        assert_eq!(
            step(&Action::Perceive, perceived, &BUDGET, &spent),
            expected
        );
        // A program that was written is run, and its success is one.
        let writing = Action::Write { iteration: 1 };
        assert_eq!(
            step(&writing, Event::Written, &BUDGET, &spent),
            Action::Execute
        );
        let success = Action::Record(Then::End(End::Success));
        assert_eq!(
            step(&success, Event::Recorded, &BUDGET, &spent),
            Action::End(End::Success)
        );
    }
    let unbounded = Budget {
        tokens: None,
        ..BUDGET
    };
    let much = spent(1, 0, u64::MAX);
    let next = step(&recorded, Event::Recorded, &unbounded, &much);
    assert_eq!(next, Action::Write { iteration: 2 });
}

#[test]
fn a_wish_to_end_and_a_failing_journal_end_it_wherever_it_is() {
    let all = [
        Action::Perceive,
        Action::Write { iteration: 1 },
        Action::Execute,
        Action::Judge(Program::Succeeded),
        Action::Analyse,
        Action::Record(Then::GoOn),
    ];
    for action in all {
        let after = |event| step(&action, event, &BUDGET, &Spent::default());
        assert_eq!(after(Event::Cancelled), Action::End(End::Cancelled));
        assert_eq!(after(Event::OutOfTime), Action::End(End::OutOfTime));
        assert!(matches!(
            after(Event::NotRecorded),
            Action::End(End::Broken(_))
        ));
    }
    let over = Action::End(End::Success);
    assert_eq!(
        step(&over, Event::Cancelled, &BUDGET, &Spent::default()),
        over
    );
}

#[test]
fn what_has_no_place_ends_the_run_instead_of_going_on() {
    let next = step(
        &Action::Perceive,
        Event::Written,
        &BUDGET,
        &Spent::default(),
    );
    assert!(matches!(next, Action::End(End::Broken(_))));
}

#[test]
fn a_run_is_gone_on_with_from_its_recorded_episodes() {
    let spent = |iterations| Spent {
        iterations,
        ..Spent::default()
    };
    let looked = || perception(Status::Success);
    let turn = |iteration, status, decision| episode(iteration, status, decision);
    let cases = [
        (vec![], 0, Action::Perceive),
        (vec![looked()], 0, Action::Write { iteration: 1 }),
        (
            vec![perception(Status::Timeout)],
            0,
            Action::Write { iteration: 1 },
        ),
        (
            vec![perception(Status::Error)],
            0,
            Action::End(End::Infrastructure),
        ),
        (
            vec![looked(), turn(1, Status::Failure, Some("FIX"))],
            1,
            Action::Write { iteration: 2 },
        ),
        // Written down, but the end of the run was not.
        (
            vec![looked(), turn(1, Status::Success, Some("FINISH"))],
            1,
            Action::End(End::Success),
        ),
        (
            vec![looked(), turn(1, Status::Failure, Some("FINISH"))],
            1,
            Action::End(End::Failure),
        ),
        (
            vec![looked(), turn(1, Status::Error, None)],
            1,
            Action::End(End::Infrastructure),
        ),
        (
            vec![looked(), turn(3, Status::Failure, Some("FIX"))],
            3,
            Action::End(End::Failure),
        ),
    ];
    for (episodes, iterations, expected) in cases {
        let budget = (&BUDGET, &spent(iterations));
        let begun = begin(&episodes, NextTurn::Unwritten, budget.0, budget.1);
        assert_eq!(begun, expected);
        // A program that is written is run, whatever was before.
        let begun = begin(&episodes, NextTurn::Written, budget.0, budget.1);
        assert_eq!(begun, Action::Execute);
    }
}
