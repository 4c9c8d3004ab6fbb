//! The one writer: a task that owns the writing connection and makes one transaction of all the
//! operations that wait for it.
//!
//! A flush to disk takes as long for one operation as for many. While one is under way the next
//! operations gather in a bounded channel; the writer then takes what is there, and waits for no
//! more. Each operation is carried out in a savepoint, so that one that is refused or fails takes
//! nothing of the others with it. All are answered after the one commit, or all fail with it. Knows
//! nothing of runs: what is written is the operations' affair.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::batch::{Batch, Surroundings};
use super::failure::Flushes;
use super::lock::FileLock;
use crate::runs::store::StoreError;

/// Operations in one transaction. As many may wait for the next one.
const BATCH: usize = 128;

/// How long an operation waits for a place in the queue: many times what a slow disk needs for
/// what is before it.
const PLACE_LIMIT: Duration = Duration::from_secs(30);

/// Something to be written, and what it gives back once it is on disk.
#[async_trait]
pub(super) trait Operation: Send + 'static {
    /// What it does, for messages.
    const NAME: &'static str;
    /// What its caller is told.
    type Answer: Send + 'static;

    /// Does it. After an error nothing of it is left in the database.
    async fn execute(self, batch: &mut Batch<'_>) -> Result<Self::Answer, StoreError>;
}

/// The way to the writer.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
    surroundings: Arc<Surroundings>,
    closing: CancellationToken,
    /// Has one task.
    tasks: TaskTracker,
}

impl Writer {
    /// Starts the writer. It lets go of `lock` after it has closed the connection.
    pub(super) fn start(
        connection: SqliteConnection,
        unfinished: i64,
        surroundings: Arc<Surroundings>,
        lock: FileLock,
    ) -> Self {
        let (sender, jobs) = mpsc::channel(BATCH);
        let closing = CancellationToken::new();
        let writing = Writing {
            connection,
            unfinished,
            surroundings: Arc::clone(&surroundings),
        };
        let tasks = TaskTracker::new();
        tasks.spawn(work(writing, jobs, closing.clone(), lock));
        tasks.close();
        Self {
            jobs: sender,
            surroundings,
            closing,
            tasks,
        }
    }

    /// Has an operation carried out, and returns after it is on disk. If this future is dropped
    /// the operation is carried out whole or not at all.
    pub(super) async fn run<O: Operation>(&self, operation: O) -> Result<O::Answer, StoreError> {
        let failed = |source| self.surroundings.flushes.failed(O::NAME, source);
        let (to, answer) = oneshot::channel();
        let job = Box::new(Pending {
            state: State::Waiting(operation),
            to,
        });
        match timeout(PLACE_LIMIT, self.jobs.send(job)).await {
            Ok(Ok(())) => {}
            Ok(Err(_closed)) => return Err(failed(sqlx::Error::PoolClosed)),
            Err(_elapsed) => return Err(failed(sqlx::Error::PoolTimedOut)),
        }
        let lost = |_gone| Err(failed(sqlx::Error::WorkerCrashed));
        answer.await.unwrap_or_else(lost)
    }

    /// Has what waits carried out and the connection closed, and returns after that. Nothing is
    /// taken on any more, even if this future is dropped.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        self.tasks.wait().await;
    }
}

/// An operation on its way, whatever its answer.
#[async_trait]
trait Job: Send {
    /// Whether somebody still waits for it.
    fn wanted(&self) -> bool;

    /// Carries it out; tells whether it stays in the transaction.
    async fn execute(&mut self, batch: &mut Batch<'_>) -> bool;

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
    Database(Arc<sqlx::Error>),
}

impl From<sqlx::Error> for Failure {
    fn from(source: sqlx::Error) -> Self {
        Self::Database(Arc::new(source))
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

#[async_trait]
impl<O: Operation> Job for Pending<O> {
    fn wanted(&self) -> bool {
        !self.to.is_closed()
    }

    async fn execute(&mut self, batch: &mut Batch<'_>) -> bool {
        if let State::Waiting(operation) = std::mem::replace(&mut self.state, State::Under) {
            self.state = State::Done(operation.execute(batch).await);
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
    connection: SqliteConnection,
    /// Runs waiting or going on, as the last commit left them.
    unfinished: i64,
    surroundings: Arc<Surroundings>,
}

async fn work(
    mut writing: Writing,
    mut jobs: mpsc::Receiver<Box<dyn Job>>,
    closing: CancellationToken,
    lock: FileLock,
) {
    let mut batch = Vec::new();
    loop {
        let taken = closing
            .run_until_cancelled(jobs.recv_many(&mut batch, BATCH))
            .await;
        let taken = match taken {
            Some(taken) => taken,
            // What is in the channel is carried out; nothing gets in any more.
            None => {
                jobs.close();
                jobs.recv_many(&mut batch, BATCH).await
            }
        };
        if taken == 0 {
            break;
        }
        writing.write(&mut batch).await;
    }
    // Leaves one file with everything in it. If it fails, the log is read at the next start.
    let emptied = send(&mut writing.connection, "PRAGMA wal_checkpoint(TRUNCATE)").await;
    let closed = writing.connection.close().await;
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
    async fn write(&mut self, jobs: &mut Vec<Box<dyn Job>>) {
        jobs.retain(|job| job.wanted());
        if jobs.is_empty() {
            return;
        }
        let failure = self.transact(jobs).await.err();
        if let Some(Failure::Database(source)) = &failure {
            tracing::error!(
                error = source as &dyn std::error::Error,
                operations = jobs.len(),
                "A transaction failed"
            );
            roll_back(&mut self.connection).await;
        }
        for job in jobs.drain(..) {
            match &failure {
                None => job.answer(),
                Some(failure) => job.fail(failure, &self.surroundings.flushes),
            }
        }
    }

    /// Transactions are begun and ended by statements, not by sqlx: its count of open ones would
    /// be wrong for ever after SQLite has rolled one back by itself, as it may on a full disk.
    async fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<(), Failure> {
        let flushes = &self.surroundings.flushes;
        flushes.require().map_err(|_| Failure::Unflushed)?;
        let alone = jobs.len() == 1;
        let last = jobs.len() - 1;
        let mut batch = Batch::new(&mut self.connection, &self.surroundings, self.unfinished);
        send(batch.connection, "BEGIN IMMEDIATE").await?;
        if !alone {
            send(batch.connection, "SAVEPOINT operation").await?;
        }
        for (index, job) in jobs.iter_mut().enumerate() {
            let before = batch.unfinished;
            if job.execute(&mut batch).await {
                if index < last {
                    let next = "RELEASE operation; SAVEPOINT operation";
                    send(batch.connection, next).await?;
                }
                continue;
            }
            batch.unfinished = before;
            if alone {
                roll_back(batch.connection).await;
                return Ok(());
            }
            // The savepoint stays and is the next one's. Where SQLite has rolled back everything by
            // itself there is none, and everything fails.
            send(batch.connection, "ROLLBACK TO operation").await?;
        }
        send(batch.connection, "COMMIT").await?;
        self.unfinished = batch.unfinished;
        Ok(())
    }
}

async fn roll_back(connection: &mut SqliteConnection) {
    if let Err(error) = send(connection, "ROLLBACK").await {
        // As it should be where SQLite has rolled back by itself.
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "There was nothing to roll back"
        );
    }
}

/// Sends statements that are prepared once and kept.
async fn send(
    connection: &mut SqliteConnection,
    statements: &'static str,
) -> Result<(), sqlx::Error> {
    sqlx::query(statements).execute(connection).await.map(drop)
}
