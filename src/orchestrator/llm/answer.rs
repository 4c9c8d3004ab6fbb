//! From what a model wrote to a value of the expected shape: no I/O.
//!
//! Models put JSON into fences, and prose around it. The first JSON object that fits counts,
//! wherever it stands; what is inside of an object is not looked at on its own.

use serde::de::DeserializeOwned;
use serde_json::{Deserializer, Value};

/// Places in one text where an object may begin.
const MAX_CANDIDATES: usize = 64;

/// Characters of an error that the model is told.
const MAX_REASON: usize = 300;

/// A shape that a model is asked for. The type refuses unknown fields.
pub trait Answer: DeserializeOwned {
    /// The same as a JSON schema, for the prompt.
    const SCHEMA: &'static str;

    /// What the type alone does not say.
    ///
    /// # Errors
    ///
    /// What is wrong, in words for the model.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// An answer that is not of the expected shape. Its text is for the model, and may quote it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidAnswer(pub String);

/// Reads an answer. `hide` takes out of each text what must not be kept: only here nothing is escaped any
/// more.
///
/// # Errors
///
/// What is wrong with the object that came first.
pub(super) fn read<T: Answer>(text: &str, hide: &dyn Fn(&mut String)) -> Result<T, InvalidAnswer> {
    let mut first_problem = None;
    let mut tried = 0;
    let mut from = 0;
    while tried < MAX_CANDIDATES {
        let Some(start) = text[from..].find('{').map(|at| from + at) else {
            break;
        };
        tried += 1;
        let mut values = Deserializer::from_str(&text[start..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(mut value)) => {
                hide_in(&mut value, hide);
                match fitting::<T>(value) {
                    Ok(answer) => return Ok(answer),
                    Err(problem) => first_problem = first_problem.or(Some(problem)),
                }
                from = start + values.byte_offset().max(1);
            }
            Some(Err(error)) => {
                if error.is_eof() {
                    let cut = "the JSON object is cut off".to_owned();
                    first_problem = first_problem.or(Some(cut));
                }
                from = start + 1;
            }
            None => break,
        }
    }
    let problem = first_problem.unwrap_or_else(|| "there is no JSON object in it".to_owned());
    Err(InvalidAnswer(problem.chars().take(MAX_REASON).collect()))
}

/// Never deeper than the parser goes.
fn hide_in(value: &mut Value, hide: &dyn Fn(&mut String)) {
    match value {
        Value::String(text) => hide(text),
        Value::Array(items) => items.iter_mut().for_each(|item| hide_in(item, hide)),
        Value::Object(fields) => {
            let whole = std::mem::take(fields);
            *fields = whole
                .into_iter()
                .map(|(mut name, mut value)| {
                    hide(&mut name);
                    hide_in(&mut value, hide);
                    (name, value)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn fitting<T: Answer>(value: Value) -> Result<T, String> {
    let answer: T = serde_json::from_value(value).map_err(|error| error.to_string())?;
    answer.check()?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sum {
        total: u32,
        #[serde(default)]
        note: String,
    }

    impl Answer for Sum {
        const SCHEMA: &'static str = "{}";

        fn check(&self) -> Result<(), String> {
            if self.total > 100 {
                return Err("total is above 100".to_owned());
            }
            Ok(())
        }
    }

    fn total(text: &str) -> Result<u32, String> {
        read::<Sum>(text, &|_| ())
            .map(|sum| sum.total)
            .map_err(|error| error.0)
    }

    #[test]
    fn json_is_found_bare_in_fences_and_in_prose() {
        let texts = [
            r#"{"total": 7}"#,
            "\u{feff} \n{\"total\": 7}\n",
            "```json\n{\"total\": 7}\n```",
            "```\n{\"total\": 7, \"note\": \"``` {\"}\n``` that is all",
            "Sure! Given {x} and {\"y\": 1}, here it is: {\"total\": 7}. Anything else?",
            "{{\"total\": 7}}",
            "{\"total\": 7}{\"total\": 8}",
        ];
        for text in texts {
            assert_eq!(total(text), Ok(7), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let cases = [
            ("", "no JSON object"),
            ("seven", "no JSON object"),
            ("[7]", "no JSON object"),
            (r#"{"total": 7"#, "cut off"),
            (r#"{"totl": 7}"#, "unknown field `totl`"),
            (r#"{"total": "7"}"#, "invalid type: string"),
            (r#"{"total": -1}"#, "invalid"),
            (r#"{"note": "x"}"#, "missing field `total`"),
            (r#"{"total": 101}"#, "above 100"),
            // Only the whole object counts, not one inside of it.
            (r#"{"answer": {"total": 7}}"#, "unknown field `answer`"),
        ];
        for (text, expected) in cases {
            let problem = total(text).unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn what_must_not_be_kept_is_taken_out_however_it_is_written() {
        let hide = |text: &mut String| *text = text.replace("sk-key", "[REDACTED]");
        let note = |text| read::<Sum>(text, &hide).map(|sum| sum.note);
        for text in [
            r#"{"total": 1, "note": "a sk-key b"}"#,
            r#"{"total": 1, "note": "a \u0073k-\u006bey b"}"#,
        ] {
            assert_eq!(note(text).unwrap(), "a [REDACTED] b");
        }
        // The model is told what is wrong with its answer: not with that in it either.
        let wrong = note(r#"{"total": 1, "\u0073k-key": 1}"#).unwrap_err().0;
        assert!(
            wrong.contains("[REDACTED]") && !wrong.contains("sk-key"),
            "{wrong}"
        );
    }

    #[test]
    fn hostile_texts_cost_little() {
        let deep = r#"{"a":"#.repeat(100_000);
        assert!(total(&deep).is_err());
        let open = "{\"a".repeat(300_000);
        assert!(total(&open).is_err());
        let long = format!("{{\"{}\": 1}}", "x".repeat(100_000));
        assert!(total(&long).unwrap_err().chars().count() <= MAX_REASON);
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r#"[{}"\\:,a1é` \n]{0,60}"#) {
            drop(total(&text));
        }
    }
}
