//! Tokens: who may use the interface, for which tenant, in which role.
//!
//! Owns what a token is, the file of tokens, and the one check of what a client sent. Knows neither
//! HTTP nor runs: it is asked with a text and answers with an [`Identity`] or with nothing that
//! would tell why not. A token is shown once, when it is made; what is kept is its SHA-256.

mod role;

mod token;

mod file;

mod keyring;

pub use crate::secret::Secret;
pub use file::{MAX_TOKENS, Reason, TokenRecord, TokenState, TokensError, list, update};
pub use keyring::{AuthError, Identity, Keyring};
pub use role::Role;
pub use token::{Digest, NewToken, NotADigest, key_of};
