//! What a token is: `fh_<key id>_<secret>`, the secret 256 random bits in hexadecimal.
//!
//! The key id finds the token's record and is no secret; the digest of the whole text is what the
//! record has. A secret of 256 random bits needs no slow hash.

use rand::TryRngCore as _;
use rand::rngs::OsRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use zeroize::Zeroizing;

use super::file::TokensError;
use crate::ids::KeyId;
use crate::secret::Secret;

const PREFIX: &str = "fh_";

const SECRET_BYTES: usize = 32;

/// Characters of a token.
const LENGTH: usize = PREFIX.len() + KeyId::LENGTH + 1 + 2 * SECRET_BYTES;

/// What is hashed where nothing was sent that looks like a token. As long as one, and none: its
/// key id has characters that no key id has.
const STAND_IN: &str =
    "fh_------------_0000000000000000000000000000000000000000000000000000000000000000";

/// A token in the only moment in which anybody has its text.
#[derive(Debug)]
pub struct NewToken {
    /// Its public part.
    pub key: KeyId,
    /// What its holder sends.
    pub text: Secret,
    /// What is kept of it.
    pub digest: Digest,
}

impl NewToken {
    /// A new random token.
    ///
    /// # Errors
    ///
    /// [`TokensError::NoRandomness`] if the system has none to give.
    pub fn generate() -> Result<Self, TokensError> {
        let mut bytes = Zeroizing::new([0_u8; SECRET_BYTES]);
        OsRng
            .try_fill_bytes(&mut bytes[..])
            .map_err(|_| TokensError::NoRandomness)?;
        let key = KeyId::random();
        let secret = Zeroizing::new(hex::encode(&bytes[..]));
        let text = Secret::new(format!("{PREFIX}{key}_{}", secret.as_str()));
        let digest = Digest::of(text.expose());
        Ok(Self { key, text, digest })
    }
}

/// The SHA-256 of a token. Compared in constant time only, and therefore without `PartialEq`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// A text that is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a digest has 64 hexadecimal characters")]
pub struct NotADigest;

impl Digest {
    /// Matches no token.
    pub(super) const NONE: Self = Self([0; 32]);

    /// The digest of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        #[cfg(test)]
        work::count(text.len(), 0);
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Whether they are the same, in a time that does not depend on where they differ.
    pub(super) fn is(&self, other: &Self) -> Choice {
        #[cfg(test)]
        work::count(0, self.0.len());
        self.0.ct_eq(&other.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = NotADigest;

    fn try_from(text: String) -> Result<Self, NotADigest> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| NotADigest)?;
        Ok(Self(bytes))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        hex::encode(digest.0)
    }
}

/// What a client sent, ready to be compared.
#[derive(Debug)]
pub(super) struct Presented {
    /// `None` if it does not look like a token.
    pub(super) key: Option<KeyId>,
    pub(super) digest: Digest,
}

impl Presented {
    /// Reads what a client sent, if it sent anything. One text of the same length is hashed in
    /// every case.
    pub(super) fn read(text: Option<&str>) -> Self {
        let known = text.and_then(|text| Some((key_of(text)?, text)));
        match known {
            Some((key, text)) => Self {
                key: Some(key),
                digest: Digest::of(text),
            },
            None => Self {
                key: None,
                digest: Digest::of(STAND_IN),
            },
        }
    }
}

/// The key id of a text that looks like a token.
#[must_use]
pub fn key_of(text: &str) -> Option<KeyId> {
    if text.len() != LENGTH || !text.is_ascii() {
        return None;
    }
    let (key, secret) = text.strip_prefix(PREFIX)?.split_at(KeyId::LENGTH);
    let secret = secret.strip_prefix('_')?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    secret.bytes().all(is_hex).then(|| KeyId::parse(key))?
}

/// What was done with texts and digests, by this thread: so that a test can say that the same is done
/// whatever a client sent.
#[cfg(test)]
pub(super) mod work {
    use std::cell::Cell;

    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub(crate) struct Work {
        pub(crate) hashed_bytes: usize,
        pub(crate) compared_bytes: usize,
    }

    thread_local! {
        static WORK: Cell<Work> = const { Cell::new(Work { hashed_bytes: 0, compared_bytes: 0 }) };
    }

    pub(super) fn count(hashed_bytes: usize, compared_bytes: usize) {
        let before = WORK.get();
        WORK.set(Work {
            hashed_bytes: before.hashed_bytes + hashed_bytes,
            compared_bytes: before.compared_bytes + compared_bytes,
        });
    }

    /// What was done since this was asked for the last time.
    pub(crate) fn take() -> Work {
        WORK.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_by_its_key_and_known_by_its_digest() {
        let token = NewToken::generate().unwrap();
        let other = NewToken::generate().unwrap();
        assert_eq!(token.text.expose().len(), LENGTH);
        let presented = Presented::read(Some(token.text.expose()));
        assert_eq!(presented.key.as_ref(), Some(&token.key));
        assert!(bool::from(presented.digest.is(&token.digest)));
        assert!(!bool::from(presented.digest.is(&other.digest)));
        let shown = format!("{token:?}");
        assert!(!shown.contains(token.text.expose()), "{shown}");
    }

    #[test]
    fn what_is_no_token_has_no_key_and_matches_nothing() {
        let token = NewToken::generate().unwrap();
        let text = token.text.expose();
        let longer = format!("{text}0");
        let shouted = text.to_uppercase();
        let other_prefix = text.replace("fh_", "gh_");
        let wide = format!("fh_{}", "é".repeat((LENGTH - 3) / 2));
        for odd in [
            None,
            Some(""),
            Some("fh_"),
            Some(&text[..LENGTH - 1]),
            Some(longer.as_str()),
            Some(shouted.as_str()),
            Some(other_prefix.as_str()),
            Some(wide.as_str()),
            Some(STAND_IN),
        ] {
            let presented = Presented::read(odd);
            assert_eq!(presented.key, None, "{odd:?}");
            assert!(!bool::from(presented.digest.is(&token.digest)));
            assert!(!bool::from(presented.digest.is(&Digest::NONE)));
        }
        assert_eq!(STAND_IN.len(), LENGTH);
    }

    #[test]
    fn a_digest_is_kept_as_text() {
        let digest = Digest::of("x");
        let text = String::from(digest);
        assert_eq!(text.len(), 64);
        assert!(bool::from(Digest::try_from(text).unwrap().is(&digest)));
        assert!(Digest::try_from("00".to_owned()).is_err());
    }
}
