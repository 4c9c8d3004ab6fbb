//! The places of connections: a fixed number, and when all are taken, the connection gives way that has
//! said nothing for the longest.
//!
//! Between requests, before the first, and while a request is still arriving, a connection *listens*.
//! Whoever opens many and says nothing, or a little at a time, has many that listen and none that does
//! anything: they make room for others. One on which a whole request is being answered never does.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// All places.
#[derive(Debug)]
pub(super) struct Places {
    room: Arc<Semaphore>,
    table: Mutex<Table>,
    /// Told when a connection begins to listen.
    listens: Notify,
}

/// Who has a place.
#[derive(Debug, Default)]
struct Table {
    next: u64,
    seats: HashMap<u64, Seat>,
    /// The seats that listen, the longest first.
    listening: BTreeMap<u64, u64>,
}

#[derive(Debug)]
struct Seat {
    state: State,
    give_way: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Since then, in `listening`.
    Listens(u64),
    /// A whole request is being answered.
    Answers,
    /// It was told to give way.
    Leaves,
}

impl Places {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self {
            room: Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS))),
            table: Mutex::default(),
            listens: Notify::new(),
        })
    }

    /// A place for a connection that has come, at the expense of another if need be. `None`: there are
    /// none any more.
    pub(super) async fn take(self: &Arc<Self>) -> Option<Place> {
        loop {
            let listens = self.listens.notified();
            if let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() {
                return Some(self.seat(permit));
            }
            if self.send_away() {
                let permit = Arc::clone(&self.room).acquire_owned().await.ok()?;
                return Some(self.seat(permit));
            }
            tokio::select! {
                permit = Arc::clone(&self.room).acquire_owned() => return Some(self.seat(permit.ok()?)),
                () = listens => {}
            }
        }
    }

    fn seat(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Place {
        let give_way = CancellationToken::new();
        let mut table = self.table();
        let number = table.number();
        let seat = Seat {
            state: State::Listens(number),
            give_way: give_way.clone(),
        };
        table.seats.insert(number, seat);
        table.listening.insert(number, number);
        drop(table);
        Place {
            places: Arc::clone(self),
            number,
            give_way,
            _permit: permit,
        }
    }

    /// Tells the connection that has listened for the longest to end; `false` if none listens.
    fn send_away(&self) -> bool {
        let mut table = self.table();
        let Some((_, number)) = table.listening.pop_first() else {
            return false;
        };
        if let Some(seat) = table.seats.get_mut(&number) {
            seat.state = State::Leaves;
            seat.give_way.cancel();
        }
        true
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Whole even if a thread panicked while it had it: nothing in between panics.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Makes a seat one that listens, as if it had begun just now.
    fn listen(&mut self, number: u64) {
        let now = self.number();
        // The connection may be gone.
        if let Some(seat) = self.seats.get_mut(&number) {
            if let State::Listens(since) = seat.state {
                self.listening.remove(&since);
            }
            seat.state = State::Listens(now);
            self.listening.insert(now, number);
        }
    }
}

/// The place of a connection; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    give_way: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

impl Place {
    /// Cancelled when the connection has to end.
    pub(super) fn give_way(&self) -> &CancellationToken {
        &self.give_way
    }

    /// Who counts the requests of this connection.
    pub(super) fn counter(&self) -> Counter {
        Counter {
            places: Arc::clone(&self.places),
            number: self.number,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.places.table();
        if let Some(seat) = table.seats.remove(&self.number)
            && let State::Listens(since) = seat.state
        {
            table.listening.remove(&since);
        }
    }
}

/// Tells the places whether a connection listens.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    places: Arc<Places>,
    number: u64,
}

impl Counter {
    /// The head of a request has come. `None`: the connection was told to give way in this very moment,
    /// and the request is not to be begun.
    pub(super) fn request(&self) -> Option<Asked> {
        let mut table = self.places.table();
        let seat = table.seats.get(&self.number)?;
        if !matches!(seat.state, State::Listens(_)) {
            return None;
        }
        table.listen(self.number);
        Some(Asked(self.clone()))
    }
}

/// A request, from its head on until its answer is out.
#[derive(Debug)]
pub(super) struct Asked(Counter);

impl Asked {
    /// All of the request is there, or all of it that matters: from now on the connection does not give
    /// way.
    pub(super) fn is_whole(&self) {
        let Counter { places, number } = &self.0;
        let mut table = places.table();
        if let Some(seat) = table.seats.get_mut(number)
            && let State::Listens(since) = seat.state
        {
            seat.state = State::Answers;
            table.listening.remove(&since);
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let Counter { places, number } = &self.0;
        let mut table = places.table();
        let answered = table.seats.get(number).map(|seat| seat.state);
        if answered == Some(State::Answers) {
            table.listen(*number);
        }
        drop(table);
        places.listens.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn the_one_that_has_listened_for_the_longest_gives_way() {
        let places = Places::new(3);
        let first = places.take().await.unwrap();
        let second = places.take().await.unwrap();
        let third = places.take().await.unwrap();
        // The first has been heard since.
        let request = first.counter().request().unwrap();
        request.is_whole();
        drop(request);
        let fourth = places.take();
        let mut fourth = std::pin::pin!(fourth);
        assert!(fourth.as_mut().now_or_never().is_none());
        let told = [&first, &second, &third].map(|place| place.give_way().is_cancelled());
        assert_eq!(told, [false, true, false]);
        assert!(second.counter().request().is_none(), "it is too late");
        drop(second);
        assert!(fourth.await.is_some());
    }

    #[tokio::test]
    async fn one_that_is_being_answered_never_gives_way() {
        let places = Places::new(1);
        let first = places.take().await.unwrap();
        let request = first.counter().request().unwrap();
        request.is_whole();
        let mut next = Box::pin(places.take());
        assert!(next.as_mut().now_or_never().is_none());
        assert!(!first.give_way().is_cancelled());
        drop(request);
        assert!(next.as_mut().now_or_never().is_none());
        assert!(first.give_way().is_cancelled());
        drop(first);
        assert!(next.await.is_some());
    }

    #[tokio::test]
    async fn one_whose_request_is_still_arriving_gives_way_after_those_that_say_nothing() {
        let places = Places::new(2);
        let (asks, silent) = (places.take().await.unwrap(), places.take().await.unwrap());
        let request = asks.counter().request().unwrap();
        let mut third = Box::pin(places.take());
        assert!(third.as_mut().now_or_never().is_none());
        assert!(silent.give_way().is_cancelled() && !asks.give_way().is_cancelled());
        drop(silent);
        let third = third.await.unwrap();
        drop(third.counter().request().unwrap());
        let mut fourth = Box::pin(places.take());
        assert!(fourth.as_mut().now_or_never().is_none());
        assert!(asks.give_way().is_cancelled());
        // It came too late, and is not begun again when it is dropped.
        request.is_whole();
        drop(request);
        assert!(asks.counter().request().is_none());
        drop(asks);
        assert!(fourth.await.is_some());
    }

    #[tokio::test]
    async fn nothing_is_kept_of_those_that_are_gone() {
        let places = Places::new(2);
        for _ in 0..10 {
            let place = places.take().await.unwrap();
            let request = place.counter().request().unwrap();
            request.is_whole();
            drop(place);
            drop(request);
            drop(places.take().await.unwrap());
        }
        let table = places.table();
        assert!(table.seats.is_empty() && table.listening.is_empty());
    }
}
