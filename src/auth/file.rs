//! The file of tokens: read whole, replaced whole, changed by one at a time.
//!
//! Owns the format and the rules for the file on disk. What is in it admits nobody by itself: it
//! holds digests. Whoever could change it could admit themselves, so a file that others can change
//! is refused.

use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::role::Role;
use super::token::Digest;
use crate::ids::{KeyId, TenantId};

/// The version of the format.
const VERSION: u32 = 1;

/// Tokens in one file.
pub const MAX_TOKENS: usize = 10_000;

/// A file with as many tokens is not larger.
const MAX_BYTES: u64 = 8 << 20;

/// How long a change waits for another one.
const LOCK_LIMIT: Duration = Duration::from_secs(10);

/// Between two looks at a lock that somebody has.
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// What stands in the way of using the tokens. Each names the file and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// There is no file.
    #[error("there is no tokens file {path}: make a token with `fumehood token create`")]
    Missing {
        /// Which.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("the tokens file {path} cannot be read: make it readable for the daemon's user")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no tokens file.
    #[error("{path} is not a tokens file that this version knows: restore it from a backup")]
    Invalid {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: Reason,
    },
    /// Others could add tokens to it.
    #[error("the tokens file {path} can be changed by others: `chmod 600` it")]
    Exposed {
        /// Which.
        path: PathBuf,
    },
    /// It is another user's, who could add tokens to it.
    #[error(
        "the tokens file {path} belongs to another user (uid {owner}), who could add tokens to it: give \
         it to root or to the daemon's user with `chown`"
    )]
    Foreign {
        /// Which.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// Others could put another file in its place.
    #[error(
        "the tokens file {path} can be replaced by others: make its directory writable for its owner only"
    )]
    Replaceable {
        /// Which.
        path: PathBuf,
    },
    /// It cannot be replaced.
    #[error("the tokens file {path} cannot be written: make its directory writable")]
    Unwritable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Somebody else is changing it.
    #[error("another `fumehood token` holds the lock of {path}: try again when it has ended")]
    Busy {
        /// Which.
        path: PathBuf,
    },
    /// There is no room for another token.
    #[error("there are {MAX_TOKENS} tokens: revoke some; revoked ones make room after a while")]
    Full,
    /// There is no such token.
    #[error("there is no token with the key id {0}: see `fumehood token list`")]
    Unknown(KeyId),
    /// The system's source of randomness failed.
    #[error("the system gives no random numbers: no token was made")]
    NoRandomness,
}

/// Why a file is no tokens file.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// It is not the JSON that it should be.
    #[error("at line {line}, column {column}")]
    Json {
        /// Where.
        line: usize,
        /// Where in the line.
        column: usize,
    },
    /// It is of another version.
    #[error("it has the version {0}")]
    Version(u32),
    /// Two tokens have one key id.
    #[error("the key id {0} is there twice")]
    Twice(KeyId),
    /// It is too large.
    #[error("it is larger than 8 MiB or has more than {MAX_TOKENS} tokens, or is no regular file")]
    Size,
}

/// What is kept of a token.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// Its public part.
    pub key: KeyId,
    /// Whose it is.
    pub tenant: TenantId,
    /// What it allows.
    pub role: Role,
    /// What people call it.
    pub name: Option<String>,
    /// The digest of its text.
    pub sha256: Digest,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends; never, if it is `None`.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked, if it was.
    pub revoked_at: Option<Timestamp>,
}

/// Whether a token is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// It is.
    Active,
    /// Its time is over.
    Expired,
    /// It was taken back.
    Revoked,
}

impl TokenState {
    /// The state in a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl TokenRecord {
    /// Whether it is good at a time.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> TokenState {
        match (self.revoked_at, self.expires_at) {
            (Some(_), _) => TokenState::Revoked,
            (None, Some(end)) if end <= now => TokenState::Expired,
            (None, Some(_) | None) => TokenState::Active,
        }
    }

    /// Since when it is good no more; `None` if it is good.
    #[must_use]
    pub fn ended_at(&self, now: Timestamp) -> Option<Timestamp> {
        match self.state(now) {
            TokenState::Active => None,
            TokenState::Expired => self.expires_at,
            TokenState::Revoked => self.revoked_at,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    tokens: Vec<TokenRecord>,
}

/// What tells one state of a file from the next. A replaced file has another inode, or at least
/// other times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    place: (u64, u64),
    pub(super) owner: u32,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The present state of the file; `None` if it cannot be looked at.
    pub(super) fn of(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().as_ref().map(Self::from)
    }
}

impl From<&std::fs::Metadata> for Stamp {
    fn from(metadata: &std::fs::Metadata) -> Self {
        Self {
            place: (metadata.dev(), metadata.ino()),
            owner: metadata.uid(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// Every token in the file. Blocks.
///
/// # Errors
///
/// [`TokensError`] if there is no such file, or it cannot be used.
pub fn list(path: &Path) -> Result<Vec<TokenRecord>, TokensError> {
    load(path).map(|(tokens, _)| tokens)
}

pub(super) fn load(path: &Path) -> Result<(Vec<TokenRecord>, Stamp), TokensError> {
    let unreadable = |source: io::Error| {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::NotFound {
            TokensError::Missing { path }
        } else {
            TokensError::Unreadable { path, source }
        }
    };
    let invalid = |source| TokensError::Invalid {
        path: path.to_owned(),
        source,
    };
    // Looked at before it is opened: opening a pipe would wait for somebody who writes.
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(invalid(Reason::Size));
    }
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.mode() & 0o022 != 0 {
        let path = path.to_owned();
        return Err(TokensError::Exposed { path });
    }
    if can_be_replaced(path).map_err(unreadable)? {
        let path = path.to_owned();
        return Err(TokensError::Replaceable { path });
    }
    let mut text = String::new();
    file.take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(invalid(Reason::Size));
    }
    let tokens = parse(&text).map_err(invalid)?;
    Ok((tokens, Stamp::from(&metadata)))
}

/// Whether everybody may put files into the directory and take others out. Those of the owner's group
/// may: with many systems' usual settings there is nobody else in it.
fn can_be_replaced(path: &Path) -> io::Result<bool> {
    const OTHERS_WRITE: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let real = std::fs::canonicalize(path)?;
    let Some(directory) = real.parent() else {
        return Ok(false);
    };
    let mode = std::fs::metadata(directory)?.mode();
    Ok(mode & (OTHERS_WRITE | STICKY) == OTHERS_WRITE)
}

fn parse(text: &str) -> Result<Vec<TokenRecord>, Reason> {
    // The parser's own words could show what is in the file.
    let Contents { version, tokens } =
        serde_json::from_str(text).map_err(|error| Reason::Json {
            line: error.line(),
            column: error.column(),
        })?;
    if version != VERSION {
        return Err(Reason::Version(version));
    }
    if tokens.len() > MAX_TOKENS {
        return Err(Reason::Size);
    }
    match twice(&tokens) {
        Some(key) => Err(Reason::Twice(key)),
        None => Ok(tokens),
    }
}

/// A key id that two of the tokens have.
fn twice(tokens: &[TokenRecord]) -> Option<KeyId> {
    let mut seen = HashSet::new();
    let twice = tokens.iter().find(|token| !seen.insert(&token.key));
    twice.map(|token| token.key.clone())
}

/// Changes the tokens: nobody else changes them meanwhile, and whoever reads the file sees it as it
/// was or as it will be. A file that is not there has no tokens. Blocks on the disk.
///
/// # Errors
///
/// [`TokensError`], the one of `change` included; the file is as it was then.
pub async fn update<T>(
    path: &Path,
    change: impl FnOnce(&mut Vec<TokenRecord>) -> Result<T, TokensError>,
) -> Result<T, TokensError> {
    // A link stays a link.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let _lock = lock(path).await?;
    let mut tokens = match list(path) {
        Err(TokensError::Missing { .. }) => Vec::new(),
        read => read?,
    };
    let answer = change(&mut tokens)?;
    if tokens.len() > MAX_TOKENS {
        return Err(TokensError::Full);
    }
    replace(path, tokens).map_err(|source| TokensError::Unwritable {
        path: path.to_owned(),
        source,
    })?;
    Ok(answer)
}

/// Held until it is dropped; the kernel lets go of it when the process ends.
async fn lock(path: &Path) -> Result<File, TokensError> {
    let unwritable = |source| TokensError::Unwritable {
        path: path.to_owned(),
        source,
    };
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        // Whoever may write to the directory is not to choose which file is made.
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(PathBuf::from(name))
        .map_err(unwritable)?;
    let end = Instant::now() + LOCK_LIMIT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if Instant::now() < end => sleep(LOCK_PAUSE).await,
            Err(TryLockError::WouldBlock) => {
                let path = path.to_owned();
                return Err(TokensError::Busy { path });
            }
            Err(TryLockError::Error(error)) => return Err(unwritable(error)),
        }
    }
}

/// Readable and writable for its owner only, who stays the same.
fn replace(path: &Path, tokens: Vec<TokenRecord>) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        Some(_) | None => Path::new("."),
    };
    let contents = Contents {
        version: VERSION,
        tokens,
    };
    let mut text = serde_json::to_vec_pretty(&contents)?;
    text.push(b'\n');
    // With the mode 0600.
    let mut file = tempfile::Builder::new()
        .prefix(".tokens-")
        .tempfile_in(directory)?;
    file.write_all(&text)?;
    if let Ok(before) = std::fs::metadata(path) {
        let ours = file.as_file().metadata()?;
        if (before.uid(), before.gid()) != (ours.uid(), ours.gid()) {
            fchown(file.as_file(), Some(before.uid()), Some(before.gid()))?;
        }
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests;
