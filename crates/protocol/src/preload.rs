//! The messages about an interpreter that waits for its program. Like all messages, those of the
//! supervisor are claims.

use serde::{Deserialize, Serialize};

/// The most modules that one [`Preload`] may name.
pub const MAX_MODULES: usize = 256;

/// The longest name of a module, and the longest problem told about one, in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// An interpreter to start before there is a program for it. It imports modules, and waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preload {
    /// As in [`crate::message::Start`], which has to repeat them: a Python interpreter without
    /// options of its own, a script that need not exist yet, and arguments.
    pub arguments: Vec<String>,
    /// As in [`crate::message::Start`], which has to repeat it. `PYTHONPATH` must not be set.
    pub environment: Vec<(String, String)>,
    /// In force from the start of the interpreter; `Start` may lower them, not raise them.
    pub limits: FileLimits,
    /// Modules to import, dotted names, in this order.
    pub modules: Vec<String>,
}

/// The limits of a process that waits: those that are not about time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLimits {
    /// Size of one file (`RLIMIT_FSIZE`), in bytes.
    pub file_size_bytes: u64,
    /// Open files per process (`RLIMIT_NOFILE`).
    pub open_files: u64,
}

/// What became of a [`Preload`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preloaded {
    /// Whether an interpreter waits for `Start`. If not, nothing of it is left, and `Start` starts
    /// the program anew.
    pub waiting: bool,
    /// How many of the modules are imported where one waits.
    pub imported: u32,
    /// Why none waits, or which modules could not be imported (`name: error class`), or that using
    /// them once failed (`warm-up: error class`). The latter two are no failure: a program that
    /// needs such a module learns of it as it always did. At most [`MAX_MODULES`] + 2, each at most [`MAX_NAME_BYTES`] and a word or two.
    pub problems: Vec<String>,
    /// The most memory that was charged to the sandbox by then, in bytes; `None`: the kernel does
    /// not tell.
    pub peak_memory_bytes: Option<u64>,
}
