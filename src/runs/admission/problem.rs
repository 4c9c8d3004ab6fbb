//! What can be wrong with a field of a request, in the words of the interface: the type names and
//! messages of pydantic 2, which clients of the replaced system match on.

use std::fmt;

use serde_json::{Map, Value};

/// The longest echoed input, in characters of its JSON text.
const MAX_ECHO: usize = 1000;

/// Fields whose values are programs or data, which no response may hold.
const NEVER_ECHOED: [&str; 3] = ["code", "input_files", "bash_script"];

/// One thing that is wrong with a request.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// What.
    pub problem: Problem,
    /// Where: `body` or `query`, then names and positions.
    pub location: Vec<Place>,
    /// What was sent there, cut, without programs or data.
    pub input: Value,
}

/// One step of a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A field.
    Name(String),
    /// A position in a list or, for malformed JSON, in the text.
    Index(usize),
}

impl From<&str> for Place {
    fn from(name: &str) -> Self {
        Self::Name(cut(name, 200))
    }
}

impl From<usize> for Place {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// The kinds of problems.
#[derive(Debug, Clone, PartialEq)]
pub enum Problem {
    /// A required field is not there.
    Missing,
    /// The body is no JSON; with the parser's words.
    JsonInvalid(String),
    /// The body is JSON, or not even that, but no object.
    NotAnObject,
    /// No string.
    StringType,
    /// No object.
    DictType,
    /// No list.
    ListType,
    /// Nothing like a boolean.
    BoolType,
    /// A string or number where a boolean belongs.
    BoolParsing,
    /// No integer.
    IntType,
    /// A query parameter that is no integer.
    IntParsing,
    /// A number with a fractional part where an integer belongs.
    IntFromFloat,
    /// No number.
    FloatType,
    /// A number too large to be one.
    FiniteNumber,
    /// Not above the bound.
    GreaterThan(Bound),
    /// Below the least.
    GreaterThanEqual(Bound),
    /// Above the most.
    LessThanEqual(Bound),
    /// None of the values that are possible.
    Literal(Vec<String>),
    /// A string with more characters than this.
    StringTooLong(usize),
    /// A list or an object with more items than this.
    TooLong(usize),
    /// A text that is no base64.
    Base64,
    /// Anything else, in words.
    Value(String),
}

/// A bound, written without needless decimals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound(pub f64);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Problem {
    /// The name of the kind.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::JsonInvalid(_) => "json_invalid",
            Self::NotAnObject => "model_attributes_type",
            Self::StringType => "string_type",
            Self::DictType => "dict_type",
            Self::ListType => "list_type",
            Self::BoolType => "bool_type",
            Self::BoolParsing => "bool_parsing",
            Self::IntType => "int_type",
            Self::IntParsing => "int_parsing",
            Self::IntFromFloat => "int_from_float",
            Self::FloatType => "float_type",
            Self::FiniteNumber => "finite_number",
            Self::GreaterThan(_) => "greater_than",
            Self::GreaterThanEqual(_) => "greater_than_equal",
            Self::LessThanEqual(_) => "less_than_equal",
            Self::Literal(_) => "literal_error",
            Self::StringTooLong(_) => "string_too_long",
            Self::TooLong(_) => "too_long",
            Self::Base64 => "base64_decode",
            Self::Value(_) => "value_error",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Missing => "Field required",
            Self::JsonInvalid(_) => "JSON decode error",
            Self::NotAnObject => {
                "Input should be a valid dictionary or object to extract fields from"
            }
            Self::StringType => "Input should be a valid string",
            Self::DictType => "Input should be a valid dictionary",
            Self::ListType => "Input should be a valid list",
            Self::BoolType => "Input should be a valid boolean",
            Self::BoolParsing => "Input should be a valid boolean, unable to interpret input",
            Self::IntType => "Input should be a valid integer",
            Self::IntParsing => {
                "Input should be a valid integer, unable to parse string as an integer"
            }
            Self::IntFromFloat => {
                "Input should be a valid integer, got a number with a fractional part"
            }
            Self::FloatType => "Input should be a valid number",
            Self::FiniteNumber => "Input should be a finite number",
            Self::GreaterThan(bound) => {
                return write!(f, "Input should be greater than {bound}");
            }
            Self::GreaterThanEqual(bound) => {
                return write!(f, "Input should be greater than or equal to {bound}");
            }
            Self::LessThanEqual(bound) => {
                return write!(f, "Input should be less than or equal to {bound}");
            }
            Self::Literal(values) => return literal(f, values),
            Self::StringTooLong(most) => {
                return write!(f, "String should have at most {most} characters");
            }
            Self::TooLong(most) => {
                return write!(f, "Input should have at most {most} items");
            }
            Self::Base64 => "Base64 decoding error: 'Input should be valid base64'",
            Self::Value(text) => return write!(f, "Value error, {text}"),
        };
        f.write_str(text)
    }
}

fn literal(f: &mut fmt::Formatter<'_>, values: &[String]) -> fmt::Result {
    let Some((last, first)) = values.split_last() else {
        return f.write_str("Input is not accepted: no value is configured");
    };
    f.write_str("Input should be ")?;
    for (index, value) in first.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(f, "{separator}'{value}'")?;
    }
    let or = if first.is_empty() { "" } else { " or " };
    write!(f, "{or}'{last}'")
}

/// Everything that is wrong with a request, collected in the order of its fields.
#[derive(Debug, Default)]
pub(super) struct Problems(pub(super) Vec<FieldError>);

impl Problems {
    pub(super) fn add(&mut self, problem: Problem, location: &[&str], input: &Value) {
        let location = location.iter().copied().map(Place::from).collect();
        self.add_at(problem, location, input);
    }

    pub(super) fn add_at(&mut self, problem: Problem, location: Vec<Place>, input: &Value) {
        let program = location.iter().any(
            |place| matches!(place, Place::Name(name) if NEVER_ECHOED.contains(&name.as_str())),
        );
        let input = if program && !input.is_number() && !input.is_boolean() {
            Value::Null
        } else {
            echo(input)
        };
        self.0.push(FieldError {
            problem,
            location,
            input,
        });
    }
}

/// What of an input may be shown again: no programs or data, and not much of it.
#[must_use]
pub fn echo(input: &Value) -> Value {
    let shown = without_programs(input);
    let text = shown.to_string();
    if text.len() <= MAX_ECHO {
        return shown;
    }
    match shown {
        Value::String(text) => Value::String(cut(&text, MAX_ECHO)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Value::String(cut(&text, MAX_ECHO))
        }
    }
}

fn without_programs(input: &Value) -> Value {
    match input {
        Value::Object(fields) => {
            let shown: Map<String, Value> = fields
                .iter()
                .map(|(name, value)| {
                    let hidden = NEVER_ECHOED.contains(&name.as_str());
                    let value = if hidden {
                        Value::Null
                    } else {
                        without_programs(value)
                    };
                    (name.clone(), value)
                })
                .collect();
            Value::Object(shown)
        }
        Value::Array(items) => Value::Array(items.iter().map(without_programs).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => input.clone(),
    }
}

fn cut(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_echo_holds_no_program_and_is_short() {
        let body = json!({"code": "SECRET", "x": [{"bash_script": "SECRET"}], "n": 1});
        let shown = json!({"code": null, "x": [{"bash_script": null}], "n": 1});
        assert_eq!(echo(&body), shown);
        let long = echo(&json!({"x": "é".repeat(5000)}));
        assert!(long.as_str().unwrap().chars().count() <= 1001);
        assert_eq!(
            echo(&json!("a".repeat(1001))),
            json!(format!("{}…", "a".repeat(1000)))
        );
    }

    #[test]
    fn the_words_are_the_ones_clients_match_on() {
        let values = |values: &[&str]| {
            Problem::Literal(values.iter().map(ToString::to_string).collect()).to_string()
        };
        assert_eq!(
            values(&["mock", "real"]),
            "Input should be 'mock' or 'real'"
        );
        assert_eq!(values(&["a"]), "Input should be 'a'");
        assert_eq!(values(&["a", "b", "c"]), "Input should be 'a', 'b' or 'c'");
        let bound = Bound(86_400.0);
        let text = "Input should be less than or equal to 86400";
        assert_eq!(Problem::LessThanEqual(bound).to_string(), text);
        assert_eq!(
            Problem::GreaterThan(Bound(0.0)).to_string(),
            "Input should be greater than 0"
        );
    }
}
