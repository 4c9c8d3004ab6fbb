//! Request bodies: bounded in size, time, number of values, and in what all of them together may
//! hold; then JSON, with the parser's complaint in the words of the interface.

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::ApiState;
use super::error::ApiError;
use super::identity::Caller;
use crate::runs::admission::{FieldError, Place, Problem};

/// Bodies up to this size do not count towards the budget.
const SMALL_BYTES: usize = 64 << 10;

/// What one permit of the budget stands for.
const PERMIT_BYTES: usize = 1 << 10;

/// Largest bodies that may arrive at the same time.
const BODIES_AT_ONCE: usize = 8;

/// How many of them may be one tenant's where there are several.
const BODIES_OF_ONE: usize = BODIES_AT_ONCE / 2;

/// A short body can hold millions of values, each far larger in memory than in the text.
const MAX_VALUES: usize = 100_000;

/// What all large bodies together may hold, for bodies of at most `max_body_bytes`.
pub(super) fn budget(max_body_bytes: usize) -> Semaphore {
    let permits = permits(max_body_bytes).saturating_mul(BODIES_AT_ONCE);
    Semaphore::new(permits.min(Semaphore::MAX_PERMITS))
}

/// The part of that which one of several tenants may have.
pub(super) fn permits_of_one(max_body_bytes: usize) -> usize {
    permits(max_body_bytes).saturating_mul(BODIES_OF_ONE)
}

fn permits(bytes: usize) -> usize {
    bytes.div_ceil(PERMIT_BYTES)
}

/// A body that has arrived completely.
#[derive(Debug)]
pub(super) struct RequestBody {
    pub(super) bytes: Bytes,
    is_json: bool,
    /// Given back when the body is dropped.
    _room: Vec<OwnedSemaphorePermit>,
}

impl FromRequest<ApiState> for RequestBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &ApiState) -> Result<Self, ApiError> {
        let api = &state.config.api;
        let (parts, body) = request.into_parts();
        let declared = declared_length(&parts.headers);
        let expected = declared.unwrap_or(api.max_body_bytes);
        if expected > api.max_body_bytes {
            return Err(ApiError::BodyTooLarge);
        }
        let patience = Duration::from_secs(api.read_timeout_seconds);
        let of_tenant = parts.extensions.get::<Caller>();
        let of_tenant = of_tenant.and_then(|caller| caller.tenant.bodies.as_ref());
        // The tenant's own first: who waits for that is in nobody else's way.
        let budgets = of_tenant.into_iter().chain([&state.body_budget]);
        let room = timeout(patience, room(budgets, expected))
            .await
            .map_err(|_| ApiError::TooManyBodies)??;
        let bytes = timeout(patience, read(body, api.max_body_bytes))
            .await
            .map_err(|_| ApiError::BodyTimeout)??;
        Ok(Self {
            bytes,
            is_json: is_json(&parts.headers),
            _room: room,
        })
    }
}

fn declared_length(headers: &HeaderMap) -> Option<usize> {
    let text = headers.get(CONTENT_LENGTH)?.to_str().ok()?;
    // The server has refused what is no number; one too large for a usize is too large.
    Some(text.trim().parse().unwrap_or(usize::MAX))
}

async fn room(
    budgets: impl Iterator<Item = &Arc<Semaphore>>,
    bytes: usize,
) -> Result<Vec<OwnedSemaphorePermit>, ApiError> {
    let mut room = Vec::new();
    if bytes <= SMALL_BYTES {
        return Ok(room);
    }
    let permits = u32::try_from(permits(bytes)).map_err(|_| ApiError::BodyTooLarge)?;
    for budget in budgets {
        let part = Arc::clone(budget).acquire_many_owned(permits).await;
        room.push(part.map_err(|_| ApiError::TooManyBodies)?);
    }
    Ok(room)
}

async fn read(mut body: Body, most: usize) -> Result<Bytes, ApiError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::BodyCut)?;
        if let Ok(data) = frame.into_data() {
            if data.len() > most.saturating_sub(bytes.len()) {
                return Err(ApiError::BodyTooLarge);
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes.freeze())
}

/// Without the header, JSON is assumed.
fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return true;
    };
    let essence = value
        .to_str()
        .unwrap_or_default()
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    essence
        .strip_prefix("application/")
        .is_some_and(|subtype| subtype == "json" || subtype.ends_with("+json"))
}

impl RequestBody {
    /// The body as a JSON value; an empty one is `null`.
    ///
    /// # Errors
    ///
    /// What is wrong with it, in the words of the interface.
    pub(super) fn json(&self) -> Result<Value, ApiError> {
        parse(&self.bytes, self.is_json).map_err(|error| ApiError::Fields(vec![*error]))
    }
}

fn parse(bytes: &[u8], is_json: bool) -> Result<Value, Box<FieldError>> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    if !is_json {
        return Err(Box::new(FieldError {
            problem: Problem::NotAnObject,
            location: vec!["body".into()],
            input: Value::Null,
        }));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        invalid(
            String::from_utf8_lossy(valid).chars().count(),
            "Invalid UTF-8",
        )
    })?;
    if let Some(offset) = too_many_values(bytes) {
        return Err(invalid(text[..offset].chars().count(), "Too many values"));
    }
    serde_json::from_str(text).map_err(|error| {
        let words = error.to_string();
        // Without the position, which is counted in another way there.
        let words = match words.split(" at line ").next().unwrap_or_default() {
            "expected value" => "Expecting value",
            other => other,
        };
        invalid(offset(text, error.line(), error.column()), words)
    })
}

fn invalid(offset: usize, words: &str) -> Box<FieldError> {
    Box::new(FieldError {
        problem: Problem::JsonInvalid(words.to_owned()),
        location: vec!["body".into(), Place::Index(offset)],
        input: Value::Object(Map::new()),
    })
}

/// Where the one value too many begins, as a position in bytes at an ASCII character.
fn too_many_values(bytes: &[u8]) -> Option<usize> {
    let mut values = 0;
    let mut in_string = false;
    let mut escaped = false;
    for (offset, byte) in bytes.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b',' | b'[' | b'{' if !in_string => {
                values += 1;
                if values > MAX_VALUES {
                    return Some(offset);
                }
            }
            _ => {}
        }
    }
    None
}

/// The parser counts lines from 1 and bytes of the line; the interface counts characters from 0.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(|line| line.chars().count())
        .sum();
    let line = text
        .split('\n')
        .nth(line.saturating_sub(1))
        .unwrap_or_default();
    let end = column.saturating_sub(1).min(line.len());
    let within = String::from_utf8_lossy(&line.as_bytes()[..end])
        .chars()
        .count();
    before + within
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &[u8]) -> (String, String) {
        let error = parse(text, true).unwrap_err();
        let location = format!("{:?}", error.location.last().unwrap());
        let Problem::JsonInvalid(words) = error.problem else {
            panic!("{error:?}");
        };
        (location, words)
    }

    #[test]
    fn what_is_no_json_is_refused_with_the_place() {
        for (text, offset, words) in [
            (&b"{"[..], 0, "EOF while parsing an object"),
            (b"{\"a\": x}", 6, "Expecting value"),
            (b"{\"\xc3\xa9\":\n \xe2\x98\x83}", 7, "Expecting value"),
            (b"{\"a\": NaN}", 6, "Expecting value"),
            (b"[\"\\ud800\"]", 8, "unexpected end of hex escape"),
            (b"{} x", 3, "trailing characters"),
            (b"\"\xff\"", 1, "Invalid UTF-8"),
            (b"\xef\xbb\xbf{}", 0, "Expecting value"),
        ] {
            let expected = (format!("Index({offset})"), words.to_owned());
            assert_eq!(problem(text), expected, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn deep_nesting_and_masses_of_values_are_refused() {
        let (_, words) = problem("[".repeat(100_000).as_bytes());
        assert_eq!(words, "recursion limit exceeded");
        let (_, words) = problem(format!("[{}1]", "1,".repeat(200_000)).as_bytes());
        assert_eq!(words, "Too many values");
        let code = ",[{".repeat(200_000);
        let text = serde_json::to_vec(&serde_json::json!({ "code": code })).unwrap();
        assert!(
            parse(&text, true).is_ok(),
            "separators in a text do not count"
        );
    }

    #[test]
    fn programs_come_through_unchanged() {
        let code = "'''$(id)`x`\u{0}\r\n\u{feff}\t\u{2028}\"\\ é";
        let text = serde_json::to_vec(&serde_json::json!({ "code": code })).unwrap();
        assert_eq!(parse(&text, true).unwrap()["code"], code);
    }

    #[test]
    fn other_content_types_are_no_object() {
        let error = parse(b"code=SECRET", false).unwrap_err();
        assert_eq!(error.problem, Problem::NotAnObject);
        assert_eq!(error.input, Value::Null);
        assert_eq!(parse(b"", false).unwrap(), Value::Null);
        for (value, json) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/merge-patch+json", true),
            ("text/json", false),
            ("text/plain", false),
            ("multipart/form-data", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(is_json(&headers), json, "{value}");
        }
        assert!(is_json(&HeaderMap::new()));
    }
}
