//! What programs say.

use serde_json::Value;

/// The JSON document that a successful program printed.
#[track_caller]
pub(crate) fn printed(result: &Value) -> Value {
    assert_eq!(result["status"], "SUCCESS", "{result:#}");
    let text = result["stdout"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"))
}

/// The names in a list of objects.
#[track_caller]
pub(crate) fn paths(list: &Value) -> Vec<&str> {
    let list = list.as_array().unwrap();
    list.iter()
        .map(|entry| entry["path"].as_str().unwrap())
        .collect()
}
