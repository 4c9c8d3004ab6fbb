//! Whose turn it is: a bounded queue that gives each tenant its share, and within a tenant takes
//! turns between clients.
//!
//! A pure data structure, without clock, lock or I/O. Tenants are served by stride scheduling: each
//! has a *pass*, the one with the least is the next, and being served moves it on by a stride that
//! is the shorter the larger its weight. Over any time in which two tenants have runs waiting they
//! are served in proportion to their weights, to within one run. Who had nothing waiting, or was at
//! its own bound, saves nothing up for later, and gets no second turn by coming back.

mod lanes;

mod forecast;

use std::collections::HashMap;

use self::forecast::{Forecast, Turns};
use self::lanes::Lanes;
use super::tenants::Share;
use crate::ids::{ClientKey, RunId, TenantId};

/// The stride of a tenant of weight 1. Far larger than any weight, so that strides are exact
/// enough, and so small that passes never overflow.
const STRIDE: u64 = 1 << 30;

/// The queue has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct Full;

/// A run that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Whose it is.
    pub tenant: TenantId,
    /// Whose turn it is within the tenant.
    pub client: ClientKey,
    /// Its place in the order of acceptance.
    pub sequence: i64,
    /// Its id.
    pub id: RunId,
}

/// The waiting runs, and how many runs of each tenant are being carried out.
#[derive(Debug)]
pub struct FairQueue {
    /// Every tenant that has runs, or has been served more than its share of late.
    lines: HashMap<TenantId, Line>,
    /// Whose each waiting run is.
    owners: HashMap<RunId, (TenantId, ClientKey)>,
    shares: HashMap<TenantId, Share>,
    /// The pass at which the last run was taken.
    clock: u64,
    /// Turns between tenants of the same pass: handed out upwards to those at the end, and
    /// downwards to one that is to be the next.
    last_turn: i64,
    first_turn: i64,
    capacity: usize,
}

/// One tenant.
#[derive(Debug)]
struct Line {
    lanes: Lanes,
    share: Share,
    pass: u64,
    turn: i64,
    /// Runs taken and not finished.
    running: usize,
}

impl Line {
    fn stride(&self) -> u64 {
        STRIDE / u64::from(self.share.weight.max(1))
    }

    fn is_at_its_bound(&self) -> bool {
        let most = self.share.max_concurrent;
        most.is_some_and(|most| self.running >= most)
    }

    /// How many of its waiting runs may start before one that is going on ends.
    fn room(&self) -> usize {
        let waiting = self.lanes.len();
        let most = self.share.max_concurrent;
        most.map_or(waiting, |most| {
            waiting.min(most.saturating_sub(self.running))
        })
    }

    /// Whether forgetting it changes nothing.
    fn is_idle(&self, clock: u64) -> bool {
        self.lanes.is_empty() && self.running == 0 && self.pass <= clock
    }
}

impl FairQueue {
    /// An empty queue for at most `capacity` runs. A tenant that has no share here has the usual
    /// one.
    #[must_use]
    pub fn new(capacity: usize, shares: HashMap<TenantId, Share>) -> Self {
        Self {
            lines: HashMap::new(),
            owners: HashMap::new(),
            shares,
            clock: 0,
            last_turn: 0,
            first_turn: 0,
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
            tenant,
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
        self.owners.insert(id, (tenant.clone(), client.clone()));
        self.last_turn += 1;
        let (clock, turn) = (self.clock, self.last_turn);
        let line = self.line(tenant);
        if line.lanes.is_empty() {
            line.pass = line.pass.max(clock);
            line.turn = turn;
        }
        line.lanes.push(client, sequence, id);
        Ok(())
    }

    /// Undoes [`FairQueue::pop`]: the run is the next again, and not being carried out. It had its
    /// place, so there is room.
    pub fn put_back(&mut self, run: Waiting) {
        let Waiting {
            tenant,
            client,
            sequence,
            id,
        } = run;
        let owner = (tenant.clone(), client.clone());
        if self.owners.insert(id, owner).is_some() {
            return;
        }
        self.first_turn -= 1;
        let turn = self.first_turn;
        let line = self.line(tenant);
        line.running = line.running.saturating_sub(1);
        line.pass = line.pass.saturating_sub(line.stride());
        line.turn = turn;
        line.lanes.put_back(client, sequence, id);
    }

    /// Takes the run whose turn it is: of the tenants that are not at their bound. It counts as
    /// being carried out until [`FairQueue::finished`].
    pub fn pop(&mut self) -> Option<Waiting> {
        let ready = self
            .lines
            .iter_mut()
            .filter(|(_, line)| !line.lanes.is_empty() && !line.is_at_its_bound());
        let (tenant, line) = ready.min_by_key(|(_, line)| (line.pass, line.turn))?;
        let (client, sequence, id) = line.lanes.pop()?;
        self.last_turn += 1;
        self.clock = self.clock.max(line.pass);
        line.pass += line.stride();
        line.turn = self.last_turn;
        line.running += 1;
        let tenant = tenant.clone();
        self.owners.remove(&id);
        self.forget_idle();
        Some(Waiting {
            tenant,
            client,
            sequence,
            id,
        })
    }

    /// A run of a tenant is being carried out that was never taken from here: an earlier daemon did.
    pub fn taken_over(&mut self, tenant: TenantId) {
        self.line(tenant).running += 1;
    }

    /// A run that was taken is not being carried out any more.
    pub fn finished(&mut self, tenant: &TenantId) {
        let clock = self.clock;
        if let Some(line) = self.lines.get_mut(tenant) {
            if line.is_at_its_bound() {
                line.pass = line.pass.max(clock);
            }
            line.running = line.running.saturating_sub(1);
        }
        self.forget_idle();
    }

    /// Takes a run out, wherever it is; tells whether it was there.
    pub fn remove(&mut self, id: RunId) -> bool {
        let Some((tenant, client)) = self.owners.remove(&id) else {
            return false;
        };
        if let Some(line) = self.lines.get_mut(&tenant) {
            line.lanes.remove(&client, id);
        }
        self.forget_idle();
        true
    }

    /// How many runs will be started before this one if nothing changes and no tenant reaches its
    /// own bound; `None` if it does not wait. Goes through all of them.
    #[must_use]
    pub fn position(&self, id: RunId) -> Option<usize> {
        let (tenant, client) = self.owners.get(&id)?;
        let own = self.lines.get(tenant)?.lanes.position(client, id)?;
        let turns = self.turns(|line| line.lanes.len()).enumerate();
        let mut of_tenant = turns.filter(|(_, next)| *next == tenant);
        of_tenant.nth(own).map(|(before, _)| before)
    }

    /// The runs that will be started next if nothing changes, in this order, `most` at most. None of a
    /// tenant's that are more than it may have going on.
    #[must_use]
    pub fn ahead(&self, most: usize) -> Vec<RunId> {
        let mut lanes = HashMap::new();
        let turns = self.turns(Line::room).take(most);
        let run = |tenant| {
            let lane = lanes.entry(tenant).or_insert_with(|| {
                let lanes = self.lines.get(tenant).map(|line| line.lanes.ahead(most));
                lanes.unwrap_or_default().into_iter()
            });
            lane.next()
        };
        turns.filter_map(run).collect()
    }

    /// Whose the next turns are, if of each tenant so many runs are left.
    fn turns(&self, left: impl Fn(&Line) -> usize) -> Turns<'_> {
        let lines = self.lines.iter().map(|(tenant, line)| Forecast {
            tenant,
            pass: line.pass,
            turn: line.turn,
            stride: line.stride(),
            left: left(line),
        });
        Turns {
            lines: lines.collect(),
            last_turn: self.last_turn,
        }
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

    fn line(&mut self, tenant: TenantId) -> &mut Line {
        let share = self.shares.get(&tenant).copied().unwrap_or_default();
        let clock = self.clock;
        self.lines.entry(tenant).or_insert_with(|| Line {
            lanes: Lanes::default(),
            share,
            pass: clock,
            turn: 0,
            running: 0,
        })
    }

    /// Keeps the number of lines to those that matter.
    fn forget_idle(&mut self) {
        let clock = self.clock;
        self.lines.retain(|_, line| !line.is_idle(clock));
    }
}

#[cfg(test)]
mod tests;
