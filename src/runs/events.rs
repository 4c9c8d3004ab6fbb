//! What happens in a run while it happens: state changes and live output.
//!
//! Every run has a bounded ring of numbered events. Readers follow it at their own pace and hold
//! nothing but a number: a reader that falls behind the ring is told so and goes on from what is
//! left. Writers never wait for readers. Nothing here is durable; the record is the store's.

mod characters;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fumehood_protocol::message::Stream;
use tokio::sync::watch;

use self::characters::{Begun, pieces};
use super::service::Observer;
use crate::ids::{ExecutionId, RunId};

/// Events kept of one run.
const MAX_EVENTS: usize = 1024;

/// Bytes of output kept of one run.
const MAX_BYTES: usize = 512 << 10;

/// Longer output is kept in pieces, so that one event cannot push all others out.
const MAX_PIECE: usize = 32 << 10;

/// Ended runs whose events are kept for readers that come late.
const KEPT_ENDED_RUNS: usize = 64;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// The run has this status now, as the interface writes it.
    Status(&'static str),
    /// A program was started.
    ExecutionStarted(ExecutionId),
    /// A program wrote something that is kept.
    Output {
        /// Where.
        stream: Stream,
        /// What; what an [`EventLog`] gives its readers does not end within a character.
        bytes: Vec<u8>,
    },
    /// A program is over, with this status.
    ExecutionEnded(ExecutionId, &'static str),
}

impl RunEvent {
    fn size(&self) -> usize {
        match self {
            Self::Output { bytes, .. } => bytes.len(),
            Self::Status(_) | Self::ExecutionStarted(_) | Self::ExecutionEnded(..) => 0,
        }
    }
}

/// What a reader is given next.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    /// An event with its number.
    Event {
        /// Counts from 1 within the run.
        id: u64,
        /// What happened.
        event: Arc<RunEvent>,
    },
    /// Events between the last one the reader has and the next one it gets are no longer kept.
    Gap,
}

/// The events of one run.
#[derive(Debug)]
pub struct EventLog {
    ring: Mutex<Ring>,
    /// Told of every change; readers look at the ring, not at the value.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Ring {
    /// The number of the first event in `events`.
    first: u64,
    events: VecDeque<Arc<RunEvent>>,
    bytes: usize,
    begun: Begun,
    closed: bool,
}

impl Ring {
    fn push_output(&mut self, stream: Stream, bytes: Vec<u8>) {
        let bytes = self.begun.completed(stream, bytes);
        for bytes in pieces(&bytes, MAX_PIECE) {
            self.push(RunEvent::Output { stream, bytes });
        }
    }

    /// Output that waits for the rest of a character, which does not come any more.
    fn push_rest(&mut self) {
        for (stream, bytes) in self.begun.rest() {
            self.push(RunEvent::Output { stream, bytes });
        }
    }

    fn push(&mut self, event: RunEvent) {
        self.bytes += event.size();
        self.events.push_back(Arc::new(event));
        while self.events.len() > MAX_EVENTS || self.bytes > MAX_BYTES {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.size();
            self.first += 1;
        }
    }

    fn get(&self, id: u64) -> Option<&Arc<RunEvent>> {
        let index = usize::try_from(id.checked_sub(self.first)?).ok()?;
        self.events.get(index)
    }

    fn next_id(&self) -> u64 {
        self.first + self.events.len() as u64
    }
}

impl EventLog {
    fn starting_at(first: u64) -> Self {
        Self {
            ring: Mutex::new(Ring {
                first,
                events: VecDeque::new(),
                bytes: 0,
                begun: Begun::default(),
                closed: false,
            }),
            changed: watch::Sender::new(()),
        }
    }

    /// A log without events.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(1)
    }

    /// The log of a run that ended and whose events are gone: its final status, numbered so that
    /// a reader that has seen the events up to `after` gets it.
    #[must_use]
    pub fn of_ended(status: &'static str, after: Option<u64>) -> Self {
        // The number after the next: the one between stands for everything that is gone.
        // Capped, because readers send what they like.
        let log = Self::starting_at(after.map_or(1, |id| id.min(u64::MAX / 2) + 2));
        log.observe(RunEvent::Status(status));
        log.close();
        log
    }

    /// Nothing happens any more; readers end after the last event.
    pub fn close(&self) {
        let mut ring = self.ring();
        ring.push_rest();
        ring.closed = true;
        drop(ring);
        self.changed.send_replace(());
    }

    /// Follows the log from the event after number `after`, or from the first that is kept.
    #[must_use]
    pub fn subscribe(self: &Arc<Self>, after: Option<u64>) -> Subscription {
        let ring = self.ring();
        let next = match after {
            // Numbers from the future are from an earlier life of the daemon.
            Some(id) if id >= ring.next_id() => 0,
            Some(id) => id + 1,
            None => ring.first,
        };
        drop(ring);
        Subscription {
            changed: self.changed.subscribe(),
            log: Arc::clone(self),
            next,
        }
    }

    /// The ring is whole even if a thread panicked while it had it: every change is complete
    /// before anything that can panic.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for EventLog {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for EventLog {
    fn observe(&self, event: RunEvent) {
        let mut ring = self.ring();
        if ring.closed {
            return;
        }
        match event {
            RunEvent::Output { stream, bytes } => ring.push_output(stream, bytes),
            RunEvent::ExecutionEnded(..) => {
                ring.push_rest();
                ring.push(event);
            }
            RunEvent::Status(_) | RunEvent::ExecutionStarted(_) => ring.push(event),
        }
        drop(ring);
        self.changed.send_replace(());
    }
}

/// A reader of one run's events.
#[derive(Debug)]
pub struct Subscription {
    log: Arc<EventLog>,
    next: u64,
    changed: watch::Receiver<()>,
}

impl Subscription {
    /// What comes next; `None` when the run is over and everything was given. Dropping the future
    /// loses nothing.
    pub async fn next(&mut self) -> Option<Delivery> {
        loop {
            // Marked before looking, so that a change after the look wakes this reader.
            self.changed.mark_unchanged();
            {
                let ring = self.log.ring();
                if self.next < ring.first {
                    self.next = ring.first;
                    return Some(Delivery::Gap);
                }
                if let Some(event) = ring.get(self.next) {
                    let id = self.next;
                    self.next += 1;
                    let event = Arc::clone(event);
                    return Some(Delivery::Event { id, event });
                }
                if ring.closed {
                    return None;
                }
            }
            self.changed.changed().await.ok()?;
        }
    }

    /// Waits until the run is over, whatever has not been read by then.
    pub async fn closed(&mut self) {
        loop {
            self.changed.mark_unchanged();
            if self.log.ring().closed || self.changed.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The logs of every unfinished run and of the last ones that ended.
#[derive(Debug, Default)]
pub struct EventHub {
    logs: Mutex<Logs>,
}

#[derive(Debug, Default)]
struct Logs {
    by_run: HashMap<RunId, Arc<EventLog>>,
    ended: VecDeque<RunId>,
}

impl EventHub {
    /// The log of a run; made if there is none.
    #[must_use]
    pub fn open(&self, id: RunId) -> Arc<EventLog> {
        Arc::clone(self.logs().by_run.entry(id).or_default())
    }

    /// The log of a run, if it is kept.
    #[must_use]
    pub fn get(&self, id: RunId) -> Option<Arc<EventLog>> {
        self.logs().by_run.get(&id).map(Arc::clone)
    }

    /// Closes a run's log and keeps it for a while.
    pub fn end(&self, id: RunId) {
        let mut logs = self.logs();
        let Some(log) = logs.by_run.get(&id) else {
            return;
        };
        log.close();
        if !logs.ended.contains(&id) {
            logs.ended.push_back(id);
        }
        if logs.ended.len() > KEPT_ENDED_RUNS
            && let Some(oldest) = logs.ended.pop_front()
        {
            logs.by_run.remove(&oldest);
        }
    }

    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(size: usize) -> RunEvent {
        RunEvent::Output {
            stream: Stream::Stdout,
            bytes: vec![b'x'; size],
        }
    }

    async fn drain(mut reader: Subscription) -> Vec<Delivery> {
        let mut all = Vec::new();
        while let Some(delivery) = reader.next().await {
            all.push(delivery);
        }
        all
    }

    fn event(id: u64, event: RunEvent) -> Delivery {
        Delivery::Event {
            id,
            event: Arc::new(event),
        }
    }

    #[tokio::test]
    async fn a_reader_gets_what_was_and_what_comes_then_the_end() {
        let log = Arc::new(EventLog::new());
        log.observe(RunEvent::Status("QUEUED"));
        let mut reader = log.subscribe(None);
        assert_eq!(
            reader.next().await,
            Some(event(1, RunEvent::Status("QUEUED")))
        );
        let (next, ()) = tokio::join!(reader.next(), async {
            log.observe(RunEvent::Status("RUNNING"));
        });
        assert_eq!(next, Some(event(2, RunEvent::Status("RUNNING"))));
        log.close();
        log.observe(output(1));
        assert_eq!(reader.next().await, None);
    }

    #[tokio::test]
    async fn a_reader_that_comes_back_gets_what_it_missed() {
        let log = Arc::new(EventLog::new());
        for size in [1, 2, 3] {
            log.observe(output(size));
        }
        log.close();
        assert_eq!(
            drain(log.subscribe(Some(1))).await,
            [event(2, output(2)), event(3, output(3))]
        );
        // A number of an earlier life: everything, and the gap is told.
        assert_eq!(drain(log.subscribe(Some(99))).await.len(), 4);
        assert_eq!(drain(log.subscribe(Some(4))).await.len(), 4);
        assert_eq!(drain(log.subscribe(Some(3))).await, []);
    }

    #[tokio::test]
    async fn a_slow_reader_is_told_of_the_gap_and_the_ring_stays_bounded() {
        let log = Arc::new(EventLog::new());
        let slow = log.subscribe(None);
        for _ in 0..100 {
            log.observe(output(64 << 10));
        }
        assert!(log.ring().bytes <= MAX_BYTES);
        for _ in 0..2 * MAX_EVENTS {
            log.observe(output(1));
        }
        log.close();
        assert!(log.ring().events.len() <= MAX_EVENTS);
        let all = drain(slow).await;
        assert_eq!(all[0], Delivery::Gap);
        assert_eq!(all.len(), MAX_EVENTS + 1);
    }

    #[tokio::test]
    async fn the_final_status_of_a_forgotten_run_reaches_every_reader() {
        for after in [None, Some(0), Some(57), Some(u64::MAX)] {
            let log = Arc::new(EventLog::of_ended("SUCCESS", after));
            let all = drain(log.subscribe(after)).await;
            assert!(matches!(all.last(), Some(Delivery::Event { event, .. })
                if **event == RunEvent::Status("SUCCESS")));
            assert_eq!(all.first() == Some(&Delivery::Gap), after.is_some());
        }
    }

    #[test]
    fn the_hub_keeps_unfinished_runs_and_a_bounded_number_of_ended_ones() {
        let hub = EventHub::default();
        let going_on = RunId::random();
        let _log = hub.open(going_on);
        let ended: Vec<RunId> = (0..2 * KEPT_ENDED_RUNS).map(|_| RunId::random()).collect();
        for id in &ended {
            let _log = hub.open(*id);
            hub.end(*id);
        }
        assert!(hub.get(going_on).is_some());
        assert!(hub.get(ended[0]).is_none());
        assert_eq!(hub.logs().by_run.len(), KEPT_ENDED_RUNS + 1);
    }
}
