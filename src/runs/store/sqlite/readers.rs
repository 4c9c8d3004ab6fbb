//! The connections that read: a few, each with a thread of its own, lent to one operation at a time.
//! Owns them and the bound on how many there are; what is read is the operations' affair.
//!
//! The one given back last is lent first: what it has in its cache is what was asked for last, and
//! as few connections as are needed at once have a cache at all. They are not lent to the threads
//! of the runtime's pool for blocking work, which take turns and wait for each other's lock.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::access::Access;
use super::batch::Surroundings;
use super::open;
use crate::runs::store::{Fault, StoreError};

/// Connections: as many operations can read at once.
const READERS: u32 = 4;

/// How long an operation may take, with its wait for a connection.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// What a thread is given to do with its connection, which is there after its first use.
type Task = Box<dyn FnOnce(&mut Option<Connection>) + Send>;

/// The connections.
#[derive(Debug)]
pub(super) struct Readers {
    path: Arc<Path>,
    places: Arc<Semaphore>,
    idle: Arc<Idle>,
    /// Has the threads.
    threads: TaskTracker,
    surroundings: Arc<Surroundings>,
}

/// Those that nobody has. One is made when there is a place and none is idle.
#[derive(Debug, Default)]
struct Idle(Mutex<Vec<SyncSender<Task>>>);

impl Idle {
    fn readers(&self) -> MutexGuard<'_, Vec<SyncSender<Task>>> {
        // Nothing that holds it can leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One in the hands of an operation, which travels with it to the thread. If it is dropped, as in
/// a panic, the thread ends and its place is free.
struct Lent {
    reader: SyncSender<Task>,
    idle: Arc<Idle>,
    place: OwnedSemaphorePermit,
}

impl Lent {
    fn give_back(self) {
        self.idle.readers().push(self.reader);
        // Who gets it finds the reader.
        drop(self.place);
    }
}

impl Readers {
    pub(super) fn new(
        path: &Path,
        first: Connection,
        surroundings: Arc<Surroundings>,
    ) -> Result<Self, Fault> {
        let readers = Self {
            path: path.into(),
            places: Arc::new(Semaphore::new(READERS as usize)),
            idle: Arc::default(),
            threads: TaskTracker::new(),
            surroundings,
        };
        let first = readers.start(Some(first))?;
        readers.idle.readers().push(first);
        Ok(readers)
    }

    fn start(&self, connection: Option<Connection>) -> Result<SyncSender<Task>, Fault> {
        // Whoever has the sender is alone with it.
        let (sender, tasks) = sync_channel(1);
        let token = self.threads.token();
        thread::Builder::new()
            .name("store-reader".to_owned())
            .spawn(move || {
                // Dropped after the connection.
                let _token = token;
                work(&tasks, connection);
            })?;
        Ok(sender)
    }

    /// Has `reading` done with a connection. If this future is dropped, or is over its limit, the
    /// connection comes back when `reading` has ended.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        operation: &'static str,
        reading: impl FnOnce(Access<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let failed = |fault| self.surroundings.flushes.failed(operation, fault);
        let (to, answer) = oneshot::channel();
        let read = async {
            let lent = self.lend().await.map_err(failed)?;
            let (path, surroundings) = (Arc::clone(&self.path), Arc::clone(&self.surroundings));
            let reader = lent.reader.clone();
            let task: Task = Box::new(move |connection| {
                let flushes = &surroundings.flushes;
                let read = match connect(connection, &path) {
                    Ok(connection) => reading(Access::new(connection, flushes, operation)),
                    Err(error) => Err(flushes.failed(operation, Fault::from(error))),
                };
                // First, so that whoever is answered and asks again gets the same one.
                lent.give_back();
                if to.send(read).is_err() {
                    tracing::debug!(operation, "Nobody waits for what was read any more");
                }
            });
            reader.try_send(task).map_err(|_gone| failed(Fault::Died))?;
            drop(reader);
            answer
                .await
                .unwrap_or_else(|_gone| Err(failed(Fault::Died)))
        };
        let late = |_elapsed| Err(failed(Fault::Slow(READ_LIMIT.as_secs())));
        timeout(READ_LIMIT, read).await.unwrap_or_else(late)
    }

    async fn lend(&self) -> Result<Lent, Fault> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_closed| Fault::Closed)?;
        let idle = self.idle.readers().pop();
        Ok(Lent {
            reader: idle.map_or_else(|| self.start(None), Ok)?,
            idle: Arc::clone(&self.idle),
            place,
        })
    }

    /// Waits for what is being read, closes the connections, and lends none any more.
    pub(super) async fn close(&self) {
        // Refused where they are closed already.
        let all = self.places.acquire_many(READERS).await;
        self.places.close();
        self.idle.readers().clear();
        drop(all);
        self.threads.close();
        self.threads.wait().await;
    }
}

/// Ends when nobody has the sender any more.
fn work(tasks: &Receiver<Task>, mut connection: Option<Connection>) {
    for task in tasks {
        task(&mut connection);
    }
}

fn connect<'c>(
    connection: &'c mut Option<Connection>,
    path: &Path,
) -> Result<&'c Connection, rusqlite::Error> {
    Ok(match connection {
        Some(connection) => connection,
        None => connection.insert(open::reader(path)?),
    })
}
