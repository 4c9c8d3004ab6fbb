//! One question and one answer over HTTP, within its bounds.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response, Url};
use serde::{Deserialize, Serialize};

use super::Message;
use super::client::{ClientSettings, SettingsError};
use super::pace::{is_passing, retry_after};

/// The longest answer that is read, envelope included.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Connections kept for the next question.
const IDLE_CONNECTIONS: usize = 4;

/// Where questions go.
#[derive(Debug, Clone)]
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    model: String,
}

/// An answer as it came.
pub(super) struct Reply {
    pub(super) text: String,
    /// Tokens sent and received, if the server says so.
    pub(super) tokens: Option<(u64, u64)>,
}

/// Why there is no answer. Never says what the server sent, nor where it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("the model did not answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("the model's server cannot be reached")]
    Connect(#[source] reqwest::Error),
    #[error("the model's answer broke off")]
    Cut(#[source] reqwest::Error),
    #[error("the model's answer is larger than {} KiB", MAX_ANSWER_BYTES >> 10)]
    TooLarge,
    #[error("the model's server answered with status {status}")]
    Status {
        status: u16,
        retry_after: Option<u64>,
    },
    #[error("the model's server did not answer with a chat completion")]
    Envelope(#[source] serde_json::Error),
    #[error("the model's answer has no text")]
    Empty,
    #[error("the question could not be written down")]
    Question(#[source] serde_json::Error),
}

impl Failure {
    /// Whether another attempt may go better.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::Connect(_) | Self::Cut(_) => true,
            Self::Envelope(_) | Self::Empty => true,
            Self::Status { status, .. } => is_passing(*status),
            Self::TooLarge | Self::Question(_) => false,
        }
    }

    pub(super) fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Timeout(_)
            | Self::Connect(_)
            | Self::Cut(_)
            | Self::TooLarge
            | Self::Envelope(_)
            | Self::Empty
            | Self::Question(_) => None,
        }
    }
}

#[derive(Serialize)]
struct Question<'a> {
    model: &'a str,
    messages: &'a [Message],
}

// What else is in a chat completion does not matter here.

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Text,
}

#[derive(Deserialize)]
struct Text {
    content: Option<String>,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl Endpoint {
    pub(super) fn new(settings: &ClientSettings) -> Result<Self, SettingsError> {
        let url = address(&settings.base_url).ok_or(SettingsError::Address)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &settings.key {
            let bearer = HeaderValue::from_str(&format!("Bearer {}", key.expose()));
            let mut bearer = bearer.map_err(|_| SettingsError::Key)?;
            // So that no debug output shows it.
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        let mut client = Client::builder()
            .default_headers(headers)
            .user_agent(concat!("fumehood/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .https_only(url.scheme() == "https")
            .timeout(settings.pace.attempt)
            .pool_max_idle_per_host(IDLE_CONNECTIONS);
        if let Some(pem) = &settings.extra_certificates {
            let certificates = Certificate::from_pem_bundle(pem);
            for certificate in certificates.map_err(SettingsError::Certificates)? {
                client = client.add_root_certificate(certificate);
            }
        }
        Ok(Self {
            client: client.build().map_err(SettingsError::Client)?,
            url,
            model: settings.model.clone(),
        })
    }

    pub(super) async fn ask(
        &self,
        messages: &[Message],
        bound: Duration,
    ) -> Result<Reply, Failure> {
        let question = Question {
            model: &self.model,
            messages,
        };
        let body = serde_json::to_vec(&question).map_err(Failure::Question)?;
        let request = self.client.post(self.url.clone()).body(body);
        let failed = |error: reqwest::Error| {
            let error = error.without_url();
            if error.is_timeout() {
                Failure::Timeout(bound)
            } else if error.is_connect() {
                Failure::Connect(error)
            } else {
                Failure::Cut(error)
            }
        };
        let response = request.send().await.map_err(failed)?;
        let status = response.status();
        if status.as_u16() != 200 {
            let header = response.headers().get(RETRY_AFTER);
            return Err(Failure::Status {
                status: status.as_u16(),
                retry_after: retry_after(header.and_then(|value| value.to_str().ok())),
            });
        }
        let body = read(response, failed).await?;
        let completion: Completion = serde_json::from_slice(&body).map_err(Failure::Envelope)?;
        let first = completion.choices.into_iter().next();
        let text = first.and_then(|choice| choice.message.content);
        let usage = completion.usage;
        Ok(Reply {
            text: text.filter(|text| !text.is_empty()).ok_or(Failure::Empty)?,
            tokens: usage.map(|usage| (usage.prompt_tokens, usage.completion_tokens)),
        })
    }
}

/// Where chat completions are, below a base address.
fn address(base_url: &str) -> Option<Url> {
    let mut url = Url::parse(base_url).ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return None;
    }
    let mut path = url.path_segments_mut().ok()?;
    path.pop_if_empty().extend(["chat", "completions"]);
    drop(path);
    Some(url)
}

/// The body, unless it is too large: then it is not read to its end.
async fn read(
    mut response: Response,
    failed: impl Fn(reqwest::Error) -> Failure,
) -> Result<Vec<u8>, Failure> {
    let announced = response.content_length().unwrap_or(0);
    if announced > MAX_ANSWER_BYTES as u64 {
        return Err(Failure::TooLarge);
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(&failed)? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            return Err(Failure::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
