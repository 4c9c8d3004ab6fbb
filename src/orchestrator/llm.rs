//! The model: chat completions of an OpenAI-compatible server, asked for JSON of a known shape.
//!
//! Owns the bounds of a call: its time, the size of its answer, how often it is tried, and where it
//! goes, which is the configured address and nowhere else: no redirect is followed, no proxy taken
//! from the environment. Whatever a server answers is hostile: it is read up to a bound, has to be of
//! the expected shape and is never logged.
//!
//! This is a small client over reqwest and not one of the SDK crates: those read whole bodies into
//! memory, retry by rules of their own without `Retry-After`, and bring a hundred endpoints.
//! Shapes are serde types that refuse unknown fields: checking and reading are one step, and the
//! error names field and place, which is what the model is told.

mod answer;

mod client;

mod exchange;

mod pace;

#[cfg(test)]
mod tests;

pub use answer::{Answer, InvalidAnswer};
pub use client::{
    Asked, ClientSettings, ModelClient, ModelError, ModelTotals, Prices, SettingsError,
};
pub use pace::Pace;

use serde::Serialize;

/// Who says something in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The rules.
    System,
    /// The question.
    User,
    /// The model's own earlier answer.
    Assistant,
}

/// One message of a conversation. Prompts hold data of clients: `Debug` tells the length only.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Whose it is.
    pub role: Role,
    /// What it says.
    pub content: String,
}

impl Message {
    /// A message.
    #[must_use]
    pub fn new(role: Role, content: String) -> Self {
        Self { role, content }
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("role", &self.role)
            .field("bytes", &self.content.len())
            .finish()
    }
}
