//! What a run is about: looked at in a sandbox, decided here.
//!
//! The daemon parses no data set (invariant 9). A script of ours does, as an execution like any other,
//! and prints a profile; that print is hostile data, since the data set had a say in it, and is read
//! within caps by [`profile`]. [`task`] and [`library`] then decide by pure functions what is to be
//! predicted, how it is measured, and with which library.

pub mod profile;

pub mod task;

pub mod library;

use super::given;
use crate::execution::cause::CauseKind;
use crate::execution::spec::ExecutionSpec;
use crate::execution::{ExecutionResult, Status};
use crate::ids::ExecutionId;
use crate::runs::RunRecord;
use crate::runs::task::Perceived;
pub use profile::Profile;

/// The script that looks at a data set.
const SCRIPT: &str = include_str!("perception/profile.py");

/// The script bounds itself below this.
const MAX_SECONDS: f64 = 60.0;

/// What it prints is shorter.
const MAX_OUTPUT_BYTES: u64 = 64 << 10;

/// It leaves no files.
const MAX_ARTIFACT_MB: u64 = 1;

/// The execution that looks at a run's data set. Its sandbox is like those of the run's programs, so
/// that one that waits for them serves it, too.
pub(super) fn specification(run: &RunRecord, id: ExecutionId) -> ExecutionSpec {
    let mut spec = given::specification(run, id);
    spec.code = SCRIPT.to_owned();
    spec.input_files.clear();
    spec.expected_output_files.clear();
    spec.bash_script = None;
    let limits = &mut spec.limits;
    limits.timeout_seconds = limits.timeout_seconds.min(MAX_SECONDS);
    limits.max_stdout_size_bytes = MAX_OUTPUT_BYTES;
    limits.max_stderr_size_bytes = limits.max_stderr_size_bytes.min(MAX_OUTPUT_BYTES);
    limits.max_artifact_mb = MAX_ARTIFACT_MB;
    limits.max_artifact_files = 1;
    spec
}

/// What a run knows of its data set and its task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// The data set, as far as it could be looked at.
    pub profile: Profile,
    /// What follows from it.
    pub perceived: Perceived,
}

/// What follows from the execution that looked at the data set, whatever came of it. The same result
/// always gives the same, so that nothing of it has to be kept but the result.
#[must_use]
pub fn conclude(instruction: Option<&str>, result: &ExecutionResult) -> Seen {
    let read = if result.status == Status::Success {
        Profile::read(&result.stdout).map_err(str::to_owned)
    } else {
        Err(why(result))
    };
    let (profile, trouble) = match read {
        Ok(profile) => (profile, None),
        Err(why) => (Profile::default(), Some(why)),
    };
    let mut task = task::choose(instruction, &profile);
    if let Some(why) = trouble {
        task.explanation = format!(
            "The data set could not be looked at: {why}. {}",
            task.explanation
        );
    }
    let library = library::choose(instruction, &profile);
    Seen {
        perceived: Perceived { task, library },
        profile,
    }
}

/// Why there is no profile, without what the script printed about the data.
fn why(result: &ExecutionResult) -> String {
    match result.cause.kind {
        CauseKind::Exited => "the script that looks at it failed".to_owned(),
        CauseKind::Signal | CauseKind::Limit | CauseKind::Cancelled | CauseKind::Infrastructure => {
            result
                .cause
                .message
                .trim_end_matches('.')
                .chars()
                .take(300)
                .collect()
        }
    }
}
