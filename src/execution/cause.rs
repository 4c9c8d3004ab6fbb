//! Why an execution ended: one judgement from several facts, never from an exit code alone.
//!
//! A pure function from what the supervisor, the engine and the daemon itself know to status,
//! cause and warnings. Sources: contract section 2.6, security.md findings 7 and 8, and invariant 7:
//! our failures are never shown as the program's, nor the program's as ours.

mod judge;

mod limits;

use serde::{Deserialize, Serialize};
use serde_json::Number;

use fumehood_protocol::message::Exited;

pub use judge::judge;

use super::result::Status;
use super::spec::Limits;

/// A limit that can end or cripple a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Wall clock.
    Time,
    /// CPU time.
    Cpu,
    /// Memory, tmpfs and shared memory included.
    Memory,
    /// Processes and threads.
    Processes,
    /// Space or inodes of the workspace or of `/tmp`.
    Disk,
    /// Size of one file.
    FileSize,
}

/// What kind of end it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// The program returned an exit code of its own accord.
    Exited,
    /// A signal that nobody on our side sent.
    Signal,
    /// A limit.
    Limit,
    /// A request.
    Cancelled,
    /// The engine, the host or the daemon.
    Infrastructure,
}

/// The one complete reason, in words and numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// What kind of end it was.
    pub kind: CauseKind,
    /// The limit, where one was the reason.
    pub limit: Option<Limit>,
    /// What the limit was set to: seconds, bytes or a count.
    pub configured: Option<Number>,
    /// What was measured, in the same unit.
    pub observed: Option<Number>,
    /// The facts that the judgement rests on.
    pub evidence: Vec<String>,
    /// A sentence for a person, with the remedy where there is one.
    pub message: String,
    /// Whether the program may have brought about an end that is told as the infrastructure's: it gets no
    /// other attempt by that. Known while a run goes on only.
    #[serde(skip)]
    pub may_be_the_programs: bool,
}

/// What is known when an execution is over.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// What the program was allowed.
    pub limits: &'a Limits,
    /// How it ended.
    pub end: End<'a>,
    /// The engine's word that the kernel killed something in the sandbox for memory, if the engine
    /// was asked.
    pub engine_saw_memory_kill: Option<bool>,
    /// Expected files that are not there.
    pub missing_expected_files: &'a [String],
    /// The end of standard error, to corroborate what the kernel does not count.
    pub stderr: &'a str,
}

/// How the conversation with the sandbox ended.
#[derive(Debug, Clone)]
pub enum End<'a> {
    /// The supervisor reported the end of the main process.
    Reported(&'a Exited),
    /// The daemon had the sandbox ended at the deadline because the supervisor had not ended the
    /// program; wall clock in seconds.
    KilledAtDeadline(f64, Stop),
    /// The daemon had the sandbox ended on request.
    KilledOnCancel(Stop),
    /// The sandbox went away without a report.
    Lost(String),
    /// What came over its stream was no report.
    Senseless(String),
}

/// What is known of the end of a sandbox that the engine was told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Nothing runs in it any more.
    Confirmed,
    /// The engine did not answer. The supervisor ends the program by a clock of its own.
    Unanswered,
    /// The engine is there and does not confirm it.
    Failed,
}

impl Stop {
    /// As evidence.
    fn words(self) -> &'static str {
        match self {
            Self::Confirmed => "the daemon destroyed the sandbox",
            Self::Unanswered => {
                "the engine did not answer when it was told to end the sandbox, whose supervisor \
                 ends the program by a clock of its own"
            }
            Self::Failed => {
                "the engine was told to end the sandbox and does not confirm that it did"
            }
        }
    }
}

/// What the facts mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// How it ended.
    pub status: Status,
    /// Exit code or negative signal number.
    pub return_code: Option<i32>,
    /// The reason.
    pub cause: Cause,
    /// What went wrong in the words of the interface; `None` where standard error says it.
    pub error_info: Option<String>,
    /// Notes that do not change the status.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// An execution that the engine, the host or the daemon prevented or ended.
    #[must_use]
    pub fn infrastructure(message: String, evidence: Vec<String>) -> Self {
        let cause = Cause {
            kind: CauseKind::Infrastructure,
            limit: None,
            configured: None,
            observed: None,
            evidence,
            message: message.clone(),
            may_be_the_programs: false,
        };
        Self {
            status: Status::Error,
            return_code: None,
            cause,
            error_info: Some(message),
            warnings: Vec::new(),
        }
    }

    /// An execution that was ended on request.
    #[must_use]
    pub fn cancelled(evidence: &str) -> Self {
        let text = "Execution was cancelled.".to_owned();
        let cause = Cause {
            kind: CauseKind::Cancelled,
            limit: None,
            configured: None,
            observed: None,
            evidence: vec![evidence.to_owned()],
            message: text.clone(),
            may_be_the_programs: false,
        };
        Self {
            status: Status::Cancelled,
            return_code: None,
            cause,
            error_info: Some(text),
            warnings: Vec::new(),
        }
    }

    /// An execution that was refused before anything was started (contract sections 2.2 and 2.3).
    #[must_use]
    pub fn refused(error_info: String) -> Self {
        let cause = Cause {
            kind: CauseKind::Exited,
            limit: None,
            configured: None,
            observed: None,
            evidence: vec!["nothing was started".to_owned()],
            message: error_info.clone(),
            may_be_the_programs: false,
        };
        Self {
            status: Status::Failure,
            return_code: Some(-1),
            cause,
            error_info: Some(error_info),
            warnings: Vec::new(),
        }
    }
}

/// Formats seconds as the interface does: `120`, `2.5`.
#[must_use]
pub fn format_seconds(seconds: f64) -> String {
    format!("{seconds}")
}
