//! Connecting, the bound of every call, and what an engine's errors mean.

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};
use rand::Rng as _;
use tokio::time::{Instant, sleep, timeout};

pub use super::call::Call;
use super::calls::{Calls, Manner};
use crate::sandbox::engine::EngineError;
use crate::sandbox::health::{CallBounds, CallKind};
use crate::sandbox::template::Template;

/// Bollard's own bound of a request, above every deadline that can be configured, which are what
/// counts.
const CLIENT_TIMEOUT_SECONDS: u64 = 600;

/// The pause before the first repetition; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Whether a call that ended so is worth another attempt. Not one that used up its deadline, and
/// not what the engine has decided, except that a question may be asked again that it failed over.
fn is_worth_repeating(call: Call, error: &EngineError) -> bool {
    let has_failed_over_it = answer(error).is_some_and(|(status, _)| status >= 500);
    let is_question = matches!(call.kind(), CallKind::Ping | CallKind::Ask);
    let is_broken = matches!(
        error,
        EngineError::Unreachable(_) | EngineError::Lost { .. }
    );
    call.is_safe_to_repeat() && (is_broken || (is_question && has_failed_over_it))
}

/// The pause before attempt number `attempt`, the first repetition being 1. With half of it left to
/// chance, so that callers that failed together do not come back together.
fn pause_before(attempt: u32) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(attempt.saturating_sub(1)));
    whole.mul_f64(rand::rng().random_range(0.5..1.0))
}

/// The engine, with the bounds of its calls. Whatever can be asked of bollard's client can be asked
/// of this; the answer is to be waited for by [`Client::once`] or [`Client::repeated`].
#[derive(Debug, Clone)]
pub(super) struct Client {
    docker: Docker,
    calls: Arc<Calls>,
}

impl Deref for Client {
    type Target = Docker;

    fn deref(&self) -> &Docker {
        &self.docker
    }
}

impl Client {
    /// Connects to the engine at `host` and agrees on a version of its interface.
    ///
    /// # Errors
    ///
    /// [`EngineError::Unreachable`] if nobody answers there.
    pub(super) async fn connect(
        host: &str,
        calls: &Arc<Calls>,
        manner: Manner,
    ) -> Result<Self, EngineError> {
        let docker = Docker::connect_with_unix(host, CLIENT_TIMEOUT_SECONDS, API_DEFAULT_VERSION)
            .map_err(|error| EngineError::Unreachable(error.into()));
        let turn = calls.begin(Call::Connect, manner)?;
        let docker = match docker {
            Ok(docker) => {
                let bound = Call::Connect.deadline(calls.bounds());
                bounded(Call::Connect, bound, docker.negotiate_version()).await
            }
            Err(error) => Err(error),
        };
        turn.end(&docker);
        Ok(Self {
            docker: docker?,
            calls: Arc::clone(calls),
        })
    }

    pub(super) fn docker(&self) -> &Docker {
        &self.docker
    }

    pub(super) fn bounds(&self) -> &CallBounds {
        self.calls.bounds()
    }

    /// Asks whether the engine is there.
    ///
    /// # Errors
    ///
    /// As of [`Client::repeated`].
    pub(super) async fn answers(&self, manner: Manner) -> Result<(), EngineError> {
        let ping = self.repeated(Call::Ping, manner, || self.docker.ping());
        ping.await.map(drop)
    }

    /// Waits for the answer to a call that is made once.
    ///
    /// # Errors
    ///
    /// [`EngineError::Resting`] if it is not made; [`EngineError::TimedOut`], or what the engine's
    /// error means.
    pub(super) async fn once<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EngineError> {
        let turn = self.calls.begin(call, Manner::Polite)?;
        let answer = bounded(call, call.deadline(self.calls.bounds()), answer).await;
        turn.end(&answer);
        answer
    }

    /// Waits for the answer to a call that is made again if that is safe and may help, all within
    /// the call's deadline.
    ///
    /// # Errors
    ///
    /// As of [`Client::once`]. Of several failures the one that leaves most open:
    /// [`EngineError::Unreachable`] says that the engine has never heard of the call.
    pub(super) async fn repeated<T, A>(
        &self,
        call: Call,
        manner: Manner,
        mut ask: impl FnMut() -> A,
    ) -> Result<T, EngineError>
    where
        A: Future<Output = Result<T, bollard::errors::Error>>,
    {
        let turn = self.calls.begin(call, manner)?;
        let whole = call.deadline(self.calls.bounds());
        let end = Instant::now() + whole;
        let mut open = None;
        let mut attempt = 0;
        let answer = loop {
            let left = end.saturating_duration_since(Instant::now());
            let answer = bounded(call, left, ask()).await;
            attempt += 1;
            let pause = pause_before(attempt);
            match answer {
                Err(error)
                    if attempt <= self.calls.bounds().retries
                        && is_worth_repeating(call, &error)
                        && Instant::now() + pause < end =>
                {
                    turn.tries_again();
                    if !matches!(error, EngineError::Unreachable(_)) {
                        open = Some(error);
                    }
                    sleep(pause).await;
                }
                Err(EngineError::Unreachable(source)) => {
                    break Err(open.unwrap_or(EngineError::Unreachable(source)));
                }
                Err(EngineError::TimedOut { call, .. }) => {
                    // The whole of it, not what was left for the last attempt.
                    let seconds = whole.as_secs();
                    break Err(EngineError::TimedOut { call, seconds });
                }
                answer => break answer,
            }
        };
        turn.end(&answer);
        answer
    }
}

/// Waits for the answer to a call, but not longer than `bound`.
async fn bounded<T>(
    call: Call,
    bound: Duration,
    answer: impl Future<Output = Result<T, bollard::errors::Error>>,
) -> Result<T, EngineError> {
    match timeout(bound, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(meaning(call, error)),
        Err(_) => Err(EngineError::TimedOut {
            call: call.words(),
            seconds: bound.as_secs(),
        }),
    }
}

fn meaning(call: Call, error: bollard::errors::Error) -> EngineError {
    if is_unreachable(&error) {
        EngineError::Unreachable(error.into())
    } else if matches!(error, bollard::errors::Error::RequestTimeoutError) {
        EngineError::TimedOut {
            call: call.words(),
            seconds: CLIENT_TIMEOUT_SECONDS,
        }
    } else if is_broken(&error) {
        EngineError::Lost {
            call: call.words(),
            source: error.into(),
        }
    } else {
        EngineError::Failed {
            call: call.words(),
            source: error.into(),
        }
    }
}

/// Whether the connection broke before the answer was there, or what came is half an answer, or
/// none.
fn is_broken(error: &bollard::errors::Error) -> bool {
    matches!(
        error,
        bollard::errors::Error::HyperResponseError { .. }
            | bollard::errors::Error::HyperLegacyError { .. }
            | bollard::errors::Error::IOError { .. }
            | bollard::errors::Error::JsonDataError { .. }
            | bollard::errors::Error::JsonSerdeError { .. }
    )
}

/// Whether nobody listens at the socket, or we may not speak to whoever does.
fn is_unreachable(error: &bollard::errors::Error) -> bool {
    if matches!(error, bollard::errors::Error::SocketNotFoundError(_)) {
        return true;
    }
    let mut next: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return matches!(
                io.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied
            );
        }
        next = error.source();
    }
    false
}

/// The engine's status code and text, if the error is an answer of it.
fn answer(error: &EngineError) -> Option<(u16, &str)> {
    let (EngineError::Failed { source, .. } | EngineError::Unreachable(source)) = error else {
        return None;
    };
    let error = source.downcast_ref::<bollard::errors::Error>()?;
    if let bollard::errors::Error::DockerResponseServerError {
        status_code,
        message,
    } = error
    {
        return Some((*status_code, message));
    }
    None
}

/// Whether the engine itself answered, as opposed to nobody or a stream that broke.
#[must_use]
pub fn is_answer(error: &EngineError) -> bool {
    answer(error).is_some()
}

/// Whether the engine may have done what it was asked for, without anybody having been told.
#[must_use]
pub fn leaves_open(error: &EngineError) -> bool {
    let never_heard = matches!(
        error,
        EngineError::Unreachable(_) | EngineError::Resting { .. }
    );
    !never_heard && !is_answer(error)
}

/// Whether the engine says that the name is taken.
#[must_use]
pub fn is_conflict(error: &EngineError) -> bool {
    answer(error).is_some_and(|(status, _)| status == 409)
}

/// Whether the engine says that what was asked about is not there.
#[must_use]
pub fn is_missing(error: &EngineError) -> bool {
    answer(error).is_some_and(|(status, _)| status == 404)
}

/// What a failed look-up of an image means.
#[must_use]
pub fn image_missing(error: EngineError, reference: &str) -> EngineError {
    if is_missing(&error) {
        return EngineError::ImageMissing {
            reference: reference.to_owned(),
        };
    }
    error
}

/// What a failed creation means.
#[must_use]
pub fn create_failed(error: EngineError, template: &Template) -> EngineError {
    match answer(&error) {
        Some((404, _)) => EngineError::ImageMissing {
            reference: template.image.reference.clone(),
        },
        Some((_, text)) if text.contains("runtime") => EngineError::RuntimeMissing {
            name: template
                .runtime
                .clone()
                .unwrap_or_else(|| "(the engine's default)".to_owned()),
        },
        Some((_, text)) if text.contains("bind source path does not exist") => {
            EngineError::DatasetMissing
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests;
