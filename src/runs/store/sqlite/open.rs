//! Opening the database: directory and file, the lock, the check for damage, the schema.
//!
//! Until the check has passed nothing is written to a file that was there before.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _};

use super::lock::{FileLock, no_follow};
use super::statements;
use crate::runs::store::StoreError;

/// Marks the file as this program's, in SQLite's `application_id`: "fume".
const APPLICATION_ID: i64 = 0x6675_6d65;

/// What leads from each schema version to the next; the version is the number of steps taken.
/// Steps that were released never change.
const MIGRATIONS: [&str; 2] = [
    include_str!("schema.sql"),
    include_str!("requests_by_sequence.sql"),
];

/// How long a statement waits for a lock. There is one writer and one daemon, so only an
/// operator's own tool can hold one.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Pages of the log after which they are copied into the database, as SQLite has it in
/// `wal_autocheckpoint`: many commits change the same pages, and each is copied once.
const CHECKPOINT_PAGES: &str = "4000";

/// What the writer keeps in memory, as SQLite has it in `cache_size` (negative: KiB): more than the
/// index of the ids of a million runs, because each new id goes to another page of it.
const WRITER_CACHE: &str = "-65536";

/// Connections that read. Each has a thread.
const READERS: u32 = 4;

/// An open database.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) directory: PathBuf,
    pub(super) lock: FileLock,
    pub(super) writer: SqliteConnection,
    /// Runs waiting or going on.
    pub(super) unfinished: i64,
    pub(super) readers: SqlitePool,
}

pub(super) async fn open(path: &Path) -> Result<Opened, StoreError> {
    let (directory, path) = prepare_directory(path)?;
    let lock = FileLock::take(&lock_path(&path))?;
    let is_new = prepare_file(&directory, &path)?;
    if !is_new {
        check(&path).await?;
    }

    let options = SqliteConnectOptions::new()
        .filename(&path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("journal_size_limit", "67108864")
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .disable_statement_logging();
    let failed = |source| refused(&path, source);
    let mut writer = options
        .clone()
        .pragma("cache_size", WRITER_CACHE)
        .connect()
        .await
        .map_err(failed)?;
    migrate(&mut writer).await.map_err(failed)?;
    let unfinished = number(&mut writer, statements::COUNT_UNFINISHED)
        .await
        .map_err(failed)?;
    sync_directory(&directory).map_err(|error| cannot_open(&directory, error))?;
    let readers = readers()
        .connect_with(options.read_only(true))
        .await
        .map_err(failed)?;
    Ok(Opened {
        directory,
        lock,
        writer,
        unfinished,
        readers,
    })
}

/// A pool whose connections live as long as it does.
fn readers() -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(READERS)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
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
    if !parent.exists() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(failed)?;
        if let Some(above) = parent.parent().filter(|p| !p.as_os_str().is_empty()) {
            sync_directory(above).map_err(failed)?;
        }
    }
    let directory = parent.canonicalize().map_err(failed)?;
    let file = directory.join(name);
    Ok((directory, file))
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

/// A new name in a directory is durable only after this.
fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

/// Looks at a file that was there before, through a connection that cannot write.
async fn check(path: &Path) -> Result<(), StoreError> {
    let failed = |source| refused(path, source);
    let mut connection = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging()
        .connect()
        .await
        .map_err(failed)?;
    let verdict = examine(&mut connection).await;
    let closed = connection.close().await;
    verdict.map_err(failed)??;
    closed.map_err(failed)
}

async fn examine(connection: &mut SqliteConnection) -> Result<Result<(), StoreError>, sqlx::Error> {
    let application: i64 = number(connection, "PRAGMA application_id").await?;
    if application != APPLICATION_ID {
        let tables = number(connection, "SELECT count(*) FROM sqlite_schema").await?;
        if tables > 0 || application != 0 {
            let why = "it is a database of another program".to_owned();
            return Ok(Err(StoreError::Corrupt(why)));
        }
    }
    let found = number(connection, "PRAGMA user_version").await?;
    let known = known_version();
    if found > known {
        return Ok(Err(StoreError::TooNew { found, known }));
    }
    let (word,): (String,) = sqlx::query_as("PRAGMA quick_check(1)")
        .fetch_one(connection)
        .await?;
    Ok(match word.as_str() {
        "ok" => Ok(()),
        _ => Err(StoreError::Corrupt(word)),
    })
}

async fn number(
    connection: &mut SqliteConnection,
    query: &'static str,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(query).fetch_one(connection).await
}

async fn migrate(writer: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    let version = number(&mut transaction, "PRAGMA user_version").await?;
    let taken = usize::try_from(version).unwrap_or(0);
    if taken < MIGRATIONS.len() {
        for step in &MIGRATIONS[taken..] {
            sqlx::raw_sql(step).execute(&mut *transaction).await?;
        }
        let known = known_version();
        let marks =
            format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {known}");
        sqlx::raw_sql(&marks).execute(&mut *transaction).await?;
        tracing::info!(
            from = version,
            to = known,
            "The schema of the store was brought up to date"
        );
    }
    transaction.commit().await
}

fn known_version() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// What a failure while opening means.
fn refused(path: &Path, source: sqlx::Error) -> StoreError {
    match super::failure::damage(&source) {
        Some(message) => StoreError::Corrupt(message),
        None => StoreError::Open {
            path: path.display().to_string(),
            source,
        },
    }
}

pub(super) fn cannot_open(path: &Path, error: io::Error) -> StoreError {
    StoreError::Open {
        path: path.display().to_string(),
        source: sqlx::Error::Io(error),
    }
}
