//! The metrics of a script's `summary.json` (contract sections 1 and 2.12): passed on untouched,
//! never invented.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value};

/// The file that a script may leave.
pub const SUMMARY_NAME: &str = "summary.json";

/// A longer summary is not read.
const MAX_SUMMARY_BYTES: u64 = 1 << 20;

/// What was found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics {
    /// The `metrics` object.
    pub metrics: Option<Map<String, Value>>,
    /// Why there is none although there is a summary, or what was changed in it.
    pub note: Option<String>,
}

/// Reads the metrics from a published artifact directory.
#[must_use]
pub fn read_metrics(directory: &Path) -> Metrics {
    let Ok(file) = File::open(directory.join(SUMMARY_NAME)) else {
        return Metrics::default();
    };
    let mut bytes = Vec::new();
    match file.take(MAX_SUMMARY_BYTES + 1).read_to_end(&mut bytes) {
        Ok(_) if bytes.len() as u64 <= MAX_SUMMARY_BYTES => parse(&bytes),
        Ok(_) => noted("summary.json is larger than 1 MiB: its metrics were not read"),
        Err(_) => noted("summary.json could not be read"),
    }
}

fn noted(note: &str) -> Metrics {
    Metrics {
        metrics: None,
        note: Some(note.to_owned()),
    }
}

fn parse(bytes: &[u8]) -> Metrics {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return noted("summary.json is not UTF-8");
    };
    let (text, replaced) = without_non_finite(text);
    // The parser refuses deep nesting, lone surrogates and anything else that is no JSON.
    let Ok(Value::Object(mut summary)) = serde_json::from_str(&text) else {
        return noted("summary.json is no JSON object: its metrics were not read");
    };
    let Some(Value::Object(metrics)) = summary.remove("metrics") else {
        return Metrics::default();
    };
    let note = replaced.then(|| {
        "summary.json holds NaN or Infinity, which JSON does not have: shown as null".to_owned()
    });
    Metrics {
        metrics: Some(metrics),
        note,
    }
}

/// Python writes `NaN`, `Infinity` and `-Infinity` where JSON has no number: they become `null`.
fn without_non_finite(text: &str) -> (String, bool) {
    const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];
    let mut out = String::with_capacity(text.len());
    let mut replaced = false;
    let mut in_string = false;
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if !in_string && let Some(word) = WORDS.iter().find(|word| rest.starts_with(**word)) {
            out.push_str("null");
            rest = &rest[word.len()..];
            replaced = true;
            continue;
        }
        let mut length = character.len_utf8();
        match character {
            '"' => in_string = !in_string,
            '\\' if in_string => {
                length += rest[length..].chars().next().map_or(0, char::len_utf8);
            }
            _ => {}
        }
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    (out, replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(text: &str) -> Metrics {
        parse(text.as_bytes())
    }

    #[test]
    fn metrics_are_passed_on_untouched() {
        let found = metrics(
            r#"{"success": true, "metrics": {"f1": 0.5, "n": 1180591620717411303424, "z": -0.0}}"#,
        );
        let text = serde_json::to_string(&found.metrics).unwrap();
        assert_eq!(text, r#"{"f1":0.5,"n":1180591620717411303424,"z":-0.0}"#);
        assert_eq!(found.note, None);
    }

    #[test]
    fn what_is_absent_stays_absent() {
        for text in ["{}", r#"{"metrics": null}"#, r#"{"metrics": [1]}"#] {
            assert_eq!(metrics(text), Metrics::default());
        }
    }

    #[test]
    fn numbers_that_json_does_not_have_become_null_with_a_note() {
        let found = metrics(
            r#"{"metrics": {"a": NaN, "b": -Infinity, "c": "NaN \" Infinity", "d": Infinity}}"#,
        );
        let text = serde_json::to_string(&found.metrics).unwrap();
        assert_eq!(
            text,
            r#"{"a":null,"b":null,"c":"NaN \" Infinity","d":null}"#
        );
        assert!(found.note.is_some());
    }

    #[test]
    fn a_summary_that_is_no_json_has_no_metrics_and_says_so() {
        let deep = format!(r#"{{"metrics": {}{}}}"#, "[".repeat(2000), "]".repeat(2000));
        for text in [
            "",
            "[1]",
            "nonsense",
            r#"{"metrics": {"s": "\ud800"}}"#,
            deep.as_str(),
        ] {
            let found = metrics(text);
            assert_eq!(found.metrics, None);
            assert!(found.note.is_some(), "{text:.40}");
        }
    }
}
