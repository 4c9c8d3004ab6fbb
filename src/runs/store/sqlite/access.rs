//! Statements on a connection: each is prepared once per connection and kept, and what fails is
//! told as a failure of the operation that wanted it. Knows no statement and no table.

use rusqlite::{Connection, Params, Row};

use super::failure::Flushes;
use crate::runs::store::{Fault, StoreError};

/// A connection in the hands of one operation.
#[derive(Clone, Copy)]
pub(super) struct Access<'c> {
    connection: &'c Connection,
    flushes: &'c Flushes,
    operation: &'static str,
}

impl<'c> Access<'c> {
    pub(super) fn new(
        connection: &'c Connection,
        flushes: &'c Flushes,
        operation: &'static str,
    ) -> Self {
        Self {
            connection,
            flushes,
            operation,
        }
    }

    /// What a failure means for the operation.
    pub(super) fn failed(&self, source: impl Into<Fault>) -> StoreError {
        self.flushes.failed(self.operation, source.into())
    }

    /// Executes a statement that gives no rows; tells how many it changed.
    pub(super) fn execute(
        &self,
        statement: &str,
        parameters: impl Params,
    ) -> Result<usize, StoreError> {
        let prepared = self.connection.prepare_cached(statement);
        prepared
            .and_then(|mut prepared| prepared.execute(parameters))
            .map_err(|source| self.failed(source))
    }

    /// The number of the row that was inserted last.
    pub(super) fn last_inserted(&self) -> i64 {
        self.connection.last_insert_rowid()
    }

    /// The first row that a statement gives, as `read` reads it.
    pub(super) fn first<T>(
        &self,
        statement: &str,
        parameters: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let failed = |source: rusqlite::Error| self.failed(source);
        let mut prepared = self.connection.prepare_cached(statement).map_err(failed)?;
        let mut rows = prepared.query(parameters).map_err(failed)?;
        rows.next().map_err(failed)?.map(read).transpose()
    }

    /// Every row that a statement gives, as `read` reads it.
    pub(super) fn all<T>(
        &self,
        statement: &str,
        parameters: impl Params,
        read: impl Fn(&Row<'_>) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let failed = |source: rusqlite::Error| self.failed(source);
        let mut prepared = self.connection.prepare_cached(statement).map_err(failed)?;
        let mut rows = prepared.query(parameters).map_err(failed)?;
        let mut all = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            all.push(read(row)?);
        }
        Ok(all)
    }
}
