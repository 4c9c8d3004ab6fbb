//! The specification of one execution: complete, validated, and independent of the engine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ids::ExecutionId;

/// The file the program is stored in, at the top of the workspace (contract section 2.1).
pub const SCRIPT_NAME: &str = "script.py";

/// Where a request's `bash_script` is stored beside the artifacts; never run.
pub const SETUP_NAME: &str = "setup.sh";

/// The directory of the workspace whose contents are the artifacts.
pub const OUTPUT_DIRECTORY: &str = "out";

/// Everything one execution needs.
#[derive(Debug, Clone)]
pub struct ExecutionSpec {
    /// Names the workspace, the container and the artifact directory.
    pub id: ExecutionId,
    /// The Python program, as sent.
    pub code: String,
    /// Further files of the workspace by validated relative path.
    pub input_files: BTreeMap<String, Vec<u8>>,
    /// Files that the program has to leave behind, relative to `out` or to the workspace.
    pub expected_output_files: Vec<String>,
    /// Stored as [`SETUP_NAME`] beside the artifacts.
    pub bash_script: Option<String>,
    /// The directory mounted at `/data`.
    pub dataset: Option<DatasetPin>,
    /// The image, as configured.
    pub image: String,
    /// The engine's runtime; `None` is the engine's default.
    pub runtime: Option<String>,
    /// Whether an interpreter that has started before may run the program.
    pub preload: bool,
    /// What the program may use.
    pub limits: Limits,
}

/// A data set as it was when its path was checked.
///
/// A path can be replaced while a run waits. The identity of the directory is therefore taken with
/// the check, compared when the execution is prepared, and compared again with what the sandbox
/// really sees before the program starts (security.md row 29).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DatasetPin {
    /// Absolute, without symbolic links, inside an allowed data root.
    pub path: PathBuf,
    /// Device of the directory.
    pub device: u64,
    /// Inode of the directory.
    pub inode: u64,
}

/// The highest `execution.max_artifact_files`. Each is named in the execution's receipt, which has to be one
/// that can be verified ([`MAX_RECEIPT_BYTES`](crate::receipt::verify::MAX_RECEIPT_BYTES)) also if all
/// names are as long as names can be.
pub const MAX_ARTIFACT_FILES: u64 = 25_000;

/// What one program may use: defaults of the configuration, overridden by the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall clock from the start of the program, in seconds.
    pub timeout_seconds: f64,
    /// Memory and tmpfs together, in MiB; there is no swap.
    pub memory_mb: u64,
    /// CPUs' worth of time.
    pub cpus: f64,
    /// Processes and threads.
    pub max_processes: u64,
    /// Size of the workspace, and of one file in it, in MiB.
    pub workspace_mb: u64,
    /// Size of `/dev/shm`, in MiB.
    pub shm_mb: u64,
    /// Bytes kept of standard output.
    pub max_stdout_size_bytes: u64,
    /// Bytes kept of standard error.
    pub max_stderr_size_bytes: u64,
    /// Bytes of all artifacts together, in MiB.
    pub max_artifact_mb: u64,
    /// Number of artifact files, at most [`MAX_ARTIFACT_FILES`].
    pub max_artifact_files: u64,
}

/// The part of [`Limits`] that is fixed when a sandbox is made; the rest is told to it together
/// with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SandboxLimits {
    /// Memory and tmpfs together, in MiB; there is no swap.
    pub memory_mb: u64,
    /// CPU time, in billionths of a CPU.
    pub nano_cpus: u64,
    /// Processes and threads.
    pub max_processes: u64,
    /// Size of the workspace, and of one file in it, in MiB.
    pub workspace_mb: u64,
    /// Size of `/dev/shm`, in MiB.
    pub shm_mb: u64,
}

impl Limits {
    /// What of them a sandbox is made with.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "CPUs are positive and bounded far below; `as` saturates"
    )]
    pub fn of_sandbox(&self) -> SandboxLimits {
        SandboxLimits {
            memory_mb: self.memory_mb,
            nano_cpus: (self.cpus * 1e9).round() as u64,
            max_processes: self.max_processes,
            workspace_mb: self.workspace_mb,
            shm_mb: self.shm_mb,
        }
    }
}
