//! Connecting, the bound of every call, and what an engine's errors mean.

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::time::timeout;

use crate::sandbox::engine::EngineError;
use crate::sandbox::template::Template;

/// Bollard's own bound of a request, above every bound of [`Call`], which are what counts.
const CLIENT_TIMEOUT_SECONDS: u64 = 120;

/// What an engine is asked for; each kind has its bound (invariant 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Connecting and agreeing on a version.
    Connect,
    /// Version and host facts.
    Describe,
    /// Looking an image up.
    InspectImage,
    /// Looking a volume up.
    InspectVolume,
    /// Making a volume.
    CreateVolume,
    /// Making a container.
    Create,
    /// Reading a container's settings or state.
    Inspect,
    /// Listing containers.
    List,
    /// Opening a container's streams.
    Attach,
    /// Starting a container.
    Start,
    /// Changing a container's share of the CPU.
    Update,
    /// Ending what runs in a container.
    Kill,
    /// Ending and removing a container.
    Remove,
    /// Writing the supervisor into its volume, or reading it.
    CopySupervisor,
    /// Listing what is of other versions.
    ListEarlier,
    /// Removing what is of another version.
    RemoveEarlier,
}

impl Call {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Connect => "agree on a version",
            Self::Describe => "describe itself",
            Self::InspectImage => "look an image up",
            Self::InspectVolume => "look the supervisor's volume up",
            Self::CreateVolume => "make the supervisor's volume",
            Self::Create => "create a sandbox",
            Self::Inspect => "read a sandbox's settings",
            Self::List => "list sandboxes",
            Self::Attach => "open a sandbox's streams",
            Self::Start => "start a sandbox",
            Self::Update => "change a sandbox",
            Self::Kill => "end a sandbox",
            Self::Remove => "remove a sandbox",
            Self::CopySupervisor => "copy the supervisor",
            Self::ListEarlier => "list volumes and images",
            Self::RemoveEarlier => "remove a volume or an image",
        }
    }

    /// How long the answer may take.
    #[must_use]
    pub fn bound(self) -> Duration {
        Duration::from_secs(match self {
            Self::Connect | Self::Describe | Self::Update | Self::Kill => 5,
            Self::InspectImage
            | Self::InspectVolume
            | Self::Inspect
            | Self::List
            | Self::Attach => 10,
            Self::Remove | Self::CreateVolume => 15,
            Self::Create
            | Self::Start
            | Self::CopySupervisor
            | Self::ListEarlier
            | Self::RemoveEarlier => 30,
        })
    }
}

/// Waits for the answer to a call, but not longer than the call's bound.
///
/// # Errors
///
/// [`EngineError::TimedOut`], or what the engine's error means.
pub async fn bounded<T>(
    call: Call,
    answer: impl Future<Output = Result<T, bollard::errors::Error>>,
) -> Result<T, EngineError> {
    match timeout(call.bound(), answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(meaning(call, error)),
        Err(_) => Err(EngineError::TimedOut {
            call: call.words(),
            seconds: call.bound().as_secs(),
        }),
    }
}

/// Connects to the engine at `host` and agrees on a version of its interface.
///
/// # Errors
///
/// [`EngineError::Unreachable`] if nobody answers there.
pub async fn connect(host: &str) -> Result<Docker, EngineError> {
    let docker = Docker::connect_with_unix(host, CLIENT_TIMEOUT_SECONDS, API_DEFAULT_VERSION)
        .map_err(|error| EngineError::Unreachable(error.into()))?;
    bounded(Call::Connect, docker.negotiate_version()).await
}

fn meaning(call: Call, error: bollard::errors::Error) -> EngineError {
    if is_unreachable(&error) {
        EngineError::Unreachable(error.into())
    } else if matches!(error, bollard::errors::Error::RequestTimeoutError) {
        EngineError::TimedOut {
            call: call.words(),
            seconds: CLIENT_TIMEOUT_SECONDS,
        }
    } else {
        EngineError::Failed {
            call: call.words(),
            source: error.into(),
        }
    }
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
