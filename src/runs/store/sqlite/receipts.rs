//! Receipts in the store: each gets its place in the chain in the very transaction that records the
//! end of its execution. So there is one for each execution, exactly as durable as its result, and
//! the chain has neither a gap nor a fork, whatever fails and whenever the daemon dies.
//!
//! The head of the chain is read from the table each time and kept nowhere else: what an operation
//! added that was rolled back is not there for the next one.

use rusqlite::params;

use super::access::Access;
use super::batch::Batch;
use super::rows::column;
use super::statements;
use crate::ids::{ExecutionId, RunId};
use crate::receipt::chain::link;
use crate::receipt::document::Known;
use crate::receipt::key::PublicKey;
use crate::receipt::problem::Problem;
use crate::receipt::{Account, Draft, Head, Notary, Receipt, Sealed};
use crate::runs::record::{Episode, RecordedEpisode};
use crate::runs::store::StoreError;

/// The receipt of a recorded episode, but for its place: made before the writer's turn.
pub(super) fn draft(recorded: &RecordedEpisode, notary: &Notary) -> Result<Draft, StoreError> {
    let RecordedEpisode {
        episode, evidence, ..
    } = recorded;
    let Episode {
        run_id,
        iteration,
        execution,
        code_sha256,
        code_bytes,
        ..
    } = episode;
    let account = Account {
        run: *run_id,
        execution: &execution.execution_id,
        known: Known::Ended {
            iteration: *iteration,
            code_sha256,
            code_bytes: *code_bytes,
            result: execution,
            evidence,
        },
    };
    notary.draft(&account).map_err(StoreError::Unreadable)
}

/// The receipt of an execution of which nothing is known.
pub(super) fn lost(
    run: RunId,
    execution: &ExecutionId,
    notary: &Notary,
) -> Result<Draft, StoreError> {
    let account = Account {
        run,
        execution,
        known: Known::Lost,
    };
    notary.draft(&account).map_err(StoreError::Unreadable)
}

/// Gives a receipt its place at the end of the chain and keeps it.
pub(super) fn append(
    batch: &Batch<'_>,
    access: Access<'_>,
    draft: &Draft,
) -> Result<(), StoreError> {
    let last = access.first(statements::CHAIN_HEAD, params![], |row| {
        Ok(Head {
            number: column(row, "number")?,
            link: column(row, "link")?,
        })
    })?;
    let Sealed { head, text } = batch.notary().seal(draft, last.as_ref());
    let run = draft.run.to_string();
    let row = params![head.number, draft.execution.as_str(), run, head.link, text];
    access.execute(statements::INSERT_RECEIPT, row).map(drop)
}

/// The receipt of an execution of this run, or of its last one.
pub(super) fn find(
    access: Access<'_>,
    run: RunId,
    execution: Option<&ExecutionId>,
) -> Result<Option<String>, StoreError> {
    let run = run.to_string();
    match execution {
        Some(execution) => {
            let by = params![execution.as_str(), run];
            access.first(statements::RECEIPT_OF, by, |row| column(row, "receipt"))
        }
        None => access.first(statements::RECEIPT, params![run], |row| {
            column(row, "receipt")
        }),
    }
}

/// How the end of a chain fits the key that is to go on with it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It goes on, or begins.
    Sound,
    /// The receipts so far were signed with another key.
    KeyReplaced { number: i64, previous: PublicKey },
    /// The last receipt is not the one that was signed.
    Changed { number: i64, problem: Problem },
    /// The next receipt would name another one than the last.
    Unlinked { number: i64 },
}

/// Looks at the end of the chain.
pub(super) fn standing(access: Access<'_>, key: PublicKey) -> Result<Standing, StoreError> {
    let last = access.first(statements::LAST_RECEIPT, params![], |row| {
        Ok((
            column::<i64>(row, "number")?,
            column::<String>(row, "link")?,
            column::<String>(row, "receipt")?,
        ))
    })?;
    let Some((number, expected, text)) = last else {
        return Ok(Standing::Sound);
    };
    Ok(match Receipt::open(text.as_bytes()) {
        Err(problem) => Standing::Changed { number, problem },
        Ok(_) if link(&text) != expected => Standing::Unlinked { number },
        Ok(receipt) if receipt.number() != number => Standing::Unlinked { number },
        Ok(receipt) if *receipt.key() != key => Standing::KeyReplaced {
            number,
            previous: *receipt.key(),
        },
        Ok(_) => Standing::Sound,
    })
}

impl Standing {
    /// Says it in the log, if somebody has to know.
    pub(super) fn tell(&self) {
        match self {
            Self::Sound => {}
            Self::KeyReplaced { number, previous } => tracing::warn!(
                receipt.number = number,
                receipt.previous_key = %previous,
                "The receipts so far were signed with another key, which is lost or was replaced: \
                 restore the file receipt-key if it was not meant, and publish the new key if it was"
            ),
            Self::Changed { number, problem } => tracing::error!(
                receipt.number = number,
                %problem,
                "The last receipt in the store was changed after it was signed: compare the store with \
                 a backup; the chain goes on behind it"
            ),
            Self::Unlinked { number } => tracing::error!(
                receipt.number = number,
                "The store names another end of the chain of receipts than its last one: compare it \
                 with a backup; the chain is broken here"
            ),
        }
    }
}
