//! What an execution is: its specification, its result and the judgement about its end.
//!
//! Owns the words and pure rules of contract section 2. Does no I/O and knows neither HTTP nor an
//! engine; `sandbox`, `artifacts`, `runs` and `api` all speak in these types.

pub mod spec;

pub mod paths;

pub mod environment;

pub mod runtime;

pub mod output;

pub mod redaction;

pub mod result;

pub mod isolation;

pub mod cause;

pub use cause::{Cause, CauseKind, Limit};
pub use result::{Artifact, ExecutionResult, SkippedArtifact, Status};
pub use spec::{DatasetPin, ExecutionSpec, Limits};
