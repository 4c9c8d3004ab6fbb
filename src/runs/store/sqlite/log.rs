//! The write-ahead log: how long it has become, and when it is copied into the database.
//!
//! SQLite would do that by itself at the end of a commit, and keep to itself what goes wrong: a flush
//! that fails there would stay unseen, and be tried again. So it is asked for here, after the
//! operations were answered, and fails like everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::Connection;

/// Pages after which the log is copied: many commits change the same pages, and each is copied once.
const PAGES: i32 = 4000;

/// The log of the connection that writes.
#[derive(Debug)]
pub(super) struct Log {
    pages: Arc<AtomicI32>,
}

impl Log {
    /// Takes the log of a connection over from SQLite.
    pub(super) fn of(connection: &mut Connection) -> Result<Self, rusqlite::Error> {
        let pages = Arc::new(AtomicI32::new(0));
        let counted = Arc::clone(&pages);
        connection.pragma_update(None, "wal_autocheckpoint", 0)?;
        connection.wal_hook(Some(move |_: &mut _, pages| {
            counted.store(pages, Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { pages })
    }

    /// Copies the log into the database if it is long, as far as nobody reads in it. As long as some of
    /// it is left, this is due after each commit.
    pub(super) fn copy_if_long(&self, connection: &Connection) -> Result<(), rusqlite::Error> {
        if self.pages.load(Ordering::Relaxed) < PAGES {
            return Ok(());
        }
        let mut copying = connection.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?;
        let (pages, copied) = copying.query_row([], |row| {
            Ok((
                row.get::<_, i32>("log")?,
                row.get::<_, i32>("checkpointed")?,
            ))
        })?;
        // The next commit counts anew. Without one there is nothing more to copy.
        self.pages.store(0, Ordering::Relaxed);
        tracing::trace!(pages, copied, "The log was copied");
        Ok(())
    }
}
