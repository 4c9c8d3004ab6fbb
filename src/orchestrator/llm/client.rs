//! Asking until there is an answer of the expected shape, or enough attempts.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Instant, sleep};
use tracing::debug;

use super::answer::{self, Answer, InvalidAnswer};
use super::exchange::{Endpoint, Failure, Reply};
use super::pace::{ATTEMPTS, Pace};
use super::{Message, Role};
use crate::orchestrator::prompt::REDACTED;
use crate::runs::task::ModelUsage;
use crate::secret::Secret;
use crate::telemetry::Chain;

/// Characters of an invalid answer that the model is shown again.
const MAX_QUOTED: usize = 4000;

/// Bytes of text taken for one token where the server does not count.
const BYTES_PER_TOKEN: u64 = 3;

/// Where the model is and how it is asked.
#[derive(Debug, Clone)]
pub struct ClientSettings {
    /// Base address of the interface, such as `https://host/v1`.
    pub base_url: String,
    /// Name of the model.
    pub model: String,
    /// The key; a local server may need none.
    pub key: Option<Secret>,
    /// Certificates to trust besides the system's, as PEM.
    pub extra_certificates: Option<Vec<u8>>,
    /// What tokens cost, if that is known.
    pub prices: Option<Prices>,
    /// How fast the clock goes.
    pub pace: Pace,
}

/// What a million tokens cost, in any unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// Sent.
    pub prompt: f64,
    /// Received.
    pub completion: f64,
}

/// Settings that make no client. Each names the key and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// No address.
    #[error("llm.base_url is no http or https address")]
    Address,
    /// No key.
    #[error("the model's key holds characters that no header can: check llm.api_key_env")]
    Key,
    /// No certificates.
    #[error("llm.ca_file holds no certificates as PEM")]
    Certificates(#[source] reqwest::Error),
    /// No client.
    #[error("the client of the model could not be made")]
    Client(#[source] reqwest::Error),
}

/// Why a model gave no usable answer. `Display` is for clients: it says neither what the server sent
/// nor where it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// No answer came.
    #[error("{0}")]
    NoAnswer(String),
    /// No answer was of the expected shape.
    #[error("the model's answers were not of the expected form")]
    Invalid,
}

/// A question that was asked: what it brought and what it cost, however it ended.
#[derive(Debug)]
pub struct Asked<T> {
    /// The answer.
    pub answer: Result<T, ModelError>,
    /// The cost of all attempts.
    pub usage: ModelUsage,
}

/// A client of one model. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ModelClient {
    endpoint: Arc<Endpoint>,
    prices: Option<Prices>,
    pace: Pace,
    key: Option<Secret>,
    totals: Arc<Mutex<ModelTotals>>,
}

/// What a client has asked since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ModelTotals {
    /// What the answers cost.
    pub usage: ModelUsage,
    /// Attempts without an answer.
    pub failures: u64,
}

impl ModelClient {
    /// A client with these settings. Connects to nothing.
    ///
    /// # Errors
    ///
    /// [`SettingsError`] if they make no client.
    pub fn new(settings: &ClientSettings) -> Result<Self, SettingsError> {
        Ok(Self {
            endpoint: Arc::new(Endpoint::new(settings)?),
            prices: settings.prices,
            pace: settings.pace,
            key: settings.key.clone(),
            totals: Arc::default(),
        })
    }

    /// What must never be in a prompt.
    #[must_use]
    pub fn secrets(&self) -> &[Secret] {
        self.key.as_slice()
    }

    /// Asks for a value of the shape `T`. A failure that may pass is tried again after a pause, an
    /// answer of another shape is asked for again with what is wrong with it; three attempts in all,
    /// each within its time.
    pub async fn ask<T: Answer>(&self, messages: Vec<Message>) -> Asked<T> {
        let begun = Instant::now();
        let mut asked = self.ask_repeatedly(messages).await;
        asked.usage.seconds = begun.elapsed().as_secs_f64();
        self.count(|totals| totals.usage.add(&asked.usage));
        asked
    }

    /// What was asked so far, of everybody who has this client.
    #[must_use]
    pub fn totals(&self) -> ModelTotals {
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, what: impl FnOnce(&mut ModelTotals)) {
        what(&mut self.totals.lock().unwrap_or_else(PoisonError::into_inner));
    }

    async fn ask_repeatedly<T: Answer>(&self, mut messages: Vec<Message>) -> Asked<T> {
        let mut usage = ModelUsage::default();
        let mut last = ModelError::Invalid;
        for attempt in 0..ATTEMPTS {
            match self.endpoint.ask(&messages, self.pace.attempt).await {
                Ok(mut reply) => {
                    self.hide_key(&mut reply.text);
                    usage.add(&self.cost(&messages, &reply));
                    match answer::read::<T>(&reply.text, &|text| self.hide_key(text)) {
                        Ok(value) => {
                            let answer = Ok(value);
                            return Asked { answer, usage };
                        }
                        Err(invalid) => {
                            debug!(attempt, "a model's answer was not of the expected form");
                            correct(&mut messages, &reply.text, &invalid);
                            last = ModelError::Invalid;
                        }
                    }
                }
                Err(failure) => {
                    debug!(attempt, error = %Chain(&failure), "a model was not heard");
                    self.count(|totals| totals.failures = totals.failures.saturating_add(1));
                    last = ModelError::NoAnswer(failure.to_string());
                    if !failure.is_passing() {
                        break;
                    }
                    self.wait(attempt, &failure).await;
                }
            }
        }
        let answer = Err(last);
        Asked { answer, usage }
    }

    /// Servers have been seen to repeat keys: what is said goes into programs, records and prompts. To be
    /// called again for what was escaped.
    fn hide_key(&self, text: &mut String) {
        for key in self.secrets() {
            if text.contains(key.expose()) {
                *text = text.replace(key.expose(), REDACTED);
            }
        }
    }

    async fn wait(&self, attempt: u32, failure: &Failure) {
        if attempt + 1 < ATTEMPTS {
            sleep(self.pace.pause(attempt, failure.retry_after())).await;
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "tokens of a call fit a double exactly"
    )]
    fn cost(&self, messages: &[Message], reply: &Reply) -> ModelUsage {
        let Some((prompt, completion)) = reply.tokens else {
            let sent = messages.iter().map(|message| message.content.len() as u64);
            let bytes = sent.sum::<u64>() + reply.text.len() as u64;
            return ModelUsage {
                calls: 1,
                uncounted_calls: 1,
                estimated_tokens: bytes.div_ceil(BYTES_PER_TOKEN),
                ..ModelUsage::default()
            };
        };
        let million = 1_000_000.0;
        let cost = self.prices.map(|prices| {
            (prompt as f64 * prices.prompt + completion as f64 * prices.completion) / million
        });
        ModelUsage {
            calls: 1,
            prompt_tokens: prompt,
            completion_tokens: completion,
            cost,
            ..ModelUsage::default()
        }
    }
}

/// Goes on with the conversation after an answer of another shape. Only the last one is kept in it,
/// so that it does not grow.
fn correct(messages: &mut Vec<Message>, text: &str, invalid: &InvalidAnswer) {
    messages.retain(|message| message.role != Role::Assistant);
    if messages.last().is_some_and(is_correction) {
        messages.pop();
    }
    let quoted: String = text.chars().take(MAX_QUOTED).collect();
    messages.push(Message::new(Role::Assistant, quoted));
    messages.push(Message::new(
        Role::User,
        format!("{CORRECTION} {invalid}.\nAnswer again, with the one JSON object only."),
    ));
}

const CORRECTION: &str = "Your answer could not be used:";

fn is_correction(message: &Message) -> bool {
    message.role == Role::User && message.content.starts_with(CORRECTION)
}
