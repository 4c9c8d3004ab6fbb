//! The chain of receipts, read out for those who check it, beside a daemon that goes on adding to it.
//!
//! Takes no lock and writes nothing. Reads piece by piece: while something is being read the log of
//! the database cannot start anew, however slowly the reader takes it.

use std::path::Path;

use rusqlite::params;

use super::access::Access;
use super::failure::Flushes;
use super::rows::column;
use super::{open, statements};
use crate::runs::store::StoreError;

/// Receipts in one piece.
const PIECE: i64 = 16;

/// Gives every receipt of the store at `path` from a number on, in order, to `take`, until that says
/// that it has enough. Blocks.
///
/// # Errors
///
/// [`StoreError`] if there is no store, or none of this version.
pub fn receipts(
    path: &Path,
    from: i64,
    mut take: impl FnMut(String) -> bool,
) -> Result<(), StoreError> {
    let connection = open::beside(path)?;
    let flushes = Flushes::default();
    let access = Access::new(&connection, &flushes, "read the receipts");
    let mut next = from;
    loop {
        let by = params![next, PIECE];
        let piece = access.all(statements::RECEIPTS_FROM, by, |row| {
            Ok((
                column::<i64>(row, "number")?,
                column::<String>(row, "receipt")?,
            ))
        })?;
        let Some((last, _)) = piece.last() else {
            return Ok(());
        };
        next = last.saturating_add(1);
        for (_, text) in piece {
            if !take(text) {
                return Ok(());
            }
        }
    }
}
