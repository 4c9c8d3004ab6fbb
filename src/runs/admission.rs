//! Admission: from the body of a request to a run with every default filled in.
//!
//! Owns what a request may say and the order in which its mistakes are reported (contract section
//! 1). Knows nothing of HTTP: it gets a JSON value and gives a [`RunRequest`] or one
//! [`AdmissionError`]. Blocks on the file system for the data set's path.

mod files;

mod options;

pub mod problem;

use std::path::PathBuf;

use serde_json::{Map, Value};

pub use problem::{FieldError, Place, Problem};

use self::problem::Problems;
use super::dataset_path::{self, DatasetPathError};
use super::gate::Gate;
use super::request::{LlmMode, RunRequest};
use crate::config::{Config, Execution};
use crate::execution::paths::InsecurePath;

/// The longest name of an expected file, in characters.
const MAX_EXPECTED_NAME: usize = 1024;

/// Files that one request may name.
pub(crate) const MAX_FILES: usize = 1000;

/// What requests may ask for, and what they get if they do not: the configuration's view of it.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Directories that data sets may be in.
    pub data_roots: Vec<PathBuf>,
    /// The longest instruction, in characters.
    pub max_instruction_length: usize,
    /// Defaults and ceilings of programs.
    pub execution: Execution,
    /// Turns of the loop by default.
    pub max_iterations: u32,
    /// Where generated code comes from by default.
    pub llm_mode: LlmMode,
    /// Whether there is a model that writes programs.
    pub has_model: bool,
    /// The image by default.
    pub default_image: String,
    /// The runtimes of this host, as far as they are known.
    pub gate: Gate,
}

impl Rules {
    /// The rules of a configuration; `built_image` is used where it names no image.
    #[must_use]
    pub fn new(config: &Config, built_image: &str) -> Self {
        Self {
            data_roots: config.app.allowed_data_root.clone(),
            max_instruction_length: config.app.max_instruction_length,
            execution: config.execution.clone(),
            max_iterations: config.limits.max_iterations,
            llm_mode: config.llm.mode,
            has_model: config.llm.is_configured(),
            default_image: config
                .execution
                .image
                .clone()
                .unwrap_or_else(|| built_image.to_owned()),
            gate: Gate::open(),
        }
    }

    /// Every image that a request may name, the default first.
    #[must_use]
    pub fn images(&self) -> Vec<String> {
        let mut images = vec![self.default_image.clone()];
        for image in &self.execution.images {
            if !images.contains(image) {
                images.push(image.clone());
            }
        }
        images
    }
}

/// Why a request was not admitted. The messages are the interface's.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AdmissionError {
    /// Fields are missing or wrong; all of them, in the order of the fields.
    #[error("{} fields of the request are missing or wrong", .0.len())]
    Fields(Vec<FieldError>),
    /// The data set is in no allowed root, whether it exists or not.
    #[error("Dataset path is outside allowed data root")]
    Outside,
    /// The data set is missing or no directory.
    #[error("Invalid dataset directory")]
    InvalidDirectory,
    /// The instruction has too many characters.
    #[error("User instruction exceeds maximum length")]
    InstructionTooLong,
    /// An input file would leave the workspace or replace one of the daemon's files.
    #[error(transparent)]
    InsecureInputPath(#[from] InsecurePath),
    /// Two input files are the same, or one is a directory of the other.
    #[error("Input files {first} and {second} name the same path.")]
    CollidingInputPaths {
        /// One of them, as sent.
        first: String,
        /// The other.
        second: String,
    },
    /// A model is to write the program, and none is configured.
    #[error(
        "No model is configured: set llm.base_url and llm.model, use the option llm_mode \"mock\", or send the \
         Python program in \"code\"."
    )]
    NoModel,
}

/// Checks a request and fills in what it leaves out.
///
/// # Errors
///
/// The first of the [`AdmissionError`]s in the order of their declaration.
pub fn admit(body: &Value, rules: &Rules) -> Result<RunRequest, AdmissionError> {
    let read = Body::read(body, rules)?;
    let dataset = read
        .dataset_path
        .as_deref()
        .map(|path| dataset_path::resolve(&rules.data_roots, path))
        .transpose()
        .map_err(|error| match error {
            DatasetPathError::Outside => AdmissionError::Outside,
            DatasetPathError::NotADirectory => AdmissionError::InvalidDirectory,
        })?;
    // Counting stops at the first character too many, not at the last of the body.
    let limit = rules.max_instruction_length;
    if let Some(instruction) = &read.user_instruction
        && instruction.chars().nth(limit).is_some()
    {
        return Err(AdmissionError::InstructionTooLong);
    }
    let input_files = files::place(read.input_files)?;
    let options = read.options;
    if read.code.is_none() && options.llm_mode == LlmMode::Real && !rules.has_model {
        return Err(AdmissionError::NoModel);
    }
    Ok(RunRequest {
        dataset_path: read.dataset_path,
        dataset,
        user_instruction: read.user_instruction,
        code: read.code,
        input_files,
        expected_output_files: read.expected_output_files,
        bash_script: read.bash_script,
        llm_mode: options.llm_mode,
        max_iterations: options.max_iterations,
        disable_judge: options.disable_judge,
        image: options.image,
        runtime: options.runtime,
        preload: options.preload,
        retries: options.retries,
        limits: options.limits,
    })
}

/// The fields of a body, each of its type.
struct Body {
    dataset_path: Option<String>,
    user_instruction: Option<String>,
    options: options::Options,
    code: Option<String>,
    input_files: Vec<(String, Vec<u8>)>,
    expected_output_files: Vec<String>,
    bash_script: Option<String>,
}

impl Body {
    fn read(body: &Value, rules: &Rules) -> Result<Self, AdmissionError> {
        let mut problems = Problems::default();
        let Value::Object(fields) = body else {
            let problem = match body {
                Value::Null => Problem::Missing,
                Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_)
                | Value::Object(_) => Problem::NotAnObject,
            };
            // A text or a list may be a whole request, program included, in a wrong wrapping.
            let shown = match body {
                Value::Bool(_) | Value::Number(_) => body,
                Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => &Value::Null,
            };
            problems.add(problem, &["body"], shown);
            return Err(AdmissionError::Fields(problems.0));
        };
        let read = Self {
            dataset_path: dataset_path_field(body, fields, &mut problems),
            user_instruction: optional_text(fields, "user_instruction", &mut problems),
            options: options_field(fields, rules, &mut problems),
            code: optional_text(fields, "code", &mut problems),
            input_files: files::read(fields, &mut problems),
            expected_output_files: expected_files(fields, &mut problems),
            bash_script: optional_text(fields, "bash_script", &mut problems),
        };
        if problems.0.is_empty() {
            Ok(read)
        } else {
            Err(AdmissionError::Fields(problems.0))
        }
    }
}

fn dataset_path_field(
    body: &Value,
    fields: &Map<String, Value>,
    problems: &mut Problems,
) -> Option<String> {
    let location = ["body", "dataset_path"];
    let needed = !matches!(fields.get("code"), Some(Value::String(_)));
    match fields.get("dataset_path") {
        Some(Value::String(path)) => return Some(path.clone()),
        None if needed => problems.add(Problem::Missing, &location, body),
        Some(Value::Null) if needed => {
            problems.add(Problem::StringType, &location, &Value::Null);
        }
        None | Some(Value::Null) => {}
        Some(other) => problems.add(Problem::StringType, &location, other),
    }
    None
}

fn options_field(
    fields: &Map<String, Value>,
    rules: &Rules,
    problems: &mut Problems,
) -> options::Options {
    let none = Map::new();
    let given = match fields.get("options") {
        Some(Value::Object(given)) => given,
        None => &none,
        Some(other) => {
            problems.add(Problem::DictType, &["body", "options"], other);
            &none
        }
    };
    options::read(given, rules, problems)
}

fn optional_text(
    fields: &Map<String, Value>,
    name: &str,
    problems: &mut Problems,
) -> Option<String> {
    match fields.get(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(other) => {
            problems.add(Problem::StringType, &["body", name], other);
            None
        }
    }
}

fn expected_files(fields: &Map<String, Value>, problems: &mut Problems) -> Vec<String> {
    const NAME: &str = "expected_output_files";
    let items = match fields.get(NAME) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Array(items)) => items,
        Some(other) => {
            problems.add(Problem::ListType, &["body", NAME], other);
            return Vec::new();
        }
    };
    if items.len() > MAX_FILES {
        let problem = Problem::TooLong(MAX_FILES);
        problems.add(problem, &["body", NAME], &Value::Null);
        return Vec::new();
    }
    let mut names = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let problem = match item {
            Value::String(name) if name.chars().nth(MAX_EXPECTED_NAME).is_none() => {
                names.push(name.clone());
                continue;
            }
            Value::String(_) => Problem::StringTooLong(MAX_EXPECTED_NAME),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => Problem::StringType,
        };
        problems.add_at(
            problem,
            vec!["body".into(), NAME.into(), index.into()],
            item,
        );
    }
    names
}

#[cfg(test)]
mod tests;
