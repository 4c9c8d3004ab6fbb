//! The waiting runs of one tenant: first-in first-out for each client, turns between clients.
//!
//! A client with one run waits for at most one run of each other client, however many those have
//! waiting.

use std::collections::{HashMap, VecDeque};

use crate::ids::{ClientKey, RunId};

/// The runs of each client.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The runs of each client that has any, in order of acceptance; never empty.
    lanes: HashMap<ClientKey, VecDeque<(i64, RunId)>>,
    /// Every client that has a lane, once; the next in turn first.
    turns: VecDeque<ClientKey>,
    count: usize,
}

impl Lanes {
    /// Puts a run behind those of its client that were accepted before it.
    pub(super) fn push(&mut self, client: ClientKey, sequence: i64, id: RunId) {
        self.count += 1;
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
    }

    /// Undoes [`Lanes::pop`]: the run is the next again.
    pub(super) fn put_back(&mut self, client: ClientKey, sequence: i64, id: RunId) {
        self.count += 1;
        self.turns.retain(|turn| *turn != client);
        let lane = self.lanes.entry(client.clone()).or_default();
        lane.push_front((sequence, id));
        self.turns.push_front(client);
    }

    /// Takes the run whose turn it is.
    pub(super) fn pop(&mut self) -> Option<(ClientKey, i64, RunId)> {
        let client = self.turns.pop_front()?;
        let lane = self.lanes.get_mut(&client)?;
        let (sequence, id) = lane.pop_front()?;
        if lane.is_empty() {
            self.lanes.remove(&client);
        } else {
            self.turns.push_back(client.clone());
        }
        self.count -= 1;
        Some((client, sequence, id))
    }

    /// Takes a run of a client out, wherever it is.
    pub(super) fn remove(&mut self, client: &ClientKey, id: RunId) {
        let Some(lane) = self.lanes.get_mut(client) else {
            return;
        };
        let before = lane.len();
        lane.retain(|(_, waiting)| *waiting != id);
        self.count -= before - lane.len();
        if lane.is_empty() {
            self.lanes.remove(client);
            self.turns.retain(|turn| turn != client);
        }
    }

    /// How many of these runs will be started before this one.
    pub(super) fn position(&self, client: &ClientKey, id: RunId) -> Option<usize> {
        let rounds = self.lanes.get(client)?.iter().position(|(_, w)| *w == id)?;
        let turn = self.turns.iter().position(|turn| turn == client)?;
        let before = self.turns.iter().enumerate().map(|(other, key)| {
            let waiting = self.lanes.get(key).map_or(0, VecDeque::len);
            waiting.min(if other < turn { rounds + 1 } else { rounds })
        });
        Some(before.sum())
    }

    /// The runs that will be started next, in this order, `most` at most.
    pub(super) fn ahead(&self, most: usize) -> Vec<RunId> {
        let lanes = self.turns.iter().filter_map(|key| self.lanes.get(key));
        let lanes: Vec<_> = lanes.collect();
        let longest = lanes.iter().map(|lane| lane.len()).max().unwrap_or(0);
        let turns =
            (0..longest).flat_map(|round| lanes.iter().filter_map(move |lane| lane.get(round)));
        turns.map(|(_, id)| *id).take(most).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }
}
