//! Opening the database: directory and file, the lock, the check for damage, the schema.
//!
//! Until the check has passed nothing is written to a file that was there before.

use std::cmp::Ordering;
use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, TransactionBehavior};

use super::lock::{FileLock, no_follow};
use super::statements;
use crate::durable::{make_directory, sync_directory};
use crate::ids::InstanceId;
use crate::runs::store::{Fault, StoreError};

/// Marks the file as this program's, in SQLite's `application_id`: "fume".
const APPLICATION_ID: i64 = 0x6675_6d65;

/// What leads from each schema version to the next; the version is the number of steps taken.
/// Steps that were released never change.
pub(super) const MIGRATIONS: [&str; 10] = [
    include_str!("schema.sql"),
    include_str!("requests_by_sequence.sql"),
    include_str!("tenants.sql"),
    include_str!("receipts.sql"),
    include_str!("adoption.sql"),
    include_str!("retention.sql"),
    include_str!("attempts.sql"),
    include_str!("sightings.sql"),
    include_str!("owner.sql"),
    include_str!("programs.sql"),
];

/// How long a statement waits for a lock. There is one writer and one daemon, so only an
/// operator's own tool can hold one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes of the log's file that are kept when it starts anew.
const LOG_SIZE: i64 = 64 << 20;

/// What the writer keeps in memory, as SQLite has it in `cache_size` (negative: KiB): more than the
/// index of the ids of a million runs, because each new id goes to another page of it.
const WRITER_CACHE: i64 = -65536;

/// Statements that a connection keeps prepared: more than there are.
const STATEMENTS: usize = 64;

/// Pause between two attempts to end a check that takes too long.
const INTERRUPT_PAUSE: Duration = Duration::from_millis(10);

/// An open database.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) directory: PathBuf,
    /// Without symbolic links.
    pub(super) path: PathBuf,
    pub(super) lock: FileLock,
    pub(super) writer: Connection,
    /// Runs waiting or going on.
    pub(super) unfinished: i64,
    /// The first of those that read.
    pub(super) reader: Connection,
}

/// Opens the database. Blocks for as long as it takes to read all of it, but spends no more than
/// `check_limit` on that. It has to be `instance`'s, or nobody's yet.
pub(super) fn open(
    path: &Path,
    check_limit: Duration,
    instance: &InstanceId,
) -> Result<Opened, StoreError> {
    let (directory, path) = prepare_directory(path)?;
    let lock = FileLock::take(&lock_path(&path))?;
    require_unless_new(&lock, &path)?;
    let is_new = prepare_file(&directory, &path)?;
    if !is_new {
        check(&path, check_limit)?;
    }

    let failed = |source| refused(&path, source);
    let mut writer = writer(&path).map_err(failed)?;
    migrate(&mut writer, instance).map_err(failed)??;
    let unfinished = number(&writer, statements::COUNT_UNFINISHED).map_err(failed)?;
    sync_directory(&directory).map_err(|error| cannot_open(&directory, error))?;
    let reader = reader(&path).map_err(failed)?;
    if let Err(error) = lock.mark() {
        // As on a full disk. The next start tries again.
        tracing::warn!(%error, "It could not be written down that there is a store");
    }
    Ok(Opened {
        directory,
        path,
        lock,
        writer,
        unfinished,
        reader,
    })
}

/// A connection that reads beside a daemon that has the lock.
pub(super) fn beside(path: &Path) -> Result<Connection, StoreError> {
    let failed = |source| refused(path, source);
    let connection = reader(path).map_err(failed)?;
    if number(&connection, "PRAGMA application_id").map_err(failed)? != APPLICATION_ID {
        let why = "it is a database of another program".to_owned();
        return Err(StoreError::Corrupt(why));
    }
    let found = number(&connection, "PRAGMA user_version").map_err(failed)?;
    let known = known_version();
    match found.cmp(&known) {
        Ordering::Less => Err(StoreError::TooOld { found, known }),
        Ordering::Equal => Ok(connection),
        Ordering::Greater => Err(StoreError::TooNew { found, known }),
    }
}

/// A connection that writes.
fn writer(path: &Path) -> Result<Connection, rusqlite::Error> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let settings: [(&str, &dyn rusqlite::ToSql); 5] = [
        ("journal_mode", &"WAL"),
        ("synchronous", &"FULL"),
        ("foreign_keys", &true),
        ("journal_size_limit", &LOG_SIZE),
        ("cache_size", &WRITER_CACHE),
    ];
    for (name, value) in settings {
        connection.pragma_update(None, name, value)?;
    }
    Ok(connection)
}

/// A connection that cannot write.
pub(super) fn reader(path: &Path) -> Result<Connection, rusqlite::Error> {
    connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

/// Without a mutex in SQLite: a connection is used by one thread at a time.
fn connect(path: &Path, mode: OpenFlags) -> Result<Connection, rusqlite::Error> {
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Makes the directory if it is missing; gives it and the database's path without symbolic links,
/// so that every daemon takes the same lock whatever the spelling.
fn prepare_directory(path: &Path) -> Result<(PathBuf, PathBuf), StoreError> {
    let failed = |error| cannot_open(path, error);
    let name = path
        .file_name()
        .ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    make_directory(parent, 0o700).map_err(failed)?;
    let directory = parent.canonicalize().map_err(failed)?;
    let file = directory.join(name);
    Ok((directory, file))
}

/// Refuses to begin anew where there was a store: a file that is gone or empty has lost everything, and
/// nobody would be told.
fn require_unless_new(lock: &FileLock, path: &Path) -> Result<(), StoreError> {
    let was_there = lock.is_marked().map_err(|error| cannot_open(path, error))?;
    let is_empty = path.metadata().map_or(true, |metadata| metadata.len() == 0);
    if was_there && is_empty {
        let why = "it is gone or empty, and was not".to_owned();
        return Err(StoreError::Corrupt(why));
    }
    Ok(())
}

/// Makes the file if it is missing, for the owner only; SQLite gives its companions the same
/// mode. Tells whether it is empty.
fn prepare_file(directory: &Path, path: &Path) -> Result<bool, StoreError> {
    let failed = |error| cannot_open(path, error);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(path)
        .map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(failed)?;
    }
    if metadata.len() == 0 {
        file.sync_all().map_err(failed)?;
        sync_directory(directory).map_err(failed)?;
    }
    Ok(metadata.len() == 0)
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Looks at a file that was there before, through a connection that cannot write.
fn check(path: &Path, limit: Duration) -> Result<(), StoreError> {
    let failed = |source| refused(path, source);
    let connection = reader(path).map_err(failed)?;
    let verdict = examine(&connection, limit);
    let closed = connection.close();
    verdict.map_err(failed)??;
    closed.map_err(|(_, source)| failed(source))
}

fn examine(
    connection: &Connection,
    limit: Duration,
) -> Result<Result<(), StoreError>, rusqlite::Error> {
    let application = number(connection, "PRAGMA application_id")?;
    if application != APPLICATION_ID {
        let tables = number(connection, "SELECT count(*) FROM sqlite_schema")?;
        if tables > 0 || application != 0 {
            let why = "it is a database of another program".to_owned();
            return Ok(Err(StoreError::Corrupt(why)));
        }
    }
    let found = number(connection, "PRAGMA user_version")?;
    let known = known_version();
    if found > known {
        return Ok(Err(StoreError::TooNew { found, known }));
    }
    let word = match within(limit, connection, integrity_check) {
        Ok(word) => word,
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            tracing::warn!(
                limit_seconds = limit.as_secs(),
                "The store is too large to be read whole at the start: the check for damage was left \
                 off; raise store.check_seconds to have all of it checked"
            );
            return Ok(Ok(()));
        }
        Err(error) => return Err(error),
    };
    Ok(match word.as_str() {
        "ok" => Ok(()),
        _ => Err(StoreError::Corrupt(word)),
    })
}

/// The whole check, and not the quick one, which does not compare the indexes with their tables: a run
/// that is missing in one would be waiting and never be found.
fn integrity_check(connection: &Connection) -> Result<String, rusqlite::Error> {
    connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
}

/// Does `work`, which is interrupted once it has taken longer than `limit`.
pub(super) fn within<T>(
    limit: Duration,
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
) -> Result<T, rusqlite::Error> {
    let interrupt = connection.get_interrupt_handle();
    let (done, end) = sync_channel::<()>(0);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut patience = limit;
            // More than once: it counts for nothing before the statement has begun.
            while end.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                interrupt.interrupt();
                patience = INTERRUPT_PAUSE;
            }
        });
        let worked = work(connection);
        drop(done);
        worked
    })
}

fn number(connection: &Connection, query: &'static str) -> Result<i64, rusqlite::Error> {
    connection.query_row(query, [], |row| row.get(0))
}

/// Takes the steps that are missing and sees to it that the store is `instance`'s; all of it, or nothing
/// is changed.
fn migrate(
    writer: &mut Connection,
    instance: &InstanceId,
) -> Result<Result<(), StoreError>, rusqlite::Error> {
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = number(&transaction, "PRAGMA user_version")?;
    let taken = usize::try_from(version).unwrap_or(0);
    if taken < MIGRATIONS.len() {
        for step in &MIGRATIONS[taken..] {
            transaction.execute_batch(step)?;
        }
        let known = known_version();
        let marks =
            format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {known}");
        transaction.execute_batch(&marks)?;
        tracing::info!(
            from = version,
            to = known,
            "The schema of the store was brought up to date"
        );
    }
    let owner: Option<String> = transaction
        .query_row(statements::OWNER, [], |row| row.get(0))
        .optional()?;
    match owner {
        None => {
            transaction.execute(statements::SET_OWNER, [instance.as_str()])?;
        }
        Some(owner) if owner == instance.as_str() => {}
        // What is open in it may run in sandboxes that this instance knows nothing of.
        Some(owner) => {
            let own = instance.to_string();
            return Ok(Err(StoreError::OtherInstance { owner, own }));
        }
    }
    transaction.commit().map(Ok)
}

fn known_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// What a failure while opening means.
fn refused(path: &Path, source: rusqlite::Error) -> StoreError {
    let source = Fault::Database(source);
    match super::failure::damage(&source) {
        Some(message) => StoreError::Corrupt(message),
        None => StoreError::Open {
            path: path.display().to_string(),
            source,
        },
    }
}

pub(super) fn cannot_open(path: &Path, source: impl Into<Fault>) -> StoreError {
    StoreError::Open {
        path: path.display().to_string(),
        source: source.into(),
    }
}
