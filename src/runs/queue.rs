//! Whose turn it is: a bounded queue that is first-in first-out for each client and takes turns
//! between clients.
//!
//! A pure data structure, without clock, lock or I/O. A client with one run waits for at most one
//! run of each other client, however many those have waiting.

use std::collections::{HashMap, VecDeque};

use crate::ids::{ClientKey, RunId};

/// The queue has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct Full;

/// A run that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Whose it is.
    pub client: ClientKey,
    /// Its place in the order of acceptance.
    pub sequence: i64,
    /// Its id.
    pub id: RunId,
}

/// The waiting runs.
#[derive(Debug)]
pub struct FairQueue {
    /// The runs of each client that has any, in order of acceptance; never empty.
    lanes: HashMap<ClientKey, VecDeque<(i64, RunId)>>,
    /// Every client that has a lane, once; the next in turn first.
    turns: VecDeque<ClientKey>,
    /// Whose each waiting run is.
    owners: HashMap<RunId, ClientKey>,
    capacity: usize,
}

impl FairQueue {
    /// An empty queue for at most `capacity` runs.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            lanes: HashMap::new(),
            turns: VecDeque::new(),
            owners: HashMap::new(),
            capacity,
        }
    }

    /// Puts a run behind those of its client that were accepted before it. Runs that are accepted
    /// at the same time may come in any order. A run that waits already stays where it is.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is no room.
    pub fn push(&mut self, run: Waiting) -> Result<(), Full> {
        let Waiting {
            client,
            sequence,
            id,
        } = run;
        if self.owners.contains_key(&id) {
            return Ok(());
        }
        if self.owners.len() >= self.capacity {
            return Err(Full);
        }
        self.owners.insert(id, client.clone());
        match self.lanes.get_mut(&client) {
            Some(lane) => {
                let place = lane.partition_point(|(other, _)| *other < sequence);
                lane.insert(place, (sequence, id));
            }
            None => {
                self.turns.push_back(client.clone());
                self.lanes.insert(client, VecDeque::from([(sequence, id)]));
            }
        }
        Ok(())
    }

    /// Undoes [`FairQueue::pop`]: the run is the next again. It had its place, so there is room.
    pub fn put_back(&mut self, run: Waiting) {
        let Waiting {
            client,
            sequence,
            id,
        } = run;
        if self.owners.insert(id, client.clone()).is_some() {
            return;
        }
        self.turns.retain(|turn| *turn != client);
        let lane = self.lanes.entry(client.clone()).or_default();
        lane.push_front((sequence, id));
        self.turns.push_front(client);
    }

    /// Takes the run whose turn it is.
    pub fn pop(&mut self) -> Option<Waiting> {
        let client = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&client)?;
        let (sequence, id) = lane.pop_front()?;
        if lane.is_empty() {
            self.lanes.remove(&client);
        } else {
            self.turns.push_back(client.clone());
        }
        self.owners.remove(&id);
        Some(Waiting {
            client,
            sequence,
            id,
        })
    }

    /// Takes a run out, wherever it is; tells whether it was there.
    pub fn remove(&mut self, id: RunId) -> bool {
        let Some(client) = self.owners.remove(&id) else {
            return false;
        };
        if let Some(lane) = self.lanes.get_mut(&client) {
            lane.retain(|(_, waiting)| *waiting != id);
            if lane.is_empty() {
                self.lanes.remove(&client);
                self.turns.retain(|turn| *turn != client);
            }
        }
        true
    }

    /// How many runs will be started before this one if nothing changes; `None` if it does not
    /// wait.
    #[must_use]
    pub fn position(&self, id: RunId) -> Option<usize> {
        let client = self.owners.get(&id)?;
        let rounds = self.lanes.get(client)?.iter().position(|(_, w)| *w == id)?;
        let turn = self.turns.iter().position(|turn| turn == client)?;
        let before = self.turns.iter().enumerate().map(|(other, key)| {
            let waiting = self.lanes.get(key).map_or(0, VecDeque::len);
            waiting.min(if other < turn { rounds + 1 } else { rounds })
        });
        Some(before.sum())
    }

    /// The runs that will be started next if nothing changes, in this order, `most` at most.
    #[must_use]
    pub fn ahead(&self, most: usize) -> Vec<RunId> {
        let lanes: Vec<_> = self
            .turns
            .iter()
            .filter_map(|key| self.lanes.get(key))
            .collect();
        let longest = lanes.iter().map(|lane| lane.len()).max().unwrap_or(0);
        let turns =
            (0..longest).flat_map(|round| lanes.iter().filter_map(move |lane| lane.get(round)));
        turns.map(|(_, id)| *id).take(most).collect()
    }

    /// How many runs wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn client(name: u8) -> ClientKey {
        ClientKey(format!("client {name}"))
    }

    /// A run of which `accepted` were before.
    fn run(name: u8, accepted: usize) -> Waiting {
        Waiting {
            client: client(name),
            sequence: i64::try_from(accepted).unwrap(),
            id: RunId::random(),
        }
    }

    fn push(queue: &mut FairQueue, name: u8) -> RunId {
        let run = run(name, queue.len());
        queue.push(run.clone()).unwrap();
        run.id
    }

    #[test]
    fn one_run_is_not_behind_another_clients_hundred() {
        let mut queue = FairQueue::new(1000);
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
        let mut queue = FairQueue::new(2);
        let first = push(&mut queue, 1);
        push(&mut queue, 1);
        assert_eq!(queue.push(run(2, 2)), Err(Full));
        assert!(queue.remove(first));
        assert!(!queue.remove(first));
        push(&mut queue, 2);
    }

    #[test]
    fn a_run_put_back_is_the_next_again() {
        let mut queue = FairQueue::new(9);
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
    fn runs_that_come_out_of_order_leave_in_the_order_of_acceptance() {
        let mut queue = FairQueue::new(9);
        for sequence in [3, 1, 2] {
            queue.push(run(1, sequence)).unwrap();
        }
        let left = std::iter::from_fn(|| queue.pop()).map(|run| run.sequence);
        assert_eq!(left.collect::<Vec<_>>(), [1, 2, 3]);
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
            4 => (0u8..5).prop_map(Step::Push),
            1 => (0u8..5).prop_map(Step::PushSwapped),
            2 => Just(Step::Pop),
            1 => any::<usize>().prop_map(Step::Remove),
            1 => Just(Step::PutBack),
        ]
    }

    proptest! {
        #[test]
        fn runs_leave_in_order_per_client_at_their_predicted_place(
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let mut queue = FairQueue::new(20);
            let mut accepted: Vec<Waiting> = Vec::new();
            for (step, number) in steps.into_iter().zip((0..).step_by(2)) {
                match step {
                    Step::Push(name) => {
                        let run = run(name, number);
                        if queue.push(run.clone()).is_ok() {
                            accepted.push(run);
                        } else {
                            prop_assert_eq!(queue.len(), 20);
                        }
                    }
                    Step::PushSwapped(name) => {
                        let [first, second] = [run(name, number), run(name, number + 1)];
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
            for name in 0..5 {
                let of = |runs: &[Waiting]| -> Vec<RunId> {
                    let own = runs.iter().filter(|run| run.client == client(name));
                    own.map(|run| run.id).collect()
                };
                prop_assert_eq!(of(&left), of(&accepted));
            }
        }
    }
}
