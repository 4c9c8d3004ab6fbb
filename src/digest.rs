//! SHA-256 in the two ways that this program uses it: over the bytes of a file, which anybody can
//! repeat with `sha256sum`, and over structures of our own, each kind with a prefix of its own.
//!
//! Owns the prefixes, so that a value of one kind can never stand for one of another. Knows nothing
//! of what is hashed, and does no I/O.

use sha2::{Digest as _, Sha256};

/// What a hash or a signature of our own is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Domain {
    /// The message that a receipt's signature is over.
    Signature,
    /// A whole receipt, as the next one refers to it.
    Link,
    /// A list of paths inside a sandbox.
    Paths,
    /// The listing of a data set.
    Dataset,
}

impl Domain {
    /// What stands before everything of this kind. None is the beginning of another.
    #[must_use]
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Signature => "fumehood receipt 1: signature\0",
            Self::Link => "fumehood receipt 1: link\0",
            Self::Paths => "fumehood receipt 1: paths\0",
            Self::Dataset => "fumehood receipt 1: data set\0",
        }
    }

    /// The hash over `parts`, each with its length before it (64 bits, little-endian), so that none
    /// runs into the next; lower case hexadecimal.
    #[must_use]
    pub fn digest<T: AsRef<[u8]>>(self, parts: impl IntoIterator<Item = T>) -> String {
        let mut hash = Sha256::new();
        hash.update(self.prefix());
        for part in parts {
            let part = part.as_ref();
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hex::encode(hash.finalize())
    }
}

/// The hash of a file's bytes, lower case hexadecimal.
#[must_use]
pub fn of_content(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Domain; 4] = [
        Domain::Signature,
        Domain::Link,
        Domain::Paths,
        Domain::Dataset,
    ];

    #[test]
    fn no_kind_can_stand_for_another() {
        for one in ALL {
            for other in ALL.into_iter().filter(|other| *other != one) {
                assert!(!one.prefix().starts_with(other.prefix()));
                assert_ne!(one.digest(["a"]), other.digest(["a"]));
            }
            assert_ne!(one.digest(["a"]), of_content(b"a"));
        }
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let digest = |parts: &[&str]| Domain::Paths.digest(parts);
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_ne!(digest(&["ab"]), digest(&["ab", ""]));
    }

    #[test]
    fn content_is_hashed_as_everybody_does() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(of_content(b""), empty);
    }
}
