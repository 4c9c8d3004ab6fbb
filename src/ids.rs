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
    const LENGTH: usize = 8;

    /// A new random id.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("{}{}", Self::PREFIX, random_name(Self::LENGTH)))
    }

    /// Reads an id from where it was stored; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = text.strip_prefix(Self::PREFIX)?;
        is_random_name(name, Self::LENGTH).then(|| Self(text.to_owned()))
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
        is_random_name(text, Self::LENGTH).then(|| Self(text.to_owned()))
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

/// A tenant: whose runs, quotas and tokens are meant. Nothing of one is visible to another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TenantId(String);

/// A text that names no tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a tenant's name has 1 to 63 of the characters a-z, 0-9, - and _, and begins with a letter or \
     a digit"
)]
pub struct NotATenant;

impl TenantId {
    const DEFAULT: &str = "default";
    const MAX_LENGTH: usize = 63;

    /// Reads a name; `None` if it cannot be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let begins_well = text.bytes().next().is_some_and(is_plain);
        let is_named = text
            .bytes()
            .all(|byte| is_plain(byte) || matches!(byte, b'-' | b'_'));
        (begins_well && is_named && text.len() <= Self::MAX_LENGTH).then(|| Self(text.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for TenantId {
    /// The one tenant of a daemon without tokens.
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

impl TryFrom<String> for TenantId {
    type Error = NotATenant;

    fn try_from(text: String) -> Result<Self, NotATenant> {
        Self::parse(&text).ok_or(NotATenant)
    }
}

impl From<TenantId> for String {
    fn from(tenant: TenantId) -> Self {
        tenant.0
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The public part of a token, by which it is found, listed and revoked. No secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyId(String);

/// A text that is no key id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key id has 12 of the characters a-z and 0-9")]
pub struct NotAKeyId;

impl KeyId {
    /// Characters of an id.
    pub const LENGTH: usize = 12;

    /// A new random id.
    #[must_use]
    pub fn random() -> Self {
        Self(random_name(Self::LENGTH))
    }

    /// Reads an id; `None` if it is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        is_random_name(text, Self::LENGTH).then(|| Self(text.to_owned()))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for KeyId {
    type Error = NotAKeyId;

    fn try_from(text: String) -> Result<Self, NotAKeyId> {
        Self::parse(&text).ok_or(NotAKeyId)
    }
}

impl From<KeyId> for String {
    fn from(key: KeyId) -> Self {
        key.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

fn random_name(length: usize) -> String {
    let mut rng = rand::rng();
    (0..length)
        .map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())]))
        .collect()
}

fn is_random_name(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| ALPHABET.contains(&byte))
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
    fn an_id_is_read_back_and_nothing_else_is_taken_for_one() {
        let execution = ExecutionId::random();
        assert_eq!(ExecutionId::parse(execution.as_str()), Some(execution));
        let instance = InstanceId::random();
        assert_eq!(InstanceId::parse(instance.as_str()), Some(instance));
        for text in [
            "",
            "exec_",
            "exec_abc",
            "exec_abcdefghi",
            "exec_ABCDEFGH",
            "exec_../../..",
            "abcdefgh",
        ] {
            assert_eq!(ExecutionId::parse(text), None, "{text}");
        }
        for text in [
            "",
            "abcdefghijk",
            "abcdefghijklm",
            "ABCDEFGHIJKL",
            "abc/../defgh",
            "abcdefghijk\n",
        ] {
            assert_eq!(InstanceId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_run_id_is_read_in_one_spelling_only() {
        let id = RunId::random();
        assert_eq!(RunId::parse(&id.to_string()), Some(id));
        assert_eq!(RunId::parse(&id.to_string().to_uppercase()), None);
        assert_eq!(RunId::parse(&id.0.simple().to_string()), None);
        assert_eq!(RunId::parse("../x"), None);
    }

    #[test]
    fn a_tenant_has_a_name_that_needs_no_escaping() {
        for text in ["default", "a", "team-1", "0_x", &"a".repeat(63)] {
            let tenant = TenantId::parse(text).unwrap();
            assert_eq!(tenant.as_str(), text);
            assert_eq!(TenantId::try_from(text.to_owned()), Ok(tenant));
        }
        for text in [
            "",
            "-a",
            "_a",
            "A",
            "a b",
            "a/b",
            "a.b",
            "ä",
            &"a".repeat(64),
        ] {
            assert_eq!(TenantId::parse(text), None, "{text}");
        }
        assert_eq!(TenantId::default().as_str(), "default");
    }

    #[test]
    fn a_key_id_is_read_back() {
        let key = KeyId::random();
        assert_eq!(KeyId::parse(key.as_str()), Some(key));
        assert_eq!(KeyId::parse("ABCDEFGHIJKL"), None);
    }
}
