//! The check of receipts: form, signature, chain. Pure, offline, and says precisely what is wrong.
//!
//! Receipts come from anybody: nothing in one is believed before its signature was checked, its texts
//! are shown escaped, and of what is in it no more is kept than is needed: a value for each of its
//! brackets would take many times its size. Whose key it is, only the one who asks can know.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::canonical::{self, Flaw};
use super::chain::{self, BEFORE_SIGNATURE, BEFORE_STATEMENT, END};
use super::document::{SCHEMA, SCHEMA_VERSION};
use super::evidence::HashedFile;
use super::key::PublicKey;
use super::problem::Problem;

/// Digits of a signature.
const SIGNATURE_DIGITS: usize = 128;

/// The longest text that is a receipt, in bytes: no execution leaves more files than fit into it
/// ([`MAX_ARTIFACT_FILES`](crate::execution::spec::MAX_ARTIFACT_FILES)), and anybody's can be
/// checked in bounded memory.
pub const MAX_RECEIPT_BYTES: u64 = 64 << 20;

/// A receipt whose signature fits.
#[derive(Debug, Clone)]
pub struct Receipt {
    text: String,
    key: PublicKey,
    statement: Statement,
}

/// What kind of document a statement is.
#[derive(Deserialize)]
struct Kind {
    schema: String,
    schema_version: u64,
}

/// Who made it.
#[derive(Deserialize)]
struct Issued {
    daemon: Issuer,
}

#[derive(Deserialize)]
struct Issuer {
    public_key: String,
}

/// What is read of a statement; everything else in it is covered by the signature all the same.
#[derive(Debug, Clone, Deserialize)]
struct Statement {
    chain: Chain,
    daemon: Daemon,
    execution: Execution,
    inputs: Option<Inputs>,
    outcome: Outcome,
}

#[derive(Debug, Clone, Deserialize)]
struct Chain {
    number: i64,
    previous: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Daemon {
    instance: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Execution {
    id: String,
    run_id: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Inputs {
    setup_script: Option<HashedFile>,
}

#[derive(Debug, Clone, Deserialize)]
struct Outcome {
    artifacts: Vec<HashedFile>,
    status: String,
}

impl Receipt {
    /// Reads a receipt and checks its signature with the key that it names. One line end after it is
    /// not counted: many programs add one.
    ///
    /// # Errors
    ///
    /// The first [`Problem`] found: what is behind it cannot be believed.
    pub fn open(bytes: &[u8]) -> Result<Self, Problem> {
        let text = std::str::from_utf8(bytes).map_err(|_| Problem::Form("not UTF-8"))?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let (signature, statement) = parts(text)?;
        canonical::check(statement).map_err(|flaw| match flaw {
            Flaw::Depth => Problem::Form("nested too deep"),
            Flaw::Spelling => match serde_json::from_str::<IgnoredAny>(statement) {
                Ok(IgnoredAny) => Problem::NotCanonical,
                Err(_) => Problem::Form("not JSON"),
            },
        })?;
        check_schema(statement)?;
        let keyless = Problem::Form("it names no public key");
        let key = serde_json::from_str(statement).map_err(|_| keyless.clone());
        let Issued { daemon: issuer } = key?;
        let key: PublicKey = issuer.public_key.parse().map_err(|_| keyless)?;
        if !key.has_signed(&chain::message(statement), signature) {
            return Err(Problem::Signature { key });
        }
        let incomplete = |_| Problem::Form("the statement lacks something");
        let receipt = Self {
            text: text.to_owned(),
            key,
            statement: serde_json::from_str(statement).map_err(incomplete)?,
        };
        let Chain { number, previous } = &receipt.statement.chain;
        if *number < 1 || (*number == 1) != previous.is_none() {
            return Err(Problem::Start(*number));
        }
        Ok(receipt)
    }

    /// Whether one of these keys signed it.
    ///
    /// # Errors
    ///
    /// [`Problem::OtherKey`]
    pub fn signed_with(&self, expected: &[PublicKey]) -> Result<(), Problem> {
        if expected.contains(&self.key) {
            return Ok(());
        }
        Err(Problem::OtherKey {
            found: self.key,
            expected: expected.to_vec(),
        })
    }

    /// What speaks against `previous` being the receipt right before this one; nothing if it is.
    #[must_use]
    pub fn follows(&self, previous: &Self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let (this, before) = (&self.statement, &previous.statement);
        if this.daemon.instance != before.daemon.instance {
            problems.push(Problem::OtherDaemon {
                this: this.daemon.instance.clone(),
                previous: before.daemon.instance.clone(),
            });
        }
        if self.key != previous.key {
            problems.push(Problem::KeyReplaced {
                previous: previous.key,
            });
        }
        let number = this.chain.number;
        if before.chain.number.checked_add(1) != Some(number) {
            problems.push(Problem::Number {
                number,
                previous: before.chain.number,
            });
        }
        let found = chain::link(&previous.text);
        if this.chain.previous.as_ref() != Some(&found) {
            problems.push(Problem::Link {
                expected: this.chain.previous.clone().unwrap_or_default(),
                found,
            });
        }
        problems
    }

    /// The very text that was signed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The key that signed it.
    #[must_use]
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Its number in the chain.
    #[must_use]
    pub fn number(&self) -> i64 {
        self.statement.chain.number
    }

    /// The daemon that made it.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.statement.daemon.instance
    }

    /// The execution that it is about.
    #[must_use]
    pub fn execution(&self) -> &str {
        &self.statement.execution.id
    }

    /// The execution's run.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.statement.execution.run_id
    }

    /// How the execution ended.
    #[must_use]
    pub fn status(&self) -> &str {
        &self.statement.outcome.status
    }

    /// The files that the execution left.
    #[must_use]
    pub fn artifacts(&self) -> &[HashedFile] {
        &self.statement.outcome.artifacts
    }

    /// The script that may lie beside them.
    #[must_use]
    pub fn setup_script(&self) -> Option<&HashedFile> {
        let inputs = self.statement.inputs.as_ref()?;
        inputs.setup_script.as_ref()
    }
}

/// Signature and statement, byte for byte as they stand.
fn parts(text: &str) -> Result<(&str, &str), Problem> {
    const ODD: Problem = Problem::Form("it is not {\"signature\":…,\"statement\":…}");
    let rest = text.strip_prefix(BEFORE_SIGNATURE).ok_or(ODD)?;
    let (signature, rest) = rest.split_at_checked(SIGNATURE_DIGITS).ok_or(ODD)?;
    let statement = rest.strip_prefix(BEFORE_STATEMENT).ok_or(ODD)?;
    let statement = statement.strip_suffix(END).ok_or(ODD)?;
    Ok((signature, statement))
}

fn check_schema(statement: &str) -> Result<(), Problem> {
    /// Of a name that is another's, no more is shown.
    const SHOWN: usize = 100;
    let Ok(Kind {
        schema,
        schema_version: version,
    }) = serde_json::from_str(statement)
    else {
        let unknown = || "?".to_owned();
        return Err(Problem::OtherSchema {
            schema: unknown(),
            version: unknown(),
        });
    };
    if schema == SCHEMA && version == u64::from(SCHEMA_VERSION) {
        return Ok(());
    }
    Err(Problem::OtherSchema {
        schema: schema.chars().take(SHOWN).collect(),
        version: version.to_string(),
    })
}

#[cfg(test)]
mod tests;
