//! `fumehood token create|list|revoke`: the tokens of `auth.tokens_file`. A daemon that runs
//! notices the change.
//!
//! A token is printed once, alone on standard output, and named by its key id everywhere else. No
//! argument ever holds one: other users can see arguments.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;

use super::{exit, report};
use crate::auth::{
    MAX_TOKENS, NewToken, Role, TokenRecord, TokenState, TokensError, key_of, list, update,
};
use crate::clock;
use crate::config::Config;
use crate::ids::{KeyId, TenantId};

/// How long tokens that are good no more stay in the list.
const KEPT: Duration = Duration::from_secs(90 * 86_400);

/// The longest name of a token, in characters.
const MAX_NAME: usize = 100;

/// Make, list or revoke the tokens of clients
#[derive(Debug, Subcommand)]
pub(super) enum Token {
    /// Make a token; it is printed once and kept nowhere
    Create(Create),
    /// List the tokens by their key ids
    List,
    /// Take a token back
    Revoke(Revoke),
}

#[derive(Debug, Args)]
pub(super) struct Create {
    /// Whose it is: `default`, or one of the tenants in the configuration
    #[arg(long, value_name = "NAME", default_value = "default")]
    tenant: String,
    /// What it allows
    #[arg(long, value_enum)]
    role: Role,
    /// How long it is good: a number with s, m, h or d, or `never`
    #[arg(long, value_name = "TIME", default_value = "90d")]
    expires: String,
    /// What people call it
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct Revoke {
    /// The key id, as `list` shows it: the 12 characters after `fh_`
    #[arg(value_name = "KEY-ID")]
    key: String,
}

/// Why a command cannot be carried out. Shows nothing that could be a token.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(
        "auth.tokens_file is not set: name a file in the configuration or in \
         FUMEHOOD_AUTH__TOKENS_FILE"
    )]
    NoFile,
    #[error("there is no tenant of that name: add [tenants.<name>] to the configuration")]
    NoTenant,
    #[error("--expires: write a number with s, m, h or d, such as 90d, or never")]
    Expiry,
    #[error("--name: has to be 1 to {MAX_NAME} printable characters")]
    Name,
    #[error("that is not a key id: `fumehood token list` shows them")]
    KeyId,
    #[error(
        "give the key id alone, the 12 characters after fh_: other users can see arguments, so \
         revoke this token now by its key id, {0}"
    )]
    WholeToken(KeyId),
    #[error("the token could not be printed, so that there is none: {0}")]
    Unprinted(#[source] io::Error),
    #[error(transparent)]
    Tokens(#[from] TokensError),
}

impl Token {
    pub(super) async fn execute(self, config: Config) -> ExitCode {
        let done = match self {
            Self::Create(create) => create.execute(&config).await,
            Self::List => match lines(&config) {
                Ok(lines) => return report::product(&lines, ExitCode::SUCCESS),
                Err(error) => Err(error),
            },
            Self::Revoke(revoke) => revoke.execute(&config).await,
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                report::error(&error);
                ExitCode::from(exit::CONFIG)
            }
        }
    }
}

fn tokens_file(config: &Config) -> Result<PathBuf, Refusal> {
    config.auth.tokens_file.clone().ok_or(Refusal::NoFile)
}

impl Create {
    async fn execute(self, config: &Config) -> Result<(), Refusal> {
        let path = tokens_file(config)?;
        let tenant = TenantId::parse(&self.tenant).filter(|id| config.tenant(id).is_some());
        let tenant = tenant.ok_or(Refusal::NoTenant)?;
        let now = clock::now();
        let expires_at = expiry(&self.expires, now)?;
        if self.name.as_deref().is_some_and(|name| !is_name(name)) {
            return Err(Refusal::Name);
        }
        let NewToken { key, text, digest } = NewToken::generate()?;
        let record = TokenRecord {
            key: key.clone(),
            tenant,
            role: self.role,
            name: self.name,
            sha256: digest,
            created_at: now,
            expires_at,
            revoked_at: None,
        };
        update(&path, |tokens| {
            tokens.retain(|token| is_kept(token, now));
            if tokens.len() >= MAX_TOKENS {
                return Err(TokensError::Full);
            }
            tokens.push(record);
            Ok(())
        })
        .await?;
        if let Err(source) = report::print(&format!("{}\n", text.expose())) {
            // Nobody has it, and nobody is to wonder whose it is.
            update(&path, |tokens| {
                tokens.retain(|token| token.key != key);
                Ok(())
            })
            .await?;
            return Err(Refusal::Unprinted(source));
        }
        let end = expires_at.map_or_else(|| "never".to_owned(), |end| end.to_string());
        report::note(&format!(
            "Keep it now, it is shown only once. Key id {key}, expires {end}."
        ));
        Ok(())
    }
}

impl Revoke {
    async fn execute(self, config: &Config) -> Result<(), Refusal> {
        let path = tokens_file(config)?;
        if let Some(key) = key_of(self.key.trim()) {
            return Err(Refusal::WholeToken(key));
        }
        let key = KeyId::parse(&self.key).ok_or(Refusal::KeyId)?;
        update(&path, |tokens| {
            let token = tokens.iter_mut().find(|token| token.key == key);
            let token = token.ok_or_else(|| TokensError::Unknown(key.clone()))?;
            // Once revoked it stays as it was.
            token.revoked_at.get_or_insert_with(clock::now);
            Ok(())
        })
        .await?;
        report::note(&format!("The token {key} is good no more."));
        Ok(())
    }
}

fn lines(config: &Config) -> Result<String, Refusal> {
    let tokens = list(&tokens_file(config)?)?;
    let now = clock::now();
    let head = ["KEY ID", "STATE", "ROLE", "TENANT", "EXPIRES", "NAME"].map(str::to_owned);
    let rows = tokens.iter().map(|token| row(token, now));
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths.max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..6).map(width).collect();
    let mut lines = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, &width)| format!("{cell:width$}  "))
            .collect();
        lines.push_str(line.trim_end());
        lines.push('\n');
    }
    Ok(lines)
}

fn row(token: &TokenRecord, now: Timestamp) -> [String; 6] {
    let TokenRecord {
        key,
        tenant,
        role,
        name,
        sha256: _,
        created_at: _,
        expires_at,
        revoked_at: _,
    } = token;
    let name = name.as_deref().unwrap_or_default();
    [
        key.to_string(),
        token.state(now).as_str().to_owned(),
        role.as_str().to_owned(),
        tenant.to_string(),
        expires_at.map_or_else(|| "never".to_owned(), |end| end.to_string()),
        report::harmless(name.as_bytes()),
    ]
}

/// When a token ends that is made now; `None`: never.
fn expiry(text: &str, now: Timestamp) -> Result<Option<Timestamp>, Refusal> {
    if text == "never" {
        return Ok(None);
    }
    let (number, unit) = text
        .char_indices()
        .last()
        .map(|(end, unit)| (&text[..end], unit))
        .ok_or(Refusal::Expiry)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(Refusal::Expiry),
    };
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = number
        .parse()
        .ok()
        .filter(|number| digits && *number > 0)
        .ok_or(Refusal::Expiry)?;
    let length = Duration::from_secs(number.saturating_mul(seconds));
    now.checked_add(length)
        .map(Some)
        .map_err(|_| Refusal::Expiry)
}

fn is_name(text: &str) -> bool {
    let count = text.chars().count();
    (1..=MAX_NAME).contains(&count) && !text.chars().any(char::is_control)
}

/// Whether a token is good, or was not long ago.
fn is_kept(token: &TokenRecord, now: Timestamp) -> bool {
    if token.state(now) == TokenState::Active {
        return true;
    }
    let ended = token.ended_at(now).unwrap_or(now);
    let seconds = now.as_second().saturating_sub(ended.as_second());
    u64::try_from(seconds).is_ok_and(|seconds| seconds < KEPT.as_secs()) || seconds < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_time_is_a_number_with_a_unit() {
        for (text, seconds) in [("1s", 1), ("2m", 120), ("3h", 10_800), ("90d", 7_776_000)] {
            assert_eq!(expiry(text, at(10)).unwrap(), Some(at(10 + seconds)));
        }
        assert_eq!(expiry("never", at(10)).unwrap(), None);
        for text in [
            "",
            "d",
            "0d",
            "-1d",
            "+1d",
            "1",
            "1w",
            "1.5h",
            "1é",
            "99999999999999999999d",
        ] {
            assert!(expiry(text, at(10)).is_err(), "{text}");
        }
        assert!(expiry("18446744073709551615d", at(10)).is_err());
    }

    #[test]
    fn tokens_that_ended_long_ago_make_room() {
        let token = NewToken::generate().unwrap();
        let mut record = TokenRecord {
            key: token.key,
            tenant: TenantId::default(),
            role: Role::Read,
            name: None,
            sha256: token.digest,
            created_at: at(0),
            expires_at: Some(at(100)),
            revoked_at: None,
        };
        let kept = i64::try_from(KEPT.as_secs()).unwrap();
        assert!(is_kept(&record, at(99)));
        assert!(is_kept(&record, at(99 + kept)));
        assert!(!is_kept(&record, at(100 + kept)));
        record.revoked_at = Some(at(50));
        assert!(is_kept(&record, at(49 + kept)));
        assert!(!is_kept(&record, at(50 + kept)));
        record.expires_at = None;
        record.revoked_at = None;
        assert!(is_kept(&record, at(1 << 34)));
    }

    #[test]
    fn nothing_that_could_be_a_token_is_said_again() {
        let token = NewToken::generate().unwrap();
        let whole = Refusal::WholeToken(token.key.clone()).to_string();
        assert!(whole.contains(token.key.as_str()));
        assert!(!whole.contains(token.text.expose()));
    }
}
