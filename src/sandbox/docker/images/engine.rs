//! Bounded calls to the engine: every one ends, and every stream has two clocks.
//!
//! Owns the time limits of this area. What the calls mean is decided by the callers.

use std::time::Duration;

use bollard::errors::Error;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::ImageBuildError;

/// For calls that the engine answers from what it knows.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// How long a stream may take in all, and how long it may say nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) total: Duration,
    pub(super) silence: Duration,
}

/// A failure of a stream, before the caller has given it its meaning.
#[derive(Debug)]
pub(super) enum StreamFailure {
    Engine(Error),
    TooSlow(Duration),
    Silent(Duration),
}

impl StreamFailure {
    /// The error of a task for which no better words are known.
    pub(super) fn during(self, task: &'static str) -> ImageBuildError {
        match self {
            Self::Engine(source) => ImageBuildError::Engine { task, source },
            Self::TooSlow(limit) => ImageBuildError::TooSlow { task, limit },
            Self::Silent(limit) => ImageBuildError::Silent { task, limit },
        }
    }
}

/// Awaits one call.
pub(super) async fn call<T>(
    task: &'static str,
    future: impl Future<Output = Result<T, Error>>,
) -> Result<T, ImageBuildError> {
    match timeout(CALL_LIMIT, future).await {
        Ok(answer) => answer.map_err(|source| ImageBuildError::Engine { task, source }),
        Err(_) => Err(ImageBuildError::TooSlow {
            task,
            limit: CALL_LIMIT,
        }),
    }
}

/// Reads a stream to its end, giving each item to `take`.
pub(super) async fn drain<T>(
    stream: impl Stream<Item = Result<T, Error>>,
    patience: Patience,
    mut take: impl FnMut(T),
) -> Result<(), StreamFailure> {
    let end = Instant::now() + patience.total;
    let mut stream = std::pin::pin!(stream);
    loop {
        let next = end.min(Instant::now() + patience.silence);
        match timeout_at(next, stream.next()).await {
            Ok(Some(Ok(item))) => take(item),
            Ok(Some(Err(error))) => return Err(StreamFailure::Engine(error)),
            Ok(None) => return Ok(()),
            Err(_) if next == end => return Err(StreamFailure::TooSlow(patience.total)),
            Err(_) => return Err(StreamFailure::Silent(patience.silence)),
        }
    }
}

/// Whether the engine says that it has no such thing.
pub(super) fn is_not_found(error: &ImageBuildError) -> bool {
    matches!(
        error,
        ImageBuildError::Engine {
            source: Error::DockerResponseServerError {
                status_code: 404,
                ..
            },
            ..
        }
    )
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    const PATIENCE: Patience = Patience {
        total: Duration::from_secs(10),
        silence: Duration::from_secs(3),
    };

    #[tokio::test]
    async fn a_stream_is_read_to_its_end() {
        let mut seen = Vec::new();
        let items = stream::iter([Ok(1), Ok(2)]);
        drain(items, PATIENCE, |item: i32| seen.push(item))
            .await
            .unwrap();
        assert_eq!(seen, [1, 2]);
    }

    #[tokio::test]
    async fn an_error_ends_it() {
        let items = stream::iter([Err(Error::RequestTimeoutError), Ok(1)]);
        let ended = drain(items, PATIENCE, |_: i32| panic!("read past an error")).await;
        assert!(matches!(ended, Err(StreamFailure::Engine(_))));
    }

    #[tokio::test]
    async fn silence_ends_it() {
        let patience = Patience {
            silence: Duration::from_millis(10),
            ..PATIENCE
        };
        let ended = drain(stream::pending::<Result<i32, Error>>(), patience, |_| ()).await;
        assert!(matches!(ended, Err(StreamFailure::Silent(_))));
    }

    #[tokio::test]
    async fn chatter_does_not_extend_the_total() {
        let patience = Patience {
            total: Duration::from_millis(30),
            ..PATIENCE
        };
        let chatter = stream::repeat(1).then(async |item| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(item)
        });
        let ended = drain(chatter, patience, |_: i32| ()).await;
        assert!(matches!(ended, Err(StreamFailure::TooSlow(_))));
    }
}
