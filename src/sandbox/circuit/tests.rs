//! The circuit by its words and by properties.

use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

const POLICY: CircuitPolicy = CircuitPolicy {
    failures: 3,
    pause: SECOND,
    longest_pause: Duration::from_secs(4),
};

const DOUBT: Outcome = Outcome::Failed(Failure::Doubtful);
const CERTAIN: Outcome = Outcome::Failed(Failure::Certain);

fn call(circuit: &mut Circuit, outcome: Outcome, now: Instant) {
    let ticket = circuit.pass(now).expect("the call passes");
    circuit.settle(ticket, outcome, now);
}

#[test]
fn doubtful_failures_open_it_only_in_a_row_and_one_certain_one_does() {
    let now = Instant::now();
    let mut circuit = Circuit::new(POLICY);
    for outcome in [DOUBT, DOUBT, Outcome::Answered, DOUBT, DOUBT] {
        call(&mut circuit, outcome, now);
        assert_eq!(circuit.standing(now), Standing::Closed);
    }
    call(&mut circuit, DOUBT, now);
    assert!(circuit.pass(now).is_none());
    let mut circuit = Circuit::new(POLICY);
    call(&mut circuit, CERTAIN, now);
    let until = now + SECOND;
    assert_eq!(
        circuit.standing(now),
        Standing::Resting { since: now, until }
    );
}

#[test]
fn after_its_rest_one_call_passes_and_its_success_closes_it() {
    let now = Instant::now();
    let mut circuit = Circuit::new(POLICY);
    call(&mut circuit, CERTAIN, now);
    assert!(circuit.pass(now + SECOND / 2).is_none());
    let probe = circuit.pass(now + SECOND).expect("a probe passes");
    assert_eq!(
        circuit.standing(now + SECOND),
        Standing::Probing { since: now }
    );
    assert!(circuit.pass(now + 100 * SECOND).is_none(), "a second probe");
    circuit.settle(probe, Outcome::Answered, now + SECOND);
    assert_eq!(circuit.standing(now + SECOND), Standing::Closed);
    assert_eq!(circuit.doubts(), 0);
}

#[test]
fn rests_grow_up_to_their_bound_and_tell_since_when() {
    let start = Instant::now();
    let mut circuit = Circuit::new(POLICY);
    call(&mut circuit, CERTAIN, start);
    let mut now = start + SECOND;
    for pause in [2, 4, 4, 4] {
        call(&mut circuit, DOUBT, now);
        let until = now + pause * SECOND;
        assert_eq!(
            circuit.standing(now),
            Standing::Resting {
                since: start,
                until
            }
        );
        now = until;
    }
}

#[test]
fn a_probe_whose_caller_goes_away_leaves_its_place_to_the_next() {
    let now = Instant::now();
    let mut circuit = Circuit::new(POLICY);
    call(&mut circuit, CERTAIN, now);
    call(&mut circuit, Outcome::Abandoned, now + SECOND);
    assert!(circuit.pass(now + SECOND).is_some());
}

#[test]
fn late_failures_of_earlier_calls_put_nothing_off_and_a_late_success_counts() {
    let now = Instant::now();
    let mut circuit = Circuit::new(POLICY);
    let early: Vec<_> = (0..3).filter_map(|_| circuit.pass(now)).collect();
    call(&mut circuit, CERTAIN, now);
    circuit.settle(early[0], DOUBT, now + SECOND / 2);
    let probe = circuit.pass(now + SECOND).expect("the rest is not longer");
    circuit.settle(early[1], Outcome::Abandoned, now + SECOND);
    assert!(
        circuit.pass(now + SECOND).is_none(),
        "the probe is under way"
    );
    circuit.settle(early[2], Outcome::Answered, now + SECOND);
    assert_eq!(circuit.standing(now + SECOND), Standing::Closed);
    circuit.settle(probe, DOUBT, now + 2 * SECOND);
    assert_eq!(circuit.standing(now + 2 * SECOND), Standing::Closed);
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Wait(u64),
    Ask,
    Insist,
    Settle(usize, Outcome),
}

fn act() -> impl Strategy<Value = Act> {
    let outcome = prop_oneof![
        Just(Outcome::Answered),
        Just(CERTAIN),
        Just(DOUBT),
        Just(Outcome::Abandoned),
    ];
    prop_oneof![
        (0_u64..6000).prop_map(Act::Wait),
        Just(Act::Ask),
        Just(Act::Insist),
        (0_usize..8, outcome).prop_map(|(which, outcome)| Act::Settle(which, outcome)),
    ]
}

proptest! {
    #[test]
    fn there_is_one_probe_at_most_and_a_rest_is_never_longer_than_its_bound(
        acts in prop::collection::vec(act(), 0..200),
    ) {
        let mut now = Instant::now();
        let mut circuit = Circuit::new(POLICY);
        let mut open: Vec<Ticket> = Vec::new();
        for act in acts {
            match act {
                Act::Wait(milliseconds) => now += Duration::from_millis(milliseconds),
                Act::Ask => {
                    let before = circuit.standing(now);
                    let ticket = circuit.pass(now);
                    match before {
                        Standing::Closed => prop_assert!(ticket.is_some()),
                        Standing::Resting { .. } => prop_assert!(ticket.is_none()),
                        Standing::Probing { .. } => {}
                    }
                    open.extend(ticket);
                }
                Act::Insist => open.push(Circuit::insist()),
                Act::Settle(which, outcome) if !open.is_empty() => {
                    let ticket = open.swap_remove(which % open.len());
                    circuit.settle(ticket, outcome, now);
                    if outcome == Outcome::Answered {
                        prop_assert_eq!(circuit.standing(now), Standing::Closed);
                    }
                }
                Act::Settle(..) => {}
            }
            if let Standing::Resting { since, until } = circuit.standing(now) {
                prop_assert!(since <= now && until <= now + POLICY.longest_pause);
            }
            // Probes of an earlier time that is over may still be under way; of this one, one.
            if circuit.standing(now) != Standing::Closed {
                let later = now + 2 * POLICY.longest_pause;
                let mut copy = circuit.clone();
                let passed = (0..5).filter_map(|_| copy.pass(later)).count();
                prop_assert!(passed <= 1, "{passed} probes");
            }
        }
        // However it was treated, a success heals it.
        circuit.settle(Circuit::insist(), Outcome::Answered, now);
        prop_assert!(circuit.pass(now).is_some());
    }

    #[test]
    fn it_never_refuses_for_ever(failures in 1_usize..60) {
        let mut now = Instant::now();
        let mut circuit = Circuit::new(POLICY);
        for _ in 0..failures {
            now += POLICY.longest_pause;
            call(&mut circuit, CERTAIN, now);
        }
        now += POLICY.longest_pause;
        call(&mut circuit, Outcome::Answered, now);
        prop_assert_eq!(circuit.standing(now), Standing::Closed);
    }
}
