//! The key that receipts are signed with: one per state directory, made at the first start.
//!
//! Owns the file: that it appears whole and for its owner only, in one step, and that one which
//! others could have read or written is refused. Blocks. Nothing of a secret key is ever shown or
//! logged; what may be shown is the [`PublicKey`].

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use rand::Rng as _;
use rustix::io::Errno;
use zeroize::Zeroizing;

/// The file's name in the state directory.
pub const KEY_FILE: &str = "receipt-key";

/// What stands before the key in its file.
const LABEL: &str = "fumehood receipt key 1: ";

/// Longer than the file is.
const MAX_FILE_BYTES: u64 = LONGEST as u64;

const LONGEST: usize = 1024;

/// Permissions that only an owner has.
const OTHERS: u32 = 0o077;

/// Why there is no key to sign with. Each names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Others may read or write it.
    #[error(
        "the receipt key {} is open to others (mode {mode:04o}): make it yours with `chmod 600`, or, \
         if somebody may have read it, remove it, and the next start makes another",
        .path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It belongs to somebody else, who can read it.
    #[error(
        "the receipt key {} belongs to another user (uid {owner}): give it to the one that runs \
         fumehood with `chown`, or remove it, and the next start makes another",
        .path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Its name leads somewhere else, to a place that others may choose.
    #[error(
        "the receipt key {} is a symbolic link, which is not followed: put the file itself in its \
         place, or remove the link, and the next start makes another",
        .path.display()
    )]
    Link {
        /// The file.
        path: PathBuf,
    },
    /// It is something else than a key of this program.
    #[error(
        "the receipt key {} is damaged or no key: restore it from a backup, or remove it, and the \
         next start makes another",
        .path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// It cannot be read or made.
    #[error("the receipt key {} cannot be used: check its directory", .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A key that signs receipts.
pub struct ReceiptKey(SigningKey);

impl ReceiptKey {
    /// The key of a state directory; makes one if there is none. The directory has to exist.
    ///
    /// # Errors
    ///
    /// [`KeyError`]
    pub fn load_or_make(state_dir: &Path) -> Result<Self, KeyError> {
        if let Some(key) = Self::load(state_dir)? {
            return Ok(key);
        }
        make(state_dir)?;
        // Another process may have been quicker: what lies there is the key.
        let path = state_dir.join(KEY_FILE);
        Self::load(state_dir)?.ok_or(KeyError::Damaged { path })
    }

    /// The key of a state directory, or `None` if it has none yet.
    ///
    /// # Errors
    ///
    /// [`KeyError`]
    pub fn load(state_dir: &Path) -> Result<Option<Self>, KeyError> {
        let path = state_dir.join(KEY_FILE);
        let unusable = |source| KeyError::Unusable {
            path: path.clone(),
            source,
        };
        let file = match open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::LOOP) => {
                return Err(KeyError::Link { path });
            }
            Err(error) => return Err(unusable(error)),
        };
        // Of the open file, so that what is looked at is what is read.
        let metadata = file.metadata().map_err(unusable)?;
        if !metadata.is_file() {
            return Err(KeyError::Damaged { path });
        }
        let ours = rustix::process::geteuid().as_raw();
        if let Some(refused) = refusal(&path, metadata.uid(), metadata.mode(), ours) {
            return Err(refused);
        }
        // Of its full size from the beginning: growing would leave copies behind.
        let mut text = Zeroizing::new(String::with_capacity(2 * LONGEST));
        let read = file.take(MAX_FILE_BYTES).read_to_string(&mut text);
        match read {
            Ok(_) => parse(&text).map(Some).ok_or(KeyError::Damaged { path }),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(KeyError::Damaged { path })
            }
            Err(error) => Err(unusable(error)),
        }
    }

    /// The key with this secret.
    pub(super) fn of_secret(secret: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(secret))
    }

    /// What its signatures are checked with.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// The signature over a message, lower case hexadecimal.
    pub(super) fn sign(&self, message: &[u8]) -> String {
        hex::encode(self.0.sign(message).to_bytes())
    }
}

impl fmt::Debug for ReceiptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReceiptKey").field(&self.public()).finish()
    }
}

/// What signatures are checked with: 64 lower case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Whether a signature is this key's over the message. Only its one spelling counts.
    pub(super) fn has_signed(&self, message: &[u8], signature: &str) -> bool {
        let Some(bytes) = digits::<64>(signature) else {
            return false;
        };
        let signature = Signature::from_bytes(&bytes);
        VerifyingKey::from_bytes(&self.0)
            .is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A text that is no public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a public key is 64 lower case hexadecimal digits, as `fumehood receipt key` prints them")]
pub struct NoPublicKey;

impl FromStr for PublicKey {
    type Err = NoPublicKey;

    fn from_str(text: &str) -> Result<Self, NoPublicKey> {
        let bytes = digits::<32>(text).ok_or(NoPublicKey)?;
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| NoPublicKey)?;
        // A key under which everybody can sign.
        if key.is_weak() {
            return Err(NoPublicKey);
        }
        Ok(Self(bytes))
    }
}

/// `N` bytes in their one spelling.
fn digits<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes: [u8; N] = hex::decode(text).ok()?.try_into().ok()?;
    (hex::encode(bytes) == text).then_some(bytes)
}

/// Why a file of this owner and mode is not to be relied on by the user `ours`.
fn refusal(path: &Path, owner: u32, mode: u32, ours: u32) -> Option<KeyError> {
    let path = path.to_owned();
    if owner != ours {
        return Some(KeyError::Foreign { path, owner });
    }
    let mode = mode & 0o7777;
    (mode & OTHERS != 0).then_some(KeyError::Exposed { path, mode })
}

fn parse(text: &str) -> Option<ReceiptKey> {
    let secret = text.strip_prefix(LABEL)?.strip_suffix('\n')?;
    digits::<32>(secret).map(|secret| ReceiptKey::of_secret(&secret))
}

fn open(path: &Path) -> io::Result<File> {
    // A link could lead to a file of somebody else's choice, and a FIFO would be waited for.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Makes a key, unless one has appeared meanwhile.
fn make(state_dir: &Path) -> Result<(), KeyError> {
    let path = state_dir.join(KEY_FILE);
    let making = || -> io::Result<()> {
        let secret: Zeroizing<[u8; 32]> = Zeroizing::new(rand::rng().random());
        let digits = Zeroizing::new(hex::encode(&secret[..]));
        // Whole from the beginning: one that grew would leave what it had outgrown behind, unwiped.
        let mut text = Zeroizing::new(String::with_capacity(LABEL.len() + digits.len() + 1));
        for part in [LABEL, digits.as_str(), "\n"] {
            text.push_str(part);
        }
        // For its owner only from the beginning (0600), and by its name only when it is whole.
        let mut file = tempfile::NamedTempFile::new_in(state_dir)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        match file.persist_noclobber(&path) {
            Ok(_) => File::open(state_dir)?.sync_all(),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error.error),
        }
    };
    making().map_err(|source| KeyError::Unusable {
        path: path.clone(),
        source,
    })
}

#[cfg(test)]
mod tests;
