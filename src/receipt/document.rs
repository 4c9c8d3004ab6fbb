//! The statement of a receipt: which facts it has, under which names.
//!
//! A pure translation from what is known. The shape is version [`SCHEMA_VERSION`]; what verifiers
//! read of it is in [`verify`](super::verify). In it are no path of the host, no secret, no text of a
//! program and nothing that it printed. The chain's part is not here: only the store knows it, and
//! [`chain`](super::chain) puts it in front.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::evidence::{DatasetEvidence, EnforcedLimits, Evidence, HashedFile};
use crate::execution::isolation::Isolation;
use crate::execution::result::{DatasetMounted, SandboxStart};
use crate::execution::{Artifact, CauseKind, ExecutionResult, Limit};
use crate::ids::{ExecutionId, InstanceId, RunId};

/// The name of the document's form.
pub const SCHEMA: &str = "fumehood-receipt";

/// Its version: one more with every change of a name or a meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// An execution that a receipt is about.
#[derive(Debug, Clone, Copy)]
pub struct Account<'a> {
    /// Its run.
    pub run: RunId,
    /// Its id.
    pub execution: &'a ExecutionId,
    /// What is known of it.
    pub known: Known<'a>,
}

/// How much is known of an execution.
#[derive(Debug, Clone, Copy)]
pub enum Known<'a> {
    /// It is over, and this came of it.
    Ended {
        /// Which turn of its run it was, from 1.
        iteration: u32,
        /// SHA-256 of its program.
        code_sha256: &'a str,
        /// The program's size.
        code_bytes: u64,
        /// How it ended.
        result: &'a ExecutionResult,
        /// What it was made from and of.
        evidence: &'a Evidence,
    },
    /// It was planned, and then the daemon went away: whether it had a sandbox, and what ran in it,
    /// nobody knows.
    Lost,
}

/// Who makes receipts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Issuer<'a> {
    pub(super) instance: &'a InstanceId,
    pub(super) public_key: &'a str,
}

/// The statement without its place in the chain.
///
/// # Errors
///
/// Only for a value that JSON does not have, which there is none of.
pub(super) fn statement(
    account: &Account<'_>,
    issuer: Issuer<'_>,
) -> Result<Value, serde_json::Error> {
    serde_json::to_value(Statement::new(account, issuer))
}

/// Every name in it comes after `chain` in the canonical order.
#[derive(Serialize)]
struct Statement<'a> {
    daemon: Daemon<'a>,
    dataset: Option<&'a DatasetEvidence>,
    execution: Execution<'a>,
    image: Image<'a>,
    inputs: Option<Inputs<'a>>,
    isolation: Option<&'a Isolation>,
    limits: Option<&'a EnforcedLimits>,
    outcome: Outcome<'a>,
    sandbox: Sandbox,
    schema: &'static str,
    schema_version: u32,
}

#[derive(Serialize)]
struct Daemon<'a> {
    instance: &'a str,
    public_key: &'a str,
    version: &'static str,
}

#[derive(Serialize)]
struct Execution<'a> {
    id: &'a str,
    iteration: Option<u32>,
    run_id: String,
}

#[derive(Default, Serialize)]
struct Image<'a> {
    /// As the engine says that it was used.
    digest: Option<&'a str>,
    /// As configured.
    reference: Option<&'a str>,
}

#[derive(Serialize)]
struct Inputs<'a> {
    code: Code<'a>,
    files: &'a [HashedFile],
    setup_script: Option<&'a HashedFile>,
}

#[derive(Serialize)]
struct Code<'a> {
    sha256: &'a str,
    size: u64,
}

#[derive(Serialize)]
struct Sandbox {
    /// `none`, `used` or `unknown`.
    state: &'static str,
    start: Option<SandboxStart>,
    dataset_mount: Option<DatasetMounted>,
}

#[derive(Default, Serialize)]
struct Outcome<'a> {
    artifacts: &'a [Artifact],
    /// Entries of the workspace that are no artifacts, as far as they are listed.
    artifacts_left_out: usize,
    cause: Option<CauseKind>,
    duration_milliseconds: Option<u64>,
    ending: Ending,
    finished_at: Option<String>,
    limit: Option<Limit>,
    started_at: Option<String>,
    status: &'static str,
    stderr_bytes: Option<u64>,
    stdout_bytes: Option<u64>,
}

#[derive(Default, Serialize)]
struct Ending {
    exit_code: Option<i32>,
    /// `exit`, `signal`, `stopped` (from outside), `not_started` or `unknown`.
    kind: &'static str,
    signal: Option<i32>,
}

impl<'a> Statement<'a> {
    fn new(account: &Account<'a>, issuer: Issuer<'a>) -> Self {
        let mut statement = Self {
            daemon: Daemon {
                instance: issuer.instance.as_str(),
                public_key: issuer.public_key,
                version: env!("CARGO_PKG_VERSION"),
            },
            dataset: None,
            execution: Execution {
                id: account.execution.as_str(),
                iteration: None,
                run_id: account.run.to_string(),
            },
            image: Image::default(),
            inputs: None,
            isolation: None,
            limits: None,
            outcome: Outcome::lost(),
            sandbox: Sandbox {
                state: "unknown",
                start: None,
                dataset_mount: None,
            },
            schema: SCHEMA,
            schema_version: SCHEMA_VERSION,
        };
        if let Known::Ended {
            iteration,
            code_sha256,
            code_bytes,
            result,
            evidence,
        } = account.known
        {
            statement.execution.iteration = Some(iteration);
            let code = Code {
                sha256: code_sha256,
                size: code_bytes,
            };
            statement.add_evidence(code, evidence);
            statement.outcome = Outcome::of(result);
            statement.sandbox = Sandbox {
                state: if evidence.isolation.is_some() {
                    "used"
                } else {
                    "none"
                },
                start: result.sandbox.map(|sandbox| sandbox.start),
                dataset_mount: result.sandbox.and_then(|sandbox| sandbox.dataset_mount),
            };
        }
        statement
    }

    fn add_evidence(&mut self, code: Code<'a>, evidence: &'a Evidence) {
        let Evidence {
            image,
            input_files,
            setup_script,
            limits,
            dataset,
            isolation,
        } = evidence;
        self.dataset = dataset.as_ref();
        self.image = Image {
            digest: isolation.as_ref().map(|made| made.applied.image.as_str()),
            reference: Some(image),
        };
        self.inputs = Some(Inputs {
            code,
            files: input_files,
            setup_script: setup_script.as_ref(),
        });
        self.isolation = isolation.as_ref();
        self.limits = Some(limits);
    }
}

impl<'a> Outcome<'a> {
    fn lost() -> Self {
        Self {
            ending: Ending {
                kind: "unknown",
                ..Ending::default()
            },
            status: "LOST",
            ..Self::default()
        }
    }

    fn of(result: &'a ExecutionResult) -> Self {
        let wall = Duration::try_from_secs_f64(result.duration_seconds).unwrap_or_default();
        Self {
            artifacts: &result.artifacts,
            artifacts_left_out: result.artifacts_skipped.len(),
            cause: Some(result.cause.kind),
            duration_milliseconds: u64::try_from(wall.as_millis()).ok(),
            ending: Ending::of(result),
            finished_at: Some(time(result.finished_at)),
            limit: result.limit,
            started_at: result.started_at.map(time),
            status: result.status.as_str(),
            stderr_bytes: Some(result.stderr_bytes),
            stdout_bytes: Some(result.stdout_bytes),
        }
    }
}

impl Ending {
    fn of(result: &ExecutionResult) -> Self {
        let of_kind = |kind| Self {
            kind,
            ..Self::default()
        };
        match (result.started_at, result.return_code) {
            (None, _) => of_kind("not_started"),
            (Some(_), None) => of_kind("stopped"),
            (Some(_), Some(code)) if code < 0 => Self {
                signal: Some(code.saturating_neg()),
                ..of_kind("signal")
            },
            (Some(_), Some(code)) => Self {
                exit_code: Some(code),
                ..of_kind("exit")
            },
        }
    }
}

/// Always with six digits below the second.
fn time(at: Timestamp) -> String {
    format!("{at:.6}")
}

#[cfg(test)]
mod tests;
