//! The tokens that a daemon admits, and the one check of what a client sent.
//!
//! Notices a changed file by itself. A file that cannot be used admits nobody, because a token that
//! was revoked in it would otherwise be good for ever; that is told as a failure of the daemon's,
//! never as one of the token's.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::file::{self, Stamp, TokenRecord, TokenState, TokensError};
use super::role::Role;
use super::token::{Digest, Presented};
use crate::ids::{KeyId, TenantId};
use crate::telemetry::Chain;

/// How often the file is looked at.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// For whom.
    pub tenant: TenantId,
    /// With what right.
    pub role: Role,
    /// The public part of the token.
    pub key: KeyId,
}

/// Why nobody was recognised. Never tells what is wrong with a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Nothing was sent that is good.
    #[error("a valid token is needed")]
    Refused,
    /// The file of tokens cannot be used.
    #[error("the tokens file cannot be used, see the daemon's log")]
    Unavailable,
}

/// The tokens.
#[derive(Debug)]
pub struct Keyring {
    path: PathBuf,
    loaded: RwLock<Loaded>,
}

#[derive(Debug, Clone)]
struct Loaded {
    /// What the file looked like when it was read; `None` if it could not be.
    stamp: Option<Stamp>,
    tokens: Option<Arc<Tokens>>,
}

#[derive(Debug)]
struct Tokens(HashMap<KeyId, TokenRecord>);

impl Keyring {
    /// Reads the tokens for the first time. Blocks.
    ///
    /// # Errors
    ///
    /// [`TokensError`] if the file is not there or cannot be used.
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        let loaded = read(path)?;
        Ok(Self {
            path: path.to_owned(),
            loaded: RwLock::new(loaded),
        })
    }

    /// Who sent this text. Whatever was sent, or nothing, the same work is done.
    ///
    /// # Errors
    ///
    /// [`AuthError`], without a reason.
    pub fn recognise(&self, sent: Option<&str>, now: Timestamp) -> Result<Identity, AuthError> {
        let presented = Presented::read(sent);
        let tokens = self.loaded().tokens.ok_or(AuthError::Unavailable)?;
        tokens.find(&presented, now).ok_or(AuthError::Refused)
    }

    /// Whether a token that was recognised before is still good, with the same rights.
    ///
    /// # Errors
    ///
    /// [`AuthError`], without a reason.
    pub fn confirm(&self, identity: &Identity, now: Timestamp) -> Result<(), AuthError> {
        let tokens = self.loaded().tokens.ok_or(AuthError::Unavailable)?;
        let record = tokens.0.get(&identity.key);
        let is_as_it_was = record.is_some_and(|record| {
            record.state(now) == TokenState::Active
                && record.tenant == identity.tenant
                && record.role == identity.role
        });
        if is_as_it_was {
            Ok(())
        } else {
            Err(AuthError::Refused)
        }
    }

    /// Reads the tokens again if the file has changed. Blocks.
    pub fn refresh(&self) {
        let before = self.loaded();
        if Stamp::of(&self.path) == before.stamp {
            return;
        }
        let loaded = match read(&self.path) {
            Ok(loaded) => {
                tracing::info!(tokens = loaded.count(), "The tokens file was read");
                loaded
            }
            Err(error) => {
                // Tried again and again, told once.
                if before.tokens.is_some() {
                    tracing::error!(
                        error = %Chain(&error),
                        "The tokens file cannot be used: nobody is admitted until it can"
                    );
                }
                Loaded {
                    stamp: None,
                    tokens: None,
                }
            }
        };
        // Whole even if a thread panicked while it had it: it is replaced in one step.
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = loaded;
    }

    /// Follows the changes of the file until `shutdown` is cancelled.
    pub async fn follow(self: Arc<Self>, shutdown: CancellationToken) {
        while shutdown
            .run_until_cancelled(sleep(LOOK_PAUSE))
            .await
            .is_some()
        {
            let keyring = Arc::clone(&self);
            if let Err(error) = spawn_blocking(move || keyring.refresh()).await {
                tracing::error!(%error, "The tokens file could not be looked at");
            }
        }
    }

    fn loaded(&self) -> Loaded {
        let loaded = self.loaded.read().unwrap_or_else(PoisonError::into_inner);
        loaded.clone()
    }
}

/// The tokens of a file that nobody else can add any to. An operator who makes or revokes one may be
/// another user than the daemon; who admits clients by the file may not believe everybody's.
fn read(path: &Path) -> Result<Loaded, TokensError> {
    let (tokens, stamp) = file::load(path)?;
    let ours = rustix::process::geteuid().as_raw();
    if is_foreign(stamp.owner, ours) {
        let (path, owner) = (path.to_owned(), stamp.owner);
        return Err(TokensError::Foreign { path, owner });
    }
    Ok(Loaded::from((tokens, stamp)))
}

/// Whether a file of `owner` is another's than this process's or root's, who can do everything anyway.
fn is_foreign(owner: u32, ours: u32) -> bool {
    owner != ours && owner != 0
}

impl Loaded {
    fn count(&self) -> usize {
        self.tokens.as_ref().map_or(0, |tokens| tokens.0.len())
    }
}

impl From<(Vec<TokenRecord>, Stamp)> for Loaded {
    fn from((records, stamp): (Vec<TokenRecord>, Stamp)) -> Self {
        let keyed = records.into_iter().map(|token| (token.key.clone(), token));
        Self {
            stamp: Some(stamp),
            tokens: Some(Arc::new(Tokens(keyed.collect()))),
        }
    }
}

impl Tokens {
    /// Looks up, compares and asks for the state in every case.
    fn find(&self, presented: &Presented, now: Timestamp) -> Option<Identity> {
        let record = presented.key.as_ref().and_then(|key| self.0.get(key));
        let expected = record.map_or(&Digest::NONE, |record| &record.sha256);
        let is_same = bool::from(expected.is(&presented.digest));
        let is_good = record.is_some_and(|record| record.state(now) == TokenState::Active);
        let record = record.filter(|_| is_same && is_good)?;
        Some(Identity {
            tenant: record.tenant.clone(),
            role: record.role,
            key: record.key.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::token::work;
    use crate::auth::{NewToken, update};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    async fn added(path: &Path, tenant: &str, role: Role) -> NewToken {
        let token = NewToken::generate().unwrap();
        let record = TokenRecord {
            key: token.key.clone(),
            tenant: TenantId::parse(tenant).unwrap(),
            role,
            name: None,
            sha256: token.digest,
            created_at: at(1),
            expires_at: Some(at(100)),
            revoked_at: None,
        };
        let adding = update(path, |tokens| {
            tokens.push(record);
            Ok(())
        });
        adding.await.unwrap();
        token
    }

    #[tokio::test]
    async fn the_tokens_of_another_user_admit_nobody() {
        assert!(!is_foreign(1000, 1000) && !is_foreign(0, 1000) && !is_foreign(0, 0));
        assert!(is_foreign(1001, 1000) && is_foreign(1000, 0));
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: the rest needs root");
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let alice = added(&path, "alice", Role::Read).await;
        let keyring = Keyring::open(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(1234), None).unwrap();
        let refused = Keyring::open(&path).unwrap_err();
        assert!(
            matches!(refused, TokensError::Foreign { owner: 1234, .. }),
            "{refused}"
        );
        keyring.refresh();
        let answer = keyring.recognise(Some(alice.text.expose()), at(2));
        assert_eq!(answer, Err(AuthError::Unavailable));
        // Its operator can still make and revoke tokens.
        added(&path, "alice", Role::Read).await;
    }

    #[tokio::test]
    async fn a_token_is_its_tenants_and_nothing_else_is_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let alice = added(&path, "alice", Role::Read).await;
        let bob = added(&path, "bob", Role::Admin).await;
        let keyring = Keyring::open(&path).unwrap();
        let found = keyring.recognise(Some(alice.text.expose()), at(2)).unwrap();
        assert_eq!((found.tenant.as_str(), found.role), ("alice", Role::Read));
        let found = keyring.recognise(Some(bob.text.expose()), at(2)).unwrap();
        assert_eq!((found.tenant.as_str(), found.key), ("bob", bob.key.clone()));
        // The key id of one and the secret of the other.
        let mixed = format!("{}{}", &alice.text.expose()[..16], &bob.text.expose()[16..]);
        let unknown = NewToken::generate().unwrap();
        for (sent, now) in [
            (None, 2),
            (Some(""), 2),
            (Some(mixed.as_str()), 2),
            (Some(unknown.text.expose()), 2),
            (Some(alice.text.expose()), 100),
        ] {
            assert_eq!(keyring.recognise(sent, at(now)), Err(AuthError::Refused));
        }
        let shown = format!("{keyring:?}");
        assert!(!shown.contains(alice.text.expose()), "{shown}");
    }

    /// Time is no matter of tests; the work that takes it is. What was sent may be nothing, nonsense,
    /// unknown, wrong, over, taken back, or good.
    #[tokio::test]
    async fn the_same_work_is_done_whatever_was_sent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let alice = added(&path, "alice", Role::Read).await;
        let revoked = added(&path, "alice", Role::Read).await;
        let revoking = update(&path, |tokens| {
            tokens[1].revoked_at = Some(at(1));
            Ok(())
        });
        revoking.await.unwrap();
        let keyring = Keyring::open(&path).unwrap();
        let unknown = NewToken::generate().unwrap();
        let good = alice.text.expose();
        let wrong_in_the_end = format!("{}x", &good[..good.len() - 1]);
        let wrong_in_the_end = wrong_in_the_end.replace('x', "0");
        let forged = format!("{}{}", &good[..16], &unknown.text.expose()[16..]);
        let mut seen = Vec::new();
        for (sent, now) in [
            (None, 2),
            (Some(""), 2),
            (Some("nonsense"), 2),
            (Some(good.to_uppercase().as_str()), 2),
            (Some(unknown.text.expose()), 2),
            (Some(forged.as_str()), 2),
            (Some(wrong_in_the_end.as_str()), 2),
            (Some(good), 100),
            (Some(revoked.text.expose()), 2),
            (Some(good), 2),
        ] {
            work::take();
            let answer = keyring.recognise(sent, at(now));
            assert_eq!(answer.is_ok(), sent == Some(good) && now == 2, "{sent:?}");
            seen.push(work::take());
        }
        // One text of a token's length is hashed, and one whole digest is compared.
        let once = work::Work {
            hashed_bytes: good.len(),
            compared_bytes: 32,
        };
        assert_eq!(seen, vec![once; 10]);
    }

    #[tokio::test]
    async fn a_changed_file_is_noticed_and_an_unusable_one_admits_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        let first = added(&path, "alice", Role::Read).await;
        let keyring = Keyring::open(&path).unwrap();
        let good = |token: &NewToken| keyring.recognise(Some(token.text.expose()), at(2)).is_ok();
        let identity = keyring.recognise(Some(first.text.expose()), at(2)).unwrap();
        assert_eq!(keyring.confirm(&identity, at(99)), Ok(()));
        assert_eq!(keyring.confirm(&identity, at(100)), Err(AuthError::Refused));
        let promoted = Identity {
            role: Role::Admin,
            ..identity.clone()
        };
        assert_eq!(keyring.confirm(&promoted, at(2)), Err(AuthError::Refused));
        let second = added(&path, "alice", Role::Read).await;
        assert!(good(&first) && !good(&second));
        keyring.refresh();
        assert!(good(&first) && good(&second));
        let revoking = update(&path, |tokens| {
            tokens[0].revoked_at = Some(at(1));
            Ok(())
        });
        revoking.await.unwrap();
        keyring.refresh();
        assert!(!good(&first) && good(&second));
        assert_eq!(keyring.confirm(&identity, at(2)), Err(AuthError::Refused));

        let sound = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for _ in 0..2 {
            keyring.refresh();
            let sent = Some(second.text.expose());
            let answer = keyring.recognise(sent, at(2));
            assert_eq!(answer, Err(AuthError::Unavailable));
            assert_eq!(keyring.recognise(None, at(2)), Err(AuthError::Unavailable));
            let answer = keyring.confirm(&identity, at(2));
            assert_eq!(answer, Err(AuthError::Unavailable));
        }
        std::fs::write(&path, sound).unwrap();
        let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, owner_only).unwrap();
        keyring.refresh();
        assert!(good(&second));
    }
}
