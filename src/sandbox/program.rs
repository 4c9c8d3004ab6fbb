//! How a program is started in a sandbox: told with the program, or, word for word the same, to an
//! interpreter that waits for it.

use super::policy;
use crate::execution::spec::{SCRIPT_NAME, SandboxLimits};

pub use super::policy::OPEN_FILES;
pub use crate::execution::environment::environment;

/// The program and its arguments (contract section 2.1).
pub const ARGUMENTS: [&str; 2] = ["python3", SCRIPT_NAME];

/// Size of one file, in bytes: that of the workspace.
#[must_use]
pub fn file_size_bytes(limits: &SandboxLimits) -> u64 {
    policy::sizes(limits).workspace.bytes
}
