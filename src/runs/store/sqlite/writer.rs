//! The one writer: a thread that owns the writing connection and makes one transaction of all the
//! operations that wait for it.
//!
//! A flush to disk takes as long for one operation as for many. While one is under way the next
//! operations gather in a bounded channel; the writer then takes what is there, and waits for no
//! more. Each operation is carried out in a savepoint, so that one that is refused or fails takes
//! nothing of the others with it. All are answered after the one commit, or all fail with it. Knows
//! nothing of runs: what is written is the operations' affair.
//!
//! It is a thread and not a task because SQLite blocks: so an operation is one way there and one
//! back, however many statements it has.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::batch::{Batch, Surroundings};
use super::failure::Flushes;
use super::lock::FileLock;
use super::log::Log;
use crate::runs::store::{Fault, StoreError};

/// Operations in one transaction. As many may wait for the next one.
const BATCH: usize = 128;

/// How long an operation waits for a place in the queue: many times what a slow disk needs for
/// what is before it.
const PLACE_LIMIT: Duration = Duration::from_secs(30);

/// How long an operation that has its place waits for its answer: several times what a slow disk
/// needs for two full transactions.
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// Something to be written, and what it gives back once it is on disk.
pub(super) trait Operation: Send + 'static {
    /// What it does, for messages.
    const NAME: &'static str;
    /// What its caller is told.
    type Answer: Send + 'static;

    /// Does it. After an error nothing of it is left in the database.
    fn execute(self, batch: &mut Batch<'_>) -> Result<Self::Answer, StoreError>;
}

/// The way to the writer.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
    pub(super) surroundings: Arc<Surroundings>,
    closing: CancellationToken,
    /// The thread is gone, and with it the connection and the lock.
    gone: CancellationToken,
}

impl Writer {
    /// Starts the writer. It lets go of `lock` after it has closed the connection.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub(super) fn start(
        mut connection: Connection,
        unfinished: i64,
        surroundings: Arc<Surroundings>,
        lock: FileLock,
    ) -> Result<Self, Fault> {
        let log = Log::of(&mut connection)?;
        let (sender, jobs) = mpsc::channel(BATCH);
        let (closing, gone) = (CancellationToken::new(), CancellationToken::new());
        let writing = Writing {
            connection,
            log,
            unfinished,
            surroundings: Arc::clone(&surroundings),
        };
        let inbox = Inbox {
            jobs,
            closing: closing.clone(),
            runtime: Handle::current(),
        };
        let end = gone.clone().drop_guard();
        thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                // Dropped after everything else, in a panic too.
                let _end = end;
                work(writing, inbox, lock);
            })?;
        Ok(Self {
            jobs: sender,
            surroundings,
            closing,
            gone,
        })
    }

    /// Has an operation carried out, and returns after it is on disk. If this future is dropped
    /// the operation is carried out whole or not at all.
    pub(super) async fn run<O: Operation>(&self, operation: O) -> Result<O::Answer, StoreError> {
        let flushes = &self.surroundings.flushes;
        let failed = |fault| flushes.failed(O::NAME, fault);
        let (to, answer) = oneshot::channel();
        let job = Box::new(Pending {
            state: State::Waiting(operation),
            to,
        });
        match timeout(PLACE_LIMIT, self.jobs.send(job)).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) if self.closing.is_cancelled() => return Err(failed(Fault::Closed)),
            Ok(Err(_closed)) => return Err(self.died(O::NAME)),
            Err(_elapsed) => return Err(failed(Fault::Slow(PLACE_LIMIT.as_secs()))),
        }
        match timeout(ANSWER_LIMIT, self.answered(answer)).await {
            Ok(Some(answer)) => answer,
            Ok(None) => Err(self.died(O::NAME)),
            Err(_elapsed) => {
                // It may still get to the disk. So that nothing is built on its failure meanwhile,
                // this is the end of writing, as after a failed flush.
                flushes.give_up();
                Err(failed(Fault::Slow(ANSWER_LIMIT.as_secs())))
            }
        }
    }

    /// Without its thread nothing will ever be written. It is also gone once the store is closed.
    fn died(&self, operation: &'static str) -> StoreError {
        let flushes = &self.surroundings.flushes;
        if !self.closing.is_cancelled() {
            flushes.give_up();
        }
        flushes.failed(operation, Fault::Died)
    }

    /// The answer, or `None` if there will be none because the thread is gone.
    async fn answered<T>(&self, mut answer: oneshot::Receiver<T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = &mut answer => answer.ok(),
            // What was put into the channel in the very moment it was given up lies there for ever.
            () = self.gone.cancelled() => answer.try_recv().ok(),
        }
    }

    /// Has what waits carried out and the connection closed, and returns after that. Nothing is
    /// taken on any more, even if this future is dropped.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        self.gone.cancelled().await;
    }
}

/// An operation on its way, whatever its answer.
trait Job: Send {
    /// Whether somebody still waits for it.
    fn wanted(&self) -> bool;

    /// Carries it out; tells whether it stays in the transaction.
    fn execute(&mut self, batch: &mut Batch<'_>) -> bool;

    /// The transaction is on disk.
    fn answer(self: Box<Self>);

    /// Nothing of the transaction is left.
    fn fail(self: Box<Self>, failure: &Failure, flushes: &Flushes);
}

/// Why a whole transaction failed.
enum Failure {
    /// After a failed flush nothing is written.
    Unflushed,
    /// The database said no.
    Database(Arc<Fault>),
}

impl From<rusqlite::Error> for Failure {
    fn from(source: rusqlite::Error) -> Self {
        Self::Database(Arc::new(Fault::Database(source)))
    }
}

struct Pending<O: Operation> {
    state: State<O>,
    to: oneshot::Sender<Result<O::Answer, StoreError>>,
}

enum State<O: Operation> {
    Waiting(O),
    /// Taken out to be carried out.
    Under,
    Done(Result<O::Answer, StoreError>),
}

impl<O: Operation> Job for Pending<O> {
    fn wanted(&self) -> bool {
        !self.to.is_closed()
    }

    fn execute(&mut self, batch: &mut Batch<'_>) -> bool {
        if let State::Waiting(operation) = std::mem::replace(&mut self.state, State::Under) {
            self.state = State::Done(operation.execute(batch));
        }
        matches!(self.state, State::Done(Ok(_)))
    }

    fn answer(self: Box<Self>) {
        if let State::Done(answer) = self.state
            && self.to.send(answer).is_err()
        {
            tracing::debug!(operation = O::NAME, "Nobody waits for an answer any more");
        }
    }

    fn fail(self: Box<Self>, failure: &Failure, flushes: &Flushes) {
        let error = match (self.state, failure) {
            // What this one met may be what all the others suffer from.
            (State::Done(Err(own @ (StoreError::Failed { .. } | StoreError::Corrupt(_)))), _) => {
                own
            }
            (_, Failure::Unflushed) => StoreError::Unflushed,
            (_, Failure::Database(source)) => flushes.failed(O::NAME, Arc::clone(source)),
        };
        if self.to.send(Err(error)).is_err() {
            tracing::debug!(operation = O::NAME, "Nobody waits for a failure any more");
        }
    }
}

/// What the writer works with.
struct Writing {
    connection: Connection,
    log: Log,
    /// Runs waiting or going on, as the last commit left them.
    unfinished: i64,
    surroundings: Arc<Surroundings>,
}

/// Where the operations come from.
struct Inbox {
    jobs: mpsc::Receiver<Box<dyn Job>>,
    closing: CancellationToken,
    runtime: Handle,
}

impl Inbox {
    /// Waits for operations and takes all that are there, but not more than are good for a
    /// transaction. None: there will be no more.
    fn take(&mut self, batch: &mut Vec<Box<dyn Job>>) -> usize {
        self.runtime.block_on(async {
            let taking = self.jobs.recv_many(batch, BATCH);
            match self.closing.run_until_cancelled(taking).await {
                Some(taken) => taken,
                // What is in the channel is carried out; nothing gets in any more.
                None => {
                    self.jobs.close();
                    self.jobs.recv_many(batch, BATCH).await
                }
            }
        })
    }
}

fn work(mut writing: Writing, mut inbox: Inbox, lock: FileLock) {
    let mut batch = Vec::new();
    while inbox.take(&mut batch) > 0 {
        writing.write(&mut batch);
    }
    let is_sound = writing.surroundings.flushes.require().is_ok();
    let connection = writing.connection;
    let emptied = if is_sound {
        // Leaves one file with everything in it. If it fails, the log is read at the next start.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
    } else {
        // Nothing is flushed once more, and the log stays: SQLite would do that at the end by itself.
        let leave = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        connection.set_db_config(leave, true).map(drop)
    };
    let closed = connection.close().map_err(|(_, error)| error);
    if let Err(error) = emptied.and(closed) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "The log of the store could not be emptied"
        );
    }
    drop(lock);
}

impl Writing {
    /// Carries out `jobs` in one transaction and answers them.
    fn write(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        jobs.retain(|job| job.wanted());
        if jobs.is_empty() {
            return;
        }
        self.surroundings.space.before_writing();
        let failure = self.transact(jobs).err();
        if let Some(Failure::Database(source)) = &failure {
            tracing::error!(
                error = source as &dyn std::error::Error,
                operations = jobs.len(),
                "A transaction failed"
            );
            roll_back(&self.connection);
            self.surroundings.flushes.note(source);
        }
        // Before the answers: whoever records an end tries again at once.
        self.give_room();
        for job in jobs.drain(..) {
            match &failure {
                None => job.answer(),
                Some(failure) => job.fail(failure, &self.surroundings.flushes),
            }
        }
        if failure.is_none() {
            self.copy_log();
            self.give_room();
        }
    }

    /// Gives the reserve up if anything has met a full disk.
    fn give_room(&self) {
        if self.surroundings.flushes.take_full() {
            self.surroundings.space.give_up();
        }
    }

    fn copy_log(&self) {
        if let Err(source) = self.log.copy_if_long(&self.connection) {
            // Nothing that was answered is lost: the log has it.
            let source = Fault::Database(source);
            let error = self.surroundings.flushes.failed("copy its log", source);
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "The log of the store could not be copied into the database"
            );
        }
    }

    /// Transactions are begun and ended by statements, not by a value of rusqlite: SQLite may have
    /// rolled one back by itself, as it does on a full disk.
    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        let flushes = &self.surroundings.flushes;
        flushes.require().map_err(|_| Failure::Unflushed)?;
        let alone = jobs.len() == 1;
        let last = jobs.len() - 1;
        let connection = &self.connection;
        let mut batch = Batch::new(connection, &self.surroundings, self.unfinished);
        send(connection, "BEGIN IMMEDIATE")?;
        if !alone {
            send(connection, "SAVEPOINT operation")?;
        }
        for (index, job) in jobs.iter_mut().enumerate() {
            let before = batch.unfinished;
            if job.execute(&mut batch) {
                if index < last {
                    send(connection, "RELEASE operation")?;
                    send(connection, "SAVEPOINT operation")?;
                }
                continue;
            }
            batch.unfinished = before;
            if alone {
                roll_back(connection);
                return Ok(());
            }
            // The savepoint stays and is the next one's. Where SQLite has rolled back everything by
            // itself there is none, and everything fails.
            send(connection, "ROLLBACK TO operation")?;
        }
        send(connection, "COMMIT")?;
        self.unfinished = batch.unfinished;
        Ok(())
    }
}

fn roll_back(connection: &Connection) {
    if let Err(error) = send(connection, "ROLLBACK") {
        // As it should be where SQLite has rolled back by itself.
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "There was nothing to roll back"
        );
    }
}

/// Sends a statement that is prepared once and kept.
fn send(connection: &Connection, statement: &'static str) -> Result<(), rusqlite::Error> {
    let mut prepared = connection.prepare_cached(statement)?;
    prepared.execute([]).map(drop)
}
