//! The result of one execution (contract section 2).

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::cause::{Cause, Limit};
use crate::ids::ExecutionId;

/// How an execution ended (contract section 2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Exit code 0 and every expected file is there.
    Success,
    /// The program's own failure, or one that a limit caused.
    Failure,
    /// Ended at the wall clock limit.
    Timeout,
    /// Exit code 0, but expected files are missing.
    InvalidOutput,
    /// Ended on request.
    Cancelled,
    /// Ended by the engine or the host: never the program's failure.
    Error,
}

impl Status {
    /// The status as the interface writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "SUCCESS",
            Self::Failure => "FAILURE",
            Self::Timeout => "TIMEOUT",
            Self::InvalidOutput => "INVALID_OUTPUT",
            Self::Cancelled => "CANCELLED",
            Self::Error => "ERROR",
        }
    }
}

/// Everything that is known about an execution when it is over. Field names are the interface's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionResult {
    /// Names the artifact directory.
    pub execution_id: ExecutionId,
    /// Whether `status` is [`Status::Success`].
    pub success: bool,
    /// How it ended.
    pub status: Status,
    /// The exit code, or the negative number of the signal; `None` if the program was stopped by
    /// us or by the host, `-1` if it was never started because the request was refused.
    pub return_code: Option<i32>,
    /// The head of standard output, cut at the cap.
    pub stdout: String,
    /// The head of standard error, cut at the cap.
    pub stderr: String,
    /// Wall clock of the program, in seconds.
    pub duration_seconds: f64,
    /// Whether the wall clock limit ended it.
    pub timed_out: bool,
    /// Names of the files it left (contract section 2.8).
    pub output_files: Vec<String>,
    /// Which of the expected files are not there.
    pub missing_expected_files: Vec<String>,
    /// What went wrong, in one sentence.
    pub error_info: Option<String>,
    /// `outputs/models/exec_…`, relative.
    pub workspace_dir: String,
    /// Which limit ended or crippled it.
    pub limit: Option<Limit>,
    /// The one complete reason.
    pub cause: Cause,
    /// What deserves attention although it changed nothing about the status.
    pub warnings: Vec<String>,
    /// Bytes written to standard output in all.
    pub stdout_bytes: u64,
    /// Bytes written to standard error in all.
    pub stderr_bytes: u64,
    /// The end of standard output where the head was cut.
    pub stdout_tail: Option<String>,
    /// The end of standard error where the head was cut.
    pub stderr_tail: Option<String>,
    /// What it used; `None` if it never ran.
    pub usage: Option<ResourceUsage>,
    /// How it got its sandbox; `None` if it got none.
    #[serde(default)]
    pub sandbox: Option<SandboxUse>,
    /// When the program started.
    pub started_at: Option<Timestamp>,
    /// When it was over.
    pub finished_at: Timestamp,
    /// What was copied to the artifact directory.
    pub artifacts: Vec<Artifact>,
    /// What was left out, and why.
    pub artifacts_skipped: Vec<SkippedArtifact>,
}

/// How an execution got its sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxUse {
    /// In which state it was when the program came.
    pub start: SandboxStart,
    /// How the data set got into it; `None` without a data set.
    pub dataset_mount: Option<DatasetMounted>,
}

/// In which state a sandbox was when its program came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxStart {
    /// It was made for this program.
    Cold,
    /// It waited, with an interpreter that had imported nothing, or with none.
    Warm,
    /// It waited, with an interpreter that had imported libraries.
    Preloaded,
}

/// How a data set got into a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DatasetMounted {
    /// The engine mounted it when it made the container.
    Created,
    /// The daemon mounted it into the waiting sandbox.
    Placed,
}

/// What an execution used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// CPU time of all processes, in seconds.
    pub cpu_seconds: f64,
    /// Peak of everything charged to the sandbox, in bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Largest resident set of one process, in bytes.
    pub peak_resident_bytes: u64,
    /// The most bytes used in the workspace.
    pub peak_workspace_bytes: Option<u64>,
}

/// A file copied out of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Relative to the artifact directory, forward slashes.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// SHA-256, lower case hexadecimal.
    pub sha256: String,
}

/// A file that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedArtifact {
    /// Relative path, escaped where it is not printable.
    pub path: String,
    /// Why, in words.
    pub reason: String,
    /// Apparent size in bytes.
    pub size: u64,
}
