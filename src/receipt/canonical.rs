//! The one spelling of a JSON value (RFC 8785): keys in order of their UTF-16 code units, no space,
//! the shortest escapes, and of numbers only the integers that every reader takes exactly.
//!
//! Pure, and writing cannot fail: a number of any other kind is written as a string of its digits.
//! Receipts hold none but very large counters, and a document that has one as a number is not canonical.
//! Whether a text is canonical is told by [`check`] without building the value, which takes many
//! times the memory of the text: that can be anybody's.

mod scan;

use serde_json::{Number, Value};

/// The largest integer that a reader with double precision takes exactly: 2⁵³ − 1.
const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

pub use scan::{Flaw, check};

/// The canonical text of a value.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => match safe_integer(number) {
            Some(integer) => text.push_str(&integer.to_string()),
            None => write_string(&number.to_string(), text),
        },
        Value::String(string) => write_string(string, text),
        Value::Array(list) => {
            text.push('[');
            for (index, value) in list.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(value, text);
            }
            text.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_by(|a, b| a.0.encode_utf16().cmp(b.0.encode_utf16()));
            text.push('{');
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_string(key, text);
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
    }
}

fn safe_integer(number: &Number) -> Option<i64> {
    let integer = number.as_i64()?;
    (-MAX_SAFE_INTEGER..=MAX_SAFE_INTEGER)
        .contains(&integer)
        .then_some(integer)
}

fn write_string(string: &str, text: &mut String) {
    text.push('"');
    for character in string.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\u{8}' => text.push_str("\\b"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\u{c}' => text.push_str("\\f"),
            '\r' => text.push_str("\\r"),
            control if control < ' ' => {
                text.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => text.push(other),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn respelled(text: &str) -> String {
        canonical(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn keys_are_sorted_by_code_units_at_every_depth() {
        // RFC 8785, section 3.2.3: an emoji is a surrogate pair and comes before U+FB33.
        let given = json!({
            "\u{20ac}": 1, "\r": 2, "\u{fb33}": 3, "1": 4, "\u{1f600}": 5, "\u{80}": 6, "\u{f6}": 7,
        });
        let text = canonical(&given);
        let order: Vec<char> = text.chars().filter(char::is_ascii_digit).collect();
        // The key "1" is itself a digit.
        assert_eq!(order.iter().collect::<String>(), "21467153");
        assert_eq!(
            respelled(r#"{"b":{"z":1,"a":2},"a":[]}"#),
            r#"{"a":[],"b":{"a":2,"z":1}}"#
        );
    }

    #[test]
    fn strings_have_the_shortest_escapes() {
        let given = Value::from("\u{20ac}$\u{f}\nA'\u{42}\"\\\u{8}\u{c}\r\t/\u{7f}");
        let expected = "\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\b\\f\\r\\t/\u{7f}\"";
        assert_eq!(canonical(&given), expected);
        assert_eq!(respelled(r#""\u0041\/""#), r#""A/""#);
    }

    #[test]
    fn integers_are_exact_and_everything_else_is_a_string() {
        for (given, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("-17", "-17"),
            ("9007199254740991", "9007199254740991"),
            ("9007199254740992", "\"9007199254740992\""),
            ("18446744073709551615", "\"18446744073709551615\""),
            ("1.5", "\"1.5\""),
        ] {
            assert_eq!(respelled(given), expected);
        }
        // Another spelling of an integer is no integer, so that none passes for canonical.
        assert_ne!(respelled("1e2"), "1e2");
        assert_ne!(respelled("1.0"), "1.0");
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((".*", inner), 0..6)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    fn is_canonical(text: &str) -> bool {
        check(text).is_ok()
    }

    /// The same by way of the value.
    fn by_value(text: &str) -> bool {
        serde_json::from_str(text).is_ok_and(|value: Value| canonical(&value) == text)
    }

    #[test]
    fn only_the_one_spelling_is_canonical() {
        for text in [
            "0",
            "-17",
            "9007199254740991",
            "-9007199254740991",
            "null",
            "true",
            "false",
            "[]",
            "{}",
            "[[],{},\"\"]",
            "{\"a\":{\"b\":[1,2]},\"b\":null}",
            "{\"\\r\":1,\"1\":2,\"\u{80}\":3,\"\u{20ac}\":4,\"\u{1f600}\":5,\"\u{fb33}\":6}",
            "\"\u{20ac}\\u000f\\n\\\"\\\\\\b\\f\\r\\t/\u{7f}\"",
        ] {
            assert!(is_canonical(text) && by_value(text), "{text}");
        }
        for text in [
            "",
            " 0",
            "0 ",
            "00",
            "01",
            "-0",
            "-",
            "+1",
            "1.0",
            "1e2",
            "9007199254740992",
            "-9007199254740992",
            "99999999999999999999",
            "nul",
            "nulll",
            "True",
            "[1,]",
            "[,1]",
            "[1 ,2]",
            "[1}",
            "[",
            "{",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"b\":1,\"a\":2}",
            "{\"a\":1,\"a\":1}",
            "{\"\u{fb33}\":1,\"\u{1f600}\":2}",
            "{1:2}",
            "\"a",
            "\"a\nb\"",
            "\"\\/\"",
            "\"\\u0041\"",
            "\"\\u000F\"",
            "\"\\u000a\"",
            "\"\\u00e9\"",
            "\"\\ud800\"",
            "\"\\x\"",
            "\"\\\"",
            "1 2",
            "[]]",
        ] {
            assert!(!is_canonical(text) && !by_value(text), "{text}");
        }
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(is_canonical(&nested(64)));
        assert_eq!(check(&nested(65)), Err(Flaw::Depth));
        assert_eq!(check(&"[".repeat(1_000_000)), Err(Flaw::Depth));
    }

    proptest! {
        #[test]
        fn the_canonical_text_is_json_and_its_own_canonical_text(value in value()) {
            let text = canonical(&value);
            prop_assert!(is_canonical(&text));
            prop_assert_eq!(respelled(&text), text);
        }

        #[test]
        fn without_the_value_the_same_is_told_as_with_it(
            value in value(), at in any::<prop::sample::Index>(), by in "[ 0-9a{}\\[\\],:\"\\\\-]{0,2}",
        ) {
            let mut text = canonical(&value);
            let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
            let place = places[at.index(places.len())];
            text.replace_range(place..=place + text[place..].chars().next().map_or(0, char::len_utf8) - 1, &by);
            prop_assert_eq!(is_canonical(&text), by_value(&text), "{}", text);
        }
    }
}
