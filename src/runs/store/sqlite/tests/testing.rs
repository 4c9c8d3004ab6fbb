//! Operations that only tests have.

use async_trait::async_trait;
use sqlx::Row as _;
use tokio::sync::oneshot;

use crate::runs::store::StoreError;
use crate::runs::store::sqlite::batch::Batch;
use crate::runs::store::sqlite::writer::Operation;

/// Reads a setting of the connection that writes.
pub(super) struct Pragma(pub(super) &'static str);

#[async_trait]
impl Operation for Pragma {
    const NAME: &'static str = "read a setting";
    type Answer = String;

    async fn execute(self, batch: &mut Batch<'_>) -> Result<String, StoreError> {
        let row = sqlx::query(&format!("PRAGMA {}", self.0))
            .fetch_one(&mut *batch.connection)
            .await;
        // SQLite gives numbers as text as well.
        row.and_then(|row| row.try_get_unchecked(0))
            .map_err(|source| batch.failed(Self::NAME, source))
    }
}

/// Keeps the writer busy, so that what is sent meanwhile is one batch.
pub(super) struct Hold {
    pub(super) begun: oneshot::Sender<()>,
    pub(super) end: oneshot::Receiver<()>,
}

#[async_trait]
impl Operation for Hold {
    const NAME: &'static str = "wait";
    type Answer = ();

    async fn execute(self, _batch: &mut Batch<'_>) -> Result<(), StoreError> {
        self.begun.send(()).unwrap();
        self.end.await.unwrap();
        Ok(())
    }
}

/// Executes statements.
pub(super) struct Statements(pub(super) &'static str);

#[async_trait]
impl Operation for Statements {
    const NAME: &'static str = "do as the test wishes";
    type Answer = ();

    async fn execute(self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        sqlx::query(self.0)
            .execute(&mut *batch.connection)
            .await
            .map(drop)
            .map_err(|source| batch.failed(Self::NAME, source))
    }
}
