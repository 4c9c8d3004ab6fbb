//! The shapes of a model's answers.

use serde::Deserialize;

use crate::orchestrator::coder::checked;
use crate::orchestrator::llm::Answer;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramAnswer {
    pub(super) code: String,
    /// Lets the model think aloud in its place; nobody reads it.
    #[serde(default, rename = "explanation")]
    _explanation: Option<String>,
}

impl Answer for ProgramAnswer {
    const SCHEMA: &'static str = r#"{"type": "object", "additionalProperties": false, "required": ["code"],
 "properties": {"explanation": {"type": "string"},
                "code": {"type": "string", "description": "the whole program"}}}"#;

    fn check(&self) -> Result<(), String> {
        checked(self.code.clone()).map(drop)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum DecisionAnswer {
    #[serde(rename = "FINISH")]
    Finish,
    #[serde(rename = "FIX")]
    Fix,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JudgedAnswer {
    decision: DecisionAnswer,
    pub(super) confidence: f64,
    #[serde(default)]
    pub(super) issues: Vec<String>,
    #[serde(default)]
    pub(super) reason: String,
}

impl JudgedAnswer {
    pub(super) fn is_finish(&self) -> bool {
        self.decision == DecisionAnswer::Finish
    }
}

impl Answer for JudgedAnswer {
    const SCHEMA: &'static str = r#"{"type": "object", "additionalProperties": false, "required": ["decision", "confidence"],
 "properties": {"decision": {"enum": ["FINISH", "FIX"]},
                "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                "issues": {"type": "array", "items": {"type": "string"}},
                "reason": {"type": "string"}}}"#;

    fn check(&self) -> Result<(), String> {
        if (0.0..=1.0).contains(&self.confidence) {
            Ok(())
        } else {
            Err("confidence is not between 0 and 1".to_owned())
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExplainedAnswer {
    pub(super) error_category: String,
    pub(super) error_summary: String,
    pub(super) suggested_fix: String,
}

impl Answer for ExplainedAnswer {
    const SCHEMA: &'static str = r#"{"type": "object", "additionalProperties": false,
 "required": ["error_category", "error_summary", "suggested_fix"],
 "properties": {"error_category": {"type": "string"}, "error_summary": {"type": "string"},
                "suggested_fix": {"type": "string"}}}"#;

    fn check(&self) -> Result<(), String> {
        let fields = [
            &self.error_category,
            &self.error_summary,
            &self.suggested_fix,
        ];
        if fields.iter().any(|field| field.trim().is_empty()) {
            return Err("a field is empty".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Whether type and schema agree about the names of the fields, and which of them have to be there.
    fn agree<T: Answer>(sample: &Value) {
        let schema: Value = serde_json::from_str(T::SCHEMA).unwrap();
        assert_eq!(schema["additionalProperties"], false);
        let required: Vec<&str> = schema["required"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        let sample = sample.as_object().unwrap();
        let properties = schema["properties"].as_object().unwrap();
        let names = |of: &serde_json::Map<String, Value>| {
            let mut names: Vec<String> = of.keys().cloned().collect();
            names.sort();
            names
        };
        assert_eq!(names(properties), names(sample));
        let reads = |value: &serde_json::Map<String, Value>| {
            serde_json::from_value::<T>(Value::Object(value.clone())).is_ok()
        };
        assert!(reads(sample));
        for name in sample.keys() {
            let mut without = sample.clone();
            without.remove(name);
            assert_eq!(
                reads(&without),
                !required.contains(&name.as_str()),
                "{name}"
            );
        }
        let mut more = sample.clone();
        more.insert("more".to_owned(), json!(1));
        assert!(!reads(&more));
    }

    #[test]
    fn types_and_schemas_agree() {
        agree::<ProgramAnswer>(&json!({"code": "x", "explanation": "y"}));
        agree::<JudgedAnswer>(
            &json!({"decision": "FIX", "confidence": 0.5, "issues": ["x"], "reason": "y"}),
        );
        agree::<ExplainedAnswer>(
            &json!({"error_category": "x", "error_summary": "y", "suggested_fix": "z"}),
        );
    }

    #[test]
    fn what_a_type_does_not_say_is_checked() {
        let judged = |confidence: f64| {
            let answer = json!({"decision": "FINISH", "confidence": confidence});
            serde_json::from_value::<JudgedAnswer>(answer)
                .unwrap()
                .check()
        };
        assert!(judged(0.0).is_ok() && judged(1.0).is_ok());
        assert!(judged(1.5).is_err() && judged(-0.1).is_err());
        let program: ProgramAnswer = serde_json::from_value(json!({"code": " "})).unwrap();
        assert!(program.check().is_err());
    }
}
