//! What each program may achieve, `tests/hostile/expectations.toml`, typed and compared with a run.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::support::data::repository;

/// Appended where a stream was cut.
const MARKER: &str = "\n...[TRUNCATED]";

/// A runtime of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Runtime {
    Runc,
    Runsc,
}

impl Runtime {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Runsc => "runsc",
        }
    }
}

/// One program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    /// What it attacks, for whoever reads the list.
    pub(super) attacks: String,
    /// Tests that do the same or go further.
    #[serde(default)]
    pub(super) twins: Vec<String>,
    /// Further fields of the request.
    #[serde(default)]
    pub(super) request: Map<String, Value>,
    /// How many of it are run at once.
    #[serde(default = "one")]
    pub(super) copies: usize,
    /// What another client does.
    #[serde(default)]
    pub(super) neighbour: Neighbour,
    runc: Option<Outcome>,
    runsc: Option<Outcome>,
}

fn one() -> usize {
    1
}

/// The run of another client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Neighbour {
    /// An ordinary one after the program.
    #[default]
    Afterwards,
    /// An ordinary one while the program runs, too.
    Meanwhile,
    /// The same program after it, with the same outcome.
    SameProgram,
}

/// How a program's run has to end.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Outcome {
    status: Vec<Status>,
    limit: Vec<Limit>,
    return_code: Vec<i64>,
    within: Option<f64>,
    stdout: Option<String>,
    stdout_has: Vec<String>,
    stderr_has: Vec<String>,
    error_has: Option<String>,
    warns: Vec<String>,
    stdout_bytes: Option<Allowed>,
    stderr_bytes: Option<Allowed>,
    truncated: Vec<String>,
    files: Option<Vec<String>>,
    keeps: Vec<String>,
    file_count: Option<Allowed>,
    skipped: BTreeMap<String, String>,
    left_out: Option<String>,
    metrics: Option<String>,
    says: BTreeMap<String, Allowed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum Status {
    Success,
    Failure,
    Timeout,
    InvalidOutput,
    Cancelled,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Limit {
    None,
    Time,
    Cpu,
    Memory,
    Processes,
    Disk,
    FileSize,
}

/// What a program may say of one of its attempts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum Allowed {
    /// A number in a range, both ends included.
    Between {
        /// The least.
        least: i64,
        /// The most.
        most: i64,
    },
    /// Any of these.
    Among(Vec<Allowed>),
    /// A number.
    Number(i64),
    /// A truth value.
    Truth(bool),
    /// An error's name, or another word.
    Word(String),
}

impl Allowed {
    pub(super) fn holds(&self, value: &Value) -> bool {
        match self {
            Self::Between { least, most } => value
                .as_i64()
                .is_some_and(|number| (*least..=*most).contains(&number)),
            Self::Among(list) => list.iter().any(|allowed| allowed.holds(value)),
            Self::Number(number) => value.as_i64() == Some(*number),
            Self::Truth(truth) => value.as_bool() == Some(*truth),
            Self::Word(word) => value.as_str() == Some(word),
        }
    }
}

impl Program {
    /// How it has to end there; `None` if its twins are all there is.
    pub(super) fn on(&self, runtime: Runtime) -> Option<&Outcome> {
        match runtime {
            Runtime::Runc => self.runc.as_ref(),
            Runtime::Runsc => self.runsc.as_ref().or(self.runc.as_ref()),
        }
    }

    /// Its own time limit, in seconds.
    pub(super) fn timeout(&self) -> Option<f64> {
        self.request.get("options")?["timeout_seconds"].as_f64()
    }
}

impl Outcome {
    /// Everything in which a run differs from this, in words.
    pub(super) fn differences(&self, run: &Value) -> Vec<String> {
        let result = &run["result"];
        let mut found = Vec::new();
        let mut expect = |holds: bool, what: String| {
            if !holds {
                found.push(what);
            }
        };
        let status: Status = read(&result["status"]);
        let statuses = or_else(&self.status, Status::Success);
        expect(statuses.contains(&status), format!("status {status:?}"));
        let limit = match &result["limit"] {
            Value::Null => Limit::None,
            named => read(named),
        };
        let limits = or_else(&self.limit, Limit::None);
        expect(limits.contains(&limit), format!("limit {limit:?}"));
        let code = result["return_code"].as_i64();
        let codes = &self.return_code;
        expect(
            codes.is_empty() || code.is_some_and(|code| codes.contains(&code)),
            format!("return code {code:?}"),
        );
        let seconds = result["duration_seconds"].as_f64().unwrap();
        let in_time = self.within.is_none_or(|most| seconds <= most);
        expect(in_time, format!("{seconds} s"));

        let text = |field: &str| result[field].as_str().unwrap_or_default();
        let exact = self.stdout.as_deref();
        expect(
            exact.is_none_or(|exact| exact == text("stdout")),
            "stdout".to_owned(),
        );
        let parts = [("stdout", &self.stdout_has), ("stderr", &self.stderr_has)];
        for (field, parts) in parts {
            for part in parts {
                expect(text(field).contains(part), format!("{field} lacks {part}"));
            }
        }
        let error = self.error_has.as_deref().unwrap_or_default();
        expect(text("error_info").contains(error), "error_info".to_owned());
        for warning in &self.warns {
            let given = result["warnings"].to_string();
            expect(given.contains(warning), format!("no warning of {warning}"));
        }
        let sizes = [
            ("stdout_bytes", &self.stdout_bytes),
            ("stderr_bytes", &self.stderr_bytes),
        ];
        for (field, size) in sizes {
            let right = size.as_ref().is_none_or(|size| size.holds(&result[field]));
            expect(right, format!("{field} {}", result[field]));
        }
        for stream in &self.truncated {
            let cut = text(stream).ends_with(MARKER);
            expect(cut, format!("{stream} is not cut"));
        }
        if self.metrics.as_deref() == Some("none") {
            expect(run["final_metrics"].is_null(), "metrics".to_owned());
        }
        found.extend(self.artifact_differences(result));
        found.extend(self.told_differences(result));
        found
    }

    fn artifact_differences(&self, result: &Value) -> Vec<String> {
        let files: Vec<String> = read(&result["output_files"]);
        let mut found = Vec::new();
        if self.files.as_ref().is_some_and(|exact| *exact != files) {
            found.push(format!("files {files:?}"));
        }
        let missing = self.keeps.iter().filter(|name| !files.contains(name));
        found.extend(missing.map(|name| format!("{name} was not kept")));
        let count = Value::from(files.len());
        if self.file_count.as_ref().is_some_and(|c| !c.holds(&count)) {
            found.push(format!("{count} files"));
        }
        let skipped = result["artifacts_skipped"].as_array().unwrap();
        for (path, reason) in &self.skipped {
            let listed = |entry: &Value| entry["path"] == **path && entry["reason"] == **reason;
            if !skipped.iter().any(listed) {
                found.push(format!("{path} is not listed as {reason}"));
            }
        }
        if let Some(reason) = &self.left_out
            && !skipped.iter().any(|entry| entry["reason"] == **reason)
        {
            found.push(format!("nothing is listed as {reason}"));
        }
        found
    }

    fn told_differences(&self, result: &Value) -> Vec<String> {
        if self.says.is_empty() {
            return Vec::new();
        }
        let Some(told) = said(result["stdout"].as_str().unwrap_or_default()) else {
            return vec!["it says nothing".to_owned()];
        };
        let rest = self.says.get("*");
        let mut found = Vec::new();
        for (what, outcome) in &told {
            let allowed = self.says.get(what).or(rest);
            if !allowed.is_some_and(|allowed| allowed.holds(outcome)) {
                found.push(format!("{what}: {outcome}"));
            }
        }
        let unsaid = self
            .says
            .keys()
            .filter(|&key| key != "*" && !told.contains_key(key));
        found.extend(unsaid.map(|key| format!("{key}: not said")));
        found
    }
}

/// What a program says of itself: the JSON object in its last line.
pub(super) fn said(stdout: &str) -> Option<Map<String, Value>> {
    serde_json::from_str(stdout.lines().last()?).ok()
}

fn or_else<T: Copy>(list: &[T], otherwise: T) -> Vec<T> {
    if list.is_empty() {
        vec![otherwise]
    } else {
        list.to_vec()
    }
}

fn read<T: DeserializeOwned + Debug>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// Where the programs are.
pub(super) fn directory() -> PathBuf {
    repository().join("tests/hostile")
}

/// All programs by name.
pub(super) fn programs() -> &'static BTreeMap<String, Program> {
    static PROGRAMS: OnceLock<BTreeMap<String, Program>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let text = std::fs::read_to_string(directory().join("expectations.toml")).unwrap();
        toml::from_str(&text).unwrap_or_else(|error| panic!("expectations.toml: {error}"))
    })
}
