//! Who writes programs: the trait, and what it is told.

use async_trait::async_trait;

use super::perception::Seen;
use crate::execution::redaction::Redaction;
use crate::execution::spec::Limits;
use crate::runs::Episode;
use crate::runs::task::ModelUsage;

/// A longer program is none.
pub const MAX_PROGRAM_BYTES: usize = 256 << 10;

/// What a program is written for.
#[derive(Debug, Clone, Copy)]
pub struct Assignment<'a> {
    /// The turn, from 1.
    pub iteration: u32,
    /// What the client wants, in its words.
    pub instruction: Option<&'a str>,
    /// The data set and the task.
    pub seen: &'a Seen,
    /// Files that the program has to leave.
    pub expected_files: &'a [String],
    /// What the program may use.
    pub limits: &'a Limits,
    /// The turn before, if there was one.
    pub previous: Option<Previous<'a>>,
    /// Paths of the host, to be kept out of every prompt.
    pub redaction: &'a Redaction,
}

/// A program that has to be repaired.
#[derive(Debug, Clone, Copy)]
pub struct Previous<'a> {
    /// The program.
    pub code: &'a str,
    /// What came of it.
    pub episode: &'a Episode,
}

/// A program, or why there is none, and what asking cost.
#[derive(Debug)]
pub struct Written {
    /// The program. Nothing about it is trusted.
    pub code: Result<String, String>,
    /// What the model's calls cost.
    pub usage: ModelUsage,
}

/// Writes programs.
#[async_trait]
pub trait Coder: Send + Sync + std::fmt::Debug {
    /// Writes the program of a turn. An error is for clients: it says neither what a model said nor
    /// where it is.
    async fn write(&self, assignment: &Assignment<'_>) -> Written;
}

/// The program, if it is one that can be run at all.
///
/// # Errors
///
/// What is wrong with it, in words that are also for a model.
pub fn checked(code: String) -> Result<String, String> {
    if code.trim().is_empty() {
        return Err("the program is empty".to_owned());
    }
    if code.len() > MAX_PROGRAM_BYTES {
        let kib = MAX_PROGRAM_BYTES >> 10;
        return Err(format!("the program is longer than {kib} KiB"));
    }
    if code.contains('\0') {
        return Err("the program contains a NUL character".to_owned());
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_run_is_a_program() {
        assert!(checked("print()".to_owned()).is_ok());
        assert!(checked("x".repeat(MAX_PROGRAM_BYTES)).is_ok());
        for code in ["", " \n\t", "print()\0"] {
            assert!(checked(code.to_owned()).is_err(), "{code:?}");
        }
        assert!(checked("x".repeat(MAX_PROGRAM_BYTES + 1)).is_err());
    }
}
