//! What can be wrong with a receipt, with its chain, or with the files that belong to it: under which
//! name, and in which words. Texts of a receipt are shown escaped: they are anybody's.

use super::document::{SCHEMA, SCHEMA_VERSION};
use super::key::PublicKey;

/// What is wrong with a receipt, with its place in the chain, or with the files that belong to it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It does not look like a receipt.
    #[error("form: it is no receipt ({0})")]
    Form(&'static str),
    /// It has another spelling than the one that was signed.
    #[error(
        "form: it is not in canonical form, so that it was changed or written by something else"
    )]
    NotCanonical,
    /// It is of another kind or version.
    #[error(
        "form: it is a document of the kind {} version {version}; this program knows {} version {}",
        .schema.escape_debug(), SCHEMA, SCHEMA_VERSION
    )]
    OtherSchema {
        /// What it says it is.
        schema: String,
        /// Its version.
        version: String,
    },
    /// Something in it was changed, or it is another's.
    #[error(
        "signature: it does not fit the statement, so that the receipt was changed after it was \
         signed, or never signed with the key {key}"
    )]
    Signature {
        /// The key that the receipt names.
        key: PublicKey,
    },
    /// It is another's.
    #[error("signature: it was signed with the key {found}, not with {}", either(.expected))]
    OtherKey {
        /// The key that the receipt names.
        found: PublicKey,
        /// Those of which one was to have signed it.
        expected: Vec<PublicKey>,
    },
    /// Only the first receipt of a chain has none before it.
    #[error(
        "chain: receipt {0} cannot stand where it says: the first, and no other, has none before it"
    )]
    Start(i64),
    /// The two are of different daemons.
    #[error(
        "chain: the receipt before is of the daemon {}, this one of {}",
        .previous.escape_debug(), .this.escape_debug()
    )]
    OtherDaemon {
        /// Of this receipt.
        this: String,
        /// Of the one before.
        previous: String,
    },
    /// The key was replaced in between.
    #[error("chain: the receipt before was signed with another key, {previous}")]
    KeyReplaced {
        /// Of the receipt before.
        previous: PublicKey,
    },
    /// Receipts are missing in between, or the order is wrong.
    #[error(
        "chain: receipt {number} comes after receipt {}, not after receipt {previous}",
        .number - 1
    )]
    Number {
        /// Of this receipt.
        number: i64,
        /// Of the one before.
        previous: i64,
    },
    /// The receipt before is another than the one that was there when this one was made.
    #[error(
        "chain: it was chained to the receipt with the hash {}, not to the given one, whose hash is \
         {found}",
        .expected.escape_debug()
    )]
    Link {
        /// What this receipt says.
        expected: String,
        /// What the receipt before has.
        found: String,
    },
    /// What came after is gone.
    #[error(
        "chain: it ends with receipt {last}, but receipt {kept} was kept: those after receipt {last} \
         were cut off"
    )]
    CutOff {
        /// The number of the last one given.
        last: i64,
        /// The number of the one that was kept elsewhere.
        kept: i64,
    },
    /// A receipt that was kept does not belong to it.
    #[error(
        "chain: receipt {0} is another one than the receipt {0} that was kept, so that one of the two \
         chains was written anew"
    )]
    Rewritten(i64),
    /// What was given begins too late to say anything of a receipt that was kept.
    #[error("chain: it begins with receipt {first}, after receipt {kept}, which was kept")]
    BeginsLate {
        /// The number of the first one given.
        first: i64,
        /// The number of the one that was kept elsewhere.
        kept: i64,
    },
    /// There is too much in a directory for that of an execution.
    #[error("artifacts: more than {0} files and directories are there, which were not compared")]
    TooManyFiles(usize),
    /// A file of the execution is not there.
    #[error("artifact {}: it is missing", .0.escape_debug())]
    Missing(String),
    /// A file that the execution did not leave.
    #[error("artifact {}: the receipt has no such file", .0.escape_debug())]
    Extra(String),
    /// Something else has the name.
    #[error("artifact {}: it is no regular file", .0.escape_debug())]
    Kind(String),
    /// A file is longer or shorter.
    #[error("artifact {}: it has {found} bytes, not {expected}", .path.escape_debug())]
    Size {
        /// Which.
        path: String,
        /// In the receipt.
        expected: u64,
        /// On the disk.
        found: u64,
    },
    /// A file has the right size and other bytes.
    #[error(
        "artifact {}: its SHA-256 is {found}, not {}",
        .path.escape_debug(), .expected.escape_debug()
    )]
    Content {
        /// Which.
        path: String,
        /// In the receipt.
        expected: String,
        /// On the disk.
        found: String,
    },
}

fn either(keys: &[PublicKey]) -> String {
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    keys.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_receipt_cannot_change_a_terminal_or_the_order_of_a_line() {
        for hostile in [
            "a\x1b[31m",
            "a\u{202e}b",
            "a\nb",
            "a\u{9b}31m",
            "a\u{200b}b",
        ] {
            let text = Problem::Missing(hostile.to_owned()).to_string();
            assert!(!text.contains(&hostile[1..]), "{text:?}");
            assert!(!text.contains(char::is_control), "{text:?}");
        }
    }
}
