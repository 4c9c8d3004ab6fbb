//! The order in which runs leave, for clients of one tenant and between tenants.

use proptest::prelude::*;

use super::*;

fn client(name: u8) -> ClientKey {
    ClientKey(format!("client {name}"))
}

fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

/// A run of which `accepted` were before, of the tenant of a daemon without tokens.
fn run(name: u8, accepted: usize) -> Waiting {
    run_of(&TenantId::default(), name, accepted)
}

fn run_of(tenant: &TenantId, name: u8, accepted: usize) -> Waiting {
    Waiting {
        tenant: tenant.clone(),
        client: client(name),
        sequence: i64::try_from(accepted).unwrap(),
        id: RunId::random(),
    }
}

fn alone(capacity: usize) -> FairQueue {
    FairQueue::new(capacity, HashMap::new())
}

fn with_weights(weights: &[(&str, u32)]) -> FairQueue {
    let share = |weight| Share {
        weight,
        max_concurrent: None,
    };
    let shares = weights
        .iter()
        .map(|(name, weight)| (tenant(name), share(*weight)));
    FairQueue::new(100_000, shares.collect())
}

fn push(queue: &mut FairQueue, name: u8) -> RunId {
    let run = run(name, queue.len());
    queue.push(run.clone()).unwrap();
    run.id
}

fn push_of(queue: &mut FairQueue, name: &str) -> RunId {
    let run = run_of(&tenant(name), 0, queue.len());
    queue.push(run.clone()).unwrap();
    run.id
}

/// Whose the next runs are.
fn next(queue: &mut FairQueue, count: usize) -> Vec<String> {
    let popped = (0..count).map_while(|_| queue.pop());
    popped.map(|run| run.tenant.to_string()).collect()
}

fn count(served: &[String], name: &str) -> usize {
    served.iter().filter(|other| *other == name).count()
}

#[test]
fn one_run_is_not_behind_another_clients_hundred() {
    let mut queue = alone(1000);
    for _ in 0..100 {
        push(&mut queue, 1);
    }
    let single = push(&mut queue, 2);
    assert_eq!(queue.position(single), Some(1));
    queue.pop();
    assert_eq!(queue.pop().unwrap().id, single);
}

#[test]
fn a_full_queue_refuses_and_has_room_again_after_a_removal() {
    let mut queue = alone(2);
    let first = push(&mut queue, 1);
    push(&mut queue, 1);
    assert_eq!(queue.push(run(2, 2)), Err(Full));
    assert!(queue.remove(first));
    assert!(!queue.remove(first));
    push(&mut queue, 2);
}

#[test]
fn a_run_put_back_is_the_next_again() {
    let mut queue = alone(9);
    for name in [1, 1, 2, 3] {
        push(&mut queue, name);
    }
    for _ in 0..4 {
        let run = queue.pop().unwrap();
        queue.put_back(run.clone());
        assert_eq!(queue.position(run.id), Some(0));
        assert_eq!(queue.pop(), Some(run));
    }
    assert!(queue.is_empty());
}

#[test]
fn a_run_put_back_is_before_a_tenant_that_came_meanwhile() {
    let mut queue = with_weights(&[("a", 1), ("b", 1)]);
    push_of(&mut queue, "a");
    let run = queue.pop().unwrap();
    push_of(&mut queue, "b");
    queue.put_back(run.clone());
    assert_eq!(queue.pop(), Some(run));
}

#[test]
fn runs_that_come_out_of_order_leave_in_the_order_of_acceptance() {
    let mut queue = alone(9);
    for sequence in [3, 1, 2] {
        queue.push(run(1, sequence)).unwrap();
    }
    let left = std::iter::from_fn(|| queue.pop()).map(|run| run.sequence);
    assert_eq!(left.collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn tenants_under_a_burst_get_their_shares() {
    for (weights, expected) in [((1, 1), 50), ((1, 3), 25), ((3, 1), 75)] {
        let mut queue = with_weights(&[("a", weights.0), ("b", weights.1)]);
        for _ in 0..200 {
            push_of(&mut queue, "a");
        }
        for _ in 0..200 {
            push_of(&mut queue, "b");
        }
        let served = next(&mut queue, 100);
        assert!(count(&served, "a").abs_diff(expected) <= 1, "{served:?}");
    }
}

#[test]
fn who_sends_one_run_at_a_time_gets_no_more_than_its_share() {
    let mut queue = with_weights(&[("a", 1), ("b", 1)]);
    for _ in 0..100 {
        push_of(&mut queue, "a");
    }
    let mut served = Vec::new();
    for _ in 0..50 {
        push_of(&mut queue, "b");
        served.extend(next(&mut queue, 1));
        // Both its last run and the wait for it are over; it comes back at once.
        queue.finished(&tenant(served.last().unwrap()));
        for waiting in queue.owners.clone() {
            if waiting.1.0 == tenant("b") {
                queue.remove(waiting.0);
            }
        }
    }
    assert!(count(&served, "a") >= 24, "{served:?}");
}

#[test]
fn nothing_is_saved_up_while_there_is_nothing_to_do() {
    let mut queue = with_weights(&[("a", 1), ("b", 1)]);
    for _ in 0..200 {
        push_of(&mut queue, "a");
    }
    assert_eq!(count(&next(&mut queue, 100), "a"), 100);
    for _ in 0..100 {
        push_of(&mut queue, "b");
    }
    let served = next(&mut queue, 20);
    assert!(count(&served, "b").abs_diff(10) <= 1, "{served:?}");
}

#[test]
fn a_tenant_at_its_bound_lets_the_others_pass_and_catches_nothing_up() {
    let bound = Share {
        weight: 1,
        max_concurrent: Some(2),
    };
    let mut queue = FairQueue::new(1000, HashMap::from([(tenant("a"), bound)]));
    for _ in 0..50 {
        push_of(&mut queue, "a");
        push_of(&mut queue, "b");
    }
    let ahead = queue.ahead(20);
    assert!(ahead.iter().all(|id| queue.owners.contains_key(id)));
    let of_a = ahead.iter().filter(|id| queue.owners[*id].0 == tenant("a"));
    assert_eq!((of_a.count(), ahead.len()), (2, 20));
    let served = next(&mut queue, 20);
    assert_eq!((count(&served, "a"), count(&served, "b")), (2, 18));
    queue.finished(&tenant("a"));
    queue.finished(&tenant("a"));
    let served = next(&mut queue, 4);
    assert_eq!(count(&served, "a"), 2, "{served:?}");

    // Where nobody else waits it still has its bound.
    let mut queue = FairQueue::new(1000, HashMap::from([(tenant("a"), bound)]));
    for _ in 0..5 {
        push_of(&mut queue, "a");
    }
    assert_eq!(next(&mut queue, 5).len(), 2);
    queue.finished(&tenant("a"));
    assert_eq!(next(&mut queue, 5).len(), 1);
}

#[test]
fn tenants_that_are_gone_are_forgotten() {
    let mut queue = with_weights(&[]);
    for name in 0..100 {
        push_of(&mut queue, &format!("t{name}"));
    }
    for run in std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>() {
        queue.finished(&run.tenant);
    }
    push_of(&mut queue, "a");
    push_of(&mut queue, "a");
    next(&mut queue, 2);
    queue.finished(&tenant("a"));
    queue.finished(&tenant("a"));
    assert!(queue.lines.len() <= 1, "{:?}", queue.lines);
}

#[derive(Debug, Clone)]
enum Step {
    Push(u8),
    /// Two runs, the one that was accepted later first.
    PushSwapped(u8),
    Pop,
    Remove(usize),
    PutBack,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..6).prop_map(Step::Push),
        1 => (0u8..6).prop_map(Step::PushSwapped),
        2 => Just(Step::Pop),
        1 => any::<usize>().prop_map(Step::Remove),
        1 => Just(Step::PutBack),
    ]
}

/// Two clients each for the tenants `t0`, `t1` and `t2`.
fn run_of_some_tenant(name: u8, accepted: usize) -> Waiting {
    run_of(&tenant(&format!("t{}", name / 2)), name, accepted)
}

proptest! {
    #[test]
    fn runs_leave_in_order_per_client_at_their_predicted_place(
        steps in prop::collection::vec(step(), 0..60),
        weights in prop::collection::vec(1u32..5, 3),
    ) {
        let mut queue = with_weights(&[("t0", weights[0]), ("t1", weights[1]), ("t2", weights[2])]);
        queue.capacity = 20;
        let mut accepted: Vec<Waiting> = Vec::new();
        for (step, number) in steps.into_iter().zip((0..).step_by(2)) {
            match step {
                Step::Push(name) => {
                    let run = run_of_some_tenant(name, number);
                    if queue.push(run.clone()).is_ok() {
                        accepted.push(run);
                    } else {
                        prop_assert_eq!(queue.len(), 20);
                    }
                }
                Step::PushSwapped(name) => {
                    let [first, second] =
                        [run_of_some_tenant(name, number), run_of_some_tenant(name, number + 1)];
                    let later = queue.push(second.clone());
                    let earlier = queue.push(first.clone());
                    accepted.extend(earlier.ok().map(|()| first));
                    accepted.extend(later.ok().map(|()| second));
                }
                Step::Pop => {
                    if let Some(popped) = queue.pop() {
                        accepted.retain(|other| *other != popped);
                    }
                }
                Step::Remove(index) if !accepted.is_empty() => {
                    let run = accepted.remove(index % accepted.len());
                    prop_assert!(queue.remove(run.id));
                }
                Step::Remove(_) => {}
                Step::PutBack => {
                    if let Some(run) = queue.pop() {
                        queue.put_back(run);
                    }
                }
            }
            prop_assert_eq!(queue.len(), accepted.len());
        }
        let places: HashMap<RunId, Option<usize>> =
            accepted.iter().map(|run| (run.id, queue.position(run.id))).collect();
        let (ahead, three) = (queue.ahead(usize::MAX), queue.ahead(3));
        prop_assert_eq!(&ahead[..ahead.len().min(3)], &three[..]);
        let mut left = Vec::new();
        while let Some(run) = queue.pop() {
            prop_assert_eq!(ahead.get(left.len()), Some(&run.id));
            prop_assert_eq!(places[&run.id], Some(left.len()));
            left.push(run);
        }
        prop_assert_eq!(left.len(), accepted.len());
        for name in 0..6 {
            let of = |runs: &[Waiting]| -> Vec<RunId> {
                let own = runs.iter().filter(|run| run.client == client(name));
                own.map(|run| run.id).collect()
            };
            prop_assert_eq!(of(&left), of(&accepted));
        }
    }

    #[test]
    fn tenants_that_have_runs_waiting_are_served_by_weight(
        weights in prop::collection::vec(1u32..50, 2..6),
        taken in 1usize..300,
    ) {
        let names: Vec<String> = (0..weights.len()).map(|number| format!("t{number}")).collect();
        let shares: Vec<(&str, u32)> =
            names.iter().map(String::as_str).zip(weights.iter().copied()).collect();
        let mut queue = with_weights(&shares);
        for name in &names {
            for _ in 0..taken {
                push_of(&mut queue, name);
            }
        }
        let served = next(&mut queue, taken);
        let counts: Vec<u64> =
            names.iter().map(|name| count(&served, name) as u64).collect();
        for (one, its) in counts.iter().zip(&weights) {
            for (other, others) in counts.iter().zip(&weights) {
                let (its, others) = (u64::from(*its), u64::from(*others));
                // By how much one is ahead of the other, in runs of the heavier one.
                let ahead = (one * others).abs_diff(other * its);
                prop_assert!(ahead <= its.max(others) + 1, "{:?} for {:?}", counts, weights);
            }
        }
    }
}
