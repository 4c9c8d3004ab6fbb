//! The state directory as one daemon has it to itself.

use tokio::task::spawn_blocking;

use super::AppError;
use crate::config::Config;
use crate::durable::make_directory;
use crate::runs::store::sqlite::lock::FileLock;
use crate::runs::store::{Fault, StoreError};

/// The file that is locked: the store, which has a lock of its own, may be elsewhere.
const LOCK: &str = "daemon.lock";

/// Takes the lock of the state directory, which is made if it is not there. Whoever has it may remove
/// what an earlier daemon left on the engine and put away here: nobody else is at work on it.
///
/// # Errors
///
/// [`AppError::StateInUse`] if another daemon has it, [`AppError::State`] if there can be none.
pub(super) async fn lock(config: &Config) -> Result<FileLock, AppError> {
    let path = config.app.state_dir.clone();
    let taking = move || {
        let unusable = |source| AppError::State {
            path: path.clone(),
            source,
        };
        make_directory(&path, 0o700).map_err(unusable)?;
        match FileLock::take(&path.join(LOCK)) {
            Ok(lock) => Ok(lock),
            Err(StoreError::Open {
                source: Fault::File(source),
                ..
            }) => Err(unusable(source)),
            Err(StoreError::InUse { .. }) => Err(AppError::StateInUse { path }),
            Err(error) => Err(error.into()),
        }
    };
    spawn_blocking(taking).await?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_daemon_has_a_state_directory_wherever_its_store_is() {
        let place = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.app.state_dir = place.path().join("state");
        let first = lock(&config).await.unwrap();
        config.store.path = Some(place.path().join("other.db"));
        let second = lock(&config).await;
        assert!(
            matches!(second, Err(AppError::StateInUse { .. })),
            "{second:?}"
        );
        drop(first);
        lock(&config).await.unwrap();
    }
}
