//! The seal and the chain: each receipt has a running number and the hash of the one before it, and
//! is signed as it stands.
//!
//! A receipt is one line of text, `{"signature":"…","statement":{…}}`, in canonical form. The
//! signature is over a prefix of its own and the statement's text, byte for byte as it stands there.
//! What takes long, and what does not depend on the chain, is in the [`Draft`], made before anybody
//! waits; [`Notary::seal`] is fast enough for the middle of a transaction. Pure: the store keeps the
//! chain.

use serde_json::json;

use super::canonical::canonical;
use super::document::{self, Account, Issuer};
use super::key::{PublicKey, ReceiptKey};
use crate::digest::Domain;
use crate::ids::{ExecutionId, InstanceId, RunId};

/// What stands before the signature.
pub(super) const BEFORE_SIGNATURE: &str = r#"{"signature":""#;

/// What stands between the signature and the statement.
pub(super) const BEFORE_STATEMENT: &str = r#"","statement":"#;

/// What stands after the statement.
pub(super) const END: &str = "}";

/// Makes receipts in the name of one daemon.
#[derive(Debug)]
pub struct Notary {
    key: ReceiptKey,
    public_key: String,
    instance: InstanceId,
}

/// The last receipt of a chain, as the next one refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its number, from 1.
    pub number: i64,
    /// The hash over all of it, see [`link`].
    pub link: String,
}

/// A receipt that lacks its place in the chain only.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The execution that it is about.
    pub execution: ExecutionId,
    /// The execution's run.
    pub run: RunId,
    /// The canonical statement from its second key on.
    rest: String,
}

/// A receipt, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// Its place in the chain, for the next one.
    pub head: Head,
    /// Its text: these bytes and no others.
    pub text: String,
}

impl Notary {
    /// A notary of the daemon `instance` that signs with `key`.
    #[must_use]
    pub fn new(key: ReceiptKey, instance: InstanceId) -> Self {
        Self {
            public_key: key.public().to_string(),
            key,
            instance,
        }
    }

    /// What its signatures are checked with.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.key.public()
    }

    /// The daemon whose receipts it makes.
    #[must_use]
    pub fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// The receipt of an execution, but for its place in the chain.
    ///
    /// # Errors
    ///
    /// Only for a value that JSON does not have, which there is none of.
    pub fn draft(&self, account: &Account<'_>) -> Result<Draft, serde_json::Error> {
        let issuer = Issuer {
            instance: &self.instance,
            public_key: &self.public_key,
        };
        let statement = canonical(&document::statement(account, issuer)?);
        Ok(Draft {
            execution: account.execution.clone(),
            run: account.run,
            rest: statement.strip_prefix('{').unwrap_or_default().to_owned(),
        })
    }

    /// Gives a draft its place after `last`, or the first one, and signs it.
    #[must_use]
    pub fn seal(&self, draft: &Draft, last: Option<&Head>) -> Sealed {
        let number = last.map_or(1, |last| last.number.saturating_add(1));
        let previous = last.map(|last| last.link.as_str());
        let chain = canonical(&json!({ "number": number, "previous": previous }));
        let statement = format!(r#"{{"chain":{chain},{}"#, draft.rest);
        let signature = self.key.sign(&message(&statement));
        let text = format!("{BEFORE_SIGNATURE}{signature}{BEFORE_STATEMENT}{statement}{END}");
        Sealed {
            head: Head {
                number,
                link: link(&text),
            },
            text,
        }
    }
}

/// What the signature of a statement is over.
pub(super) fn message(statement: &str) -> Vec<u8> {
    [Domain::Signature.prefix(), statement]
        .concat()
        .into_bytes()
}

/// The hash by which a receipt is named in the one after it: over its whole text.
#[must_use]
pub fn link(receipt: &str) -> String {
    Domain::Link.digest([receipt])
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::receipt::testing::{chain_of, notary};

    #[test]
    fn a_chain_counts_from_one_and_each_receipt_names_the_one_before() {
        let notary = notary();
        let chain = chain_of(&notary, 4);
        let mut previous = Value::Null;
        for (receipt, number) in chain.iter().zip(1i64..) {
            let document: Value = serde_json::from_str(&receipt.text).unwrap();
            let place = &document["statement"]["chain"];
            assert_eq!(*place, json!({ "number": number, "previous": previous }));
            assert_eq!(receipt.head.number, number);
            assert_eq!(receipt.head.link, link(&receipt.text));
            previous = receipt.head.link.as_str().into();
        }
    }

    #[test]
    fn what_is_put_together_is_canonical() {
        for receipt in chain_of(&notary(), 2) {
            let document: Value = serde_json::from_str(&receipt.text).unwrap();
            assert_eq!(canonical(&document), receipt.text);
        }
    }

    #[test]
    fn the_same_facts_in_the_same_place_are_the_same_receipt() {
        let (notary, chain) = (notary(), chain_of(&notary(), 2));
        assert_eq!(chain, chain_of(&notary, 2));
        assert_ne!(chain[0].text, chain[1].text);
    }
}
