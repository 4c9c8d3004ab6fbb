//! What is known of an execution besides its result: gathered while it is prepared and carried out,
//! by whoever knows it first-hand, and passed on to the store together with the result.

use serde::{Deserialize, Serialize};

use crate::digest;
use crate::execution::isolation::Isolation;

/// What an execution was made from and of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// The image, as configured; what was used is in `isolation`.
    pub image: String,
    /// The given files of the workspace, in order of their names.
    pub input_files: Vec<HashedFile>,
    /// The script that is stored beside the artifacts and never run.
    pub setup_script: Option<HashedFile>,
    /// What the daemon and the supervisor enforce.
    pub limits: EnforcedLimits,
    /// The data set; `None` if none was asked for.
    pub dataset: Option<DatasetEvidence>,
    /// The sandbox; `None` if none was made.
    pub isolation: Option<Isolation>,
}

/// A file by its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedFile {
    /// Relative, forward slashes.
    pub path: String,
    /// SHA-256 of its bytes, lower case hexadecimal.
    pub sha256: String,
    /// In bytes.
    pub size: u64,
}

impl HashedFile {
    /// The file of this name with these bytes.
    #[must_use]
    pub fn of(path: &str, bytes: &[u8]) -> Self {
        Self {
            path: path.to_owned(),
            sha256: digest::of_content(bytes),
            size: bytes.len() as u64,
        }
    }
}

/// Limits that no engine knows: the supervisor sets or watches them, and the daemon again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct EnforcedLimits {
    /// Wall clock of the program.
    pub wall_milliseconds: u64,
    /// Bytes kept of standard output.
    pub stdout_bytes: u64,
    /// Bytes kept of standard error.
    pub stderr_bytes: u64,
    /// Size of one file.
    pub file_bytes: u64,
    /// Open files per process.
    pub open_files: u64,
    /// Bytes of all artifacts.
    pub artifact_bytes: u64,
    /// Number of artifacts.
    pub artifact_files: u64,
}

/// A data set that was asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DatasetEvidence {
    /// What was in it when the execution was prepared; `None` if that did not get so far.
    pub listing: Option<DatasetListing>,
}

/// A fingerprint of a data set's names, sizes and times. Not of its contents, which can be
/// terabytes: a file that was changed and given its old size and time back is not noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetListing {
    /// The hash over the entries in order of their paths, see
    /// [`Domain::Dataset`](digest::Domain::Dataset).
    pub sha256: String,
    /// How many entries are in it.
    pub entries: usize,
    /// How many there can be at most.
    pub entry_limit: usize,
    /// Whether these are all. If not they are those that the file system listed first, and the hash
    /// of a copy may differ.
    pub complete: bool,
    /// Bytes of the regular files among them.
    pub bytes: u64,
}
