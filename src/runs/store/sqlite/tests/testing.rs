//! Operations that only tests have.

use rusqlite::types::ValueRef;
use tokio::sync::oneshot;

use crate::runs::store::StoreError;
use crate::runs::store::sqlite::batch::Batch;
use crate::runs::store::sqlite::writer::Operation;

/// Reads a setting of the connection that writes.
pub(super) struct Pragma(pub(super) &'static str);

impl Operation for Pragma {
    const NAME: &'static str = "read a setting";
    type Answer = String;

    fn execute(self, batch: &mut Batch<'_>) -> Result<String, StoreError> {
        let statement = format!("PRAGMA {}", self.0);
        let access = batch.access(Self::NAME);
        let value = access.first(&statement, [], |row| {
            Ok(match row.get_ref(0).unwrap() {
                ValueRef::Integer(number) => number.to_string(),
                text @ (ValueRef::Null
                | ValueRef::Real(_)
                | ValueRef::Text(_)
                | ValueRef::Blob(_)) => text.as_str().unwrap().to_owned(),
            })
        });
        Ok(value?.unwrap())
    }
}

/// Keeps the writer busy, so that what is sent meanwhile is one batch.
pub(super) struct Hold {
    pub(super) begun: oneshot::Sender<()>,
    pub(super) end: oneshot::Receiver<()>,
}

impl Operation for Hold {
    const NAME: &'static str = "wait";
    type Answer = ();

    fn execute(self, _batch: &mut Batch<'_>) -> Result<(), StoreError> {
        self.begun.send(()).unwrap();
        self.end.blocking_recv().unwrap();
        Ok(())
    }
}

/// Executes statements.
pub(super) struct Statements(pub(super) &'static str);

impl Operation for Statements {
    const NAME: &'static str = "do as the test wishes";
    type Answer = ();

    fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        let done = batch.connection.execute_batch(self.0);
        done.map_err(|source| batch.access(Self::NAME).failed(source))
    }
}

/// Fails as nothing may.
pub(super) struct Panic;

impl Operation for Panic {
    const NAME: &'static str = "panic";
    type Answer = ();

    fn execute(self, _batch: &mut Batch<'_>) -> Result<(), StoreError> {
        panic!("a fault");
    }
}
