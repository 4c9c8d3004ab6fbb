//! Identifiers. Each is a type of its own, checked where it is made, so that one cannot stand for
//! another and none needs escaping where it is used in a name or path.

use std::fmt;

use rand::Rng as _;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A run: what a client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub Uuid);

impl RunId {
    /// A new random id.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// Reads an id as the interface writes it; `None` for any other spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let id = Uuid::parse_str(text).ok()?;
        (id.as_hyphenated().to_string() == text).then_some(Self(id))
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

/// One program started once: `exec_` and 8 characters of `[a-z0-9]` (contract section 2.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExecutionId(String);

impl ExecutionId {
    const PREFIX: &str = "exec_";

    /// A new random id.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("{}{}", Self::PREFIX, random_name(8)))
    }

    /// Reads an id from where it was stored; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_prefix(Self::PREFIX)?;
        let valid = name.len() == 8
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        valid.then(|| Self(text.to_owned()))
    }

    /// The id as text, safe in a file name and in a container name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A state directory: marks every engine object of the daemon that owns it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct InstanceId(String);

impl InstanceId {
    const LENGTH: usize = 12;

    /// A new random id.
    #[must_use]
    pub fn random() -> Self {
        Self(random_name(Self::LENGTH))
    }

    /// Reads an id from where it was stored; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == Self::LENGTH
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        valid.then(|| Self(text.to_owned()))
    }

    /// The id as text, safe in a container name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose turn it is in the fair queue: runs of one client start in the order they were accepted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientKey(pub String);

fn random_name(length: usize) -> String {
    const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut rng = rand::rng();
    (0..length)
        .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_id_has_the_documented_form() {
        let id = ExecutionId::random();
        let name = id.as_str().strip_prefix("exec_").unwrap();
        assert_eq!(name.len(), 8);
        assert!(
            name.bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        );
    }

    #[test]
    fn a_run_id_is_read_in_one_spelling_only() {
        let id = RunId::random();
        assert_eq!(RunId::parse(&id.to_string()), Some(id));
        assert_eq!(RunId::parse(&id.to_string().to_uppercase()), None);
        assert_eq!(RunId::parse(&id.0.simple().to_string()), None);
        assert_eq!(RunId::parse("../x"), None);
    }
}
