//! A run as it was admitted: validated, with every default filled in, so that nothing about it
//! changes when the configuration does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::execution::{DatasetPin, Limits};

/// What a client asked for, after admission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The data set's path as sent.
    pub dataset_path: Option<String>,
    /// The checked directory behind it.
    pub dataset: Option<DatasetPin>,
    /// What the generated program is to do.
    pub user_instruction: Option<String>,
    /// The given program.
    pub code: Option<String>,
    /// Further files of the workspace, by checked relative path.
    #[serde(with = "base64_values")]
    pub input_files: BTreeMap<String, Vec<u8>>,
    /// Files that the program has to leave behind.
    pub expected_output_files: Vec<String>,
    /// Stored beside the artifacts, never run.
    pub bash_script: Option<String>,
    /// Where generated code comes from.
    pub llm_mode: LlmMode,
    /// Turns of the loop at most.
    pub max_iterations: u32,
    /// Whether the exit code alone decides.
    pub disable_judge: bool,
    /// The image, as configured.
    pub image: String,
    /// The engine's runtime; `None` is the engine's default.
    pub runtime: Option<String>,
    /// Whether interpreters that have started before may run its programs.
    #[serde(default = "yes")]
    pub preload: bool,
    /// How often an execution that the infrastructure ended is tried again. 0 promises that the
    /// program is started at most once.
    #[serde(default)]
    pub retries: u32,
    /// What each program of the run may use.
    pub limits: Limits,
}

impl RunRequest {
    /// The last component of the data set's path.
    #[must_use]
    pub fn dataset_name(&self) -> Option<String> {
        let pin = self.dataset.as_ref()?;
        Some(pin.path.file_name()?.to_string_lossy().into_owned())
    }
}

/// What a record says that was written before there was a choice.
fn yes() -> bool {
    true
}

/// Where generated code comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LlmMode {
    /// A deterministic stand-in, offline.
    Mock,
    /// A model behind an API.
    Real,
}

impl LlmMode {
    /// The mode as the interface writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mock => "mock",
            Self::Real => "real",
        }
    }
}

/// File contents as base64 text, since JSON has no bytes.
mod base64_values {
    use std::collections::BTreeMap;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(
        files: &BTreeMap<String, Vec<u8>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(
            files
                .iter()
                .map(|(name, bytes)| (name, STANDARD.encode(bytes))),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, Vec<u8>>, D::Error> {
        BTreeMap::<String, String>::deserialize(deserializer)?
            .into_iter()
            .map(|(name, text)| Ok((name, STANDARD.decode(text).map_err(D::Error::custom)?)))
            .collect()
    }
}
