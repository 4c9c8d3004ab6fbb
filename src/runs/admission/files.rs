//! The `input_files` object of a request: names to texts, or to `{"base64": …}`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::problem::{Place, Problem, Problems};
use super::{AdmissionError, MAX_FILES};
use crate::execution::paths::input_file_path;

const NAME: &str = "input_files";

/// Reads the files with their names as sent; whatever is wrong is added to `problems`.
pub(super) fn read(fields: &Map<String, Value>, problems: &mut Problems) -> Vec<(String, Vec<u8>)> {
    let files = match fields.get(NAME) {
        None | Some(Value::Null) => return Vec::new(),
        Some(Value::Object(files)) => files,
        Some(other) => {
            problems.add(Problem::DictType, &["body", NAME], other);
            return Vec::new();
        }
    };
    if files.len() > MAX_FILES {
        problems.add(Problem::TooLong(MAX_FILES), &["body", NAME], &Value::Null);
        return Vec::new();
    }
    let mut read = Vec::new();
    for (name, value) in files {
        match content(value) {
            Ok(bytes) => read.push((name.clone(), bytes)),
            Err((problem, below)) => {
                let mut location: Vec<Place> =
                    vec!["body".into(), NAME.into(), name.as_str().into()];
                location.extend(below.map(Place::from));
                problems.add_at(problem, location, value);
            }
        }
    }
    read
}

fn content(value: &Value) -> Result<Vec<u8>, (Problem, Option<&'static str>)> {
    const BASE64: Option<&str> = Some("base64");
    match value {
        Value::String(text) => Ok(text.clone().into_bytes()),
        Value::Object(fields) => match fields.get("base64") {
            Some(Value::String(text)) => {
                STANDARD.decode(text).map_err(|_| (Problem::Base64, BASE64))
            }
            Some(_) => Err((Problem::StringType, BASE64)),
            None => Err((Problem::Missing, BASE64)),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            Err((Problem::StringType, None))
        }
    }
}

/// Puts the files where they belong in a workspace.
///
/// # Errors
///
/// A name that leaves the workspace, or two that cannot be there together.
pub(super) fn place(
    files: Vec<(String, Vec<u8>)>,
) -> Result<BTreeMap<String, Vec<u8>>, AdmissionError> {
    let mut placed = BTreeMap::new();
    let mut sent_as: BTreeMap<String, String> = BTreeMap::new();
    for (name, bytes) in files {
        let path = input_file_path(&name)?;
        if let Some(first) = sent_as.get(&path) {
            return Err(collision(first, &name));
        }
        sent_as.insert(path.clone(), name);
        placed.insert(path, bytes);
    }
    for (path, name) in &sent_as {
        let mut parent = path.as_str();
        while let Some((above, _)) = parent.rsplit_once('/') {
            parent = above;
            if let Some(first) = sent_as.get(parent) {
                return Err(collision(first, name));
            }
        }
    }
    Ok(placed)
}

fn collision(first: &str, second: &str) -> AdmissionError {
    let shown = |name: &str| name.chars().take(200).collect();
    AdmissionError::CollidingInputPaths {
        first: shown(first),
        second: shown(second),
    }
}
