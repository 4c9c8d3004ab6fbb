//! What handlers take from the head of a request: ids, parameters and headers.

use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::error::ApiError;
use crate::ids::RunId;
use crate::runs::admission::problem::{Bound, echo};
use crate::runs::admission::{FieldError, Problem};
use crate::runs::store::RunFilter;

const DEFAULT_LIMIT: u32 = 20;
const MAX_LIMIT: u32 = 100;
const MAX_WAIT_SECONDS: u64 = 600;
const MAX_KEY_BYTES: usize = 255;

/// The run that the path names. Whatever is no id names no run.
#[derive(Debug)]
pub(super) struct PathRun(pub(super) RunId);

impl<S: Send + Sync> FromRequestParts<S> for PathRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(text) = Path::<String>::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::RunNotFound)?;
        RunId::parse(&text).map(Self).ok_or(ApiError::RunNotFound)
    }
}

/// The parameters of a list of runs.
#[derive(Debug)]
pub(super) struct Listing(pub(super) RunFilter);

impl<S: Send + Sync> FromRequestParts<S> for Listing {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let pairs = query(parts, state).await?;
        listing(&pairs).map(Self).map_err(ApiError::Fields)
    }
}

/// The execution that a query names in its parameter of this name. Of a repeated one the last
/// counts.
#[derive(Debug)]
pub(super) struct OfExecution(pub(super) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for OfExecution {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let mut named = query(parts, state).await?.into_iter().rev();
        let named = named.find(|(key, _)| key == "execution");
        Ok(Self(named.map(|(_, value)| value)))
    }
}

async fn query<S: Send + Sync>(
    parts: &mut Parts,
    state: &S,
) -> Result<Vec<(String, String)>, ApiError> {
    let Query(pairs) = Query::from_request_parts(parts, state).await.map_err(|_| {
        let problem = Problem::Value("the query is malformed".to_owned());
        ApiError::Fields(vec![error(problem, &["query"], "")])
    })?;
    Ok(pairs)
}

fn listing(pairs: &[(String, String)]) -> Result<RunFilter, Vec<FieldError>> {
    const STATUSES: [&str; 5] = ["QUEUED", "RUNNING", "SUCCESS", "FAIL", "CANCELLED"];
    // Of a repeated parameter the last counts.
    let find = |name: &str| {
        let mut found = pairs.iter().rev().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    };
    let mut errors = Vec::new();
    let mut refuse = |problem, name, value| errors.push(error(problem, &["query", name], value));
    let mut filter = RunFilter {
        status: None,
        before: None,
        limit: DEFAULT_LIMIT,
    };
    if let Some(text) = find("limit") {
        match text.parse::<i64>() {
            Err(_) => refuse(Problem::IntParsing, "limit", text),
            Ok(..1) => refuse(Problem::GreaterThanEqual(Bound(1.0)), "limit", text),
            Ok(limit) => match u32::try_from(limit) {
                Ok(limit @ ..=MAX_LIMIT) => filter.limit = limit,
                Ok(_) | Err(_) => {
                    let most = Bound(f64::from(MAX_LIMIT));
                    refuse(Problem::LessThanEqual(most), "limit", text);
                }
            },
        }
    }
    if let Some(text) = find("cursor") {
        filter.before = read_cursor(text);
        if filter.before.is_none() {
            let words = "the cursor is not one of this interface".to_owned();
            refuse(Problem::Value(words), "cursor", text);
        }
    }
    if let Some(text) = find("status") {
        if STATUSES.contains(&text) {
            filter.status = Some(text.to_owned());
        } else {
            let statuses = STATUSES.map(ToOwned::to_owned).to_vec();
            refuse(Problem::Literal(statuses), "status", text);
        }
    }
    if errors.is_empty() {
        Ok(filter)
    } else {
        Err(errors)
    }
}

/// A cursor that continues after the run with this sequence number.
pub(super) fn cursor(sequence: i64) -> String {
    URL_SAFE_NO_PAD.encode(sequence.to_string())
}

fn read_cursor(text: &str) -> Option<i64> {
    if text.len() > 64 {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    std::str::from_utf8(&bytes).ok()?.parse().ok()
}

/// How long to wait for the end of the run: `Prefer: wait=N`. As RFC 7240 wants it, what is not
/// understood is ignored; more than the most is the most.
pub(super) fn wait(headers: &HeaderMap) -> Option<Duration> {
    headers
        .get_all("prefer")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split([',', ';']))
        .find_map(|preference| {
            let (name, value) = preference.split_once('=')?;
            let value = value.trim().trim_matches('"');
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            (digits && name.trim().eq_ignore_ascii_case("wait"))
                .then(|| value.parse().unwrap_or(u64::MAX).min(MAX_WAIT_SECONDS))
        })
        .map(Duration::from_secs)
}

/// The key for repeating a request safely.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let bytes = value.as_bytes();
    let valid = (1..=MAX_KEY_BYTES).contains(&bytes.len())
        && bytes.iter().all(u8::is_ascii_graphic)
        && values.next().is_none();
    if valid {
        return Ok(Some(String::from_utf8_lossy(bytes).into_owned()));
    }
    let words = format!("the key must be 1 to {MAX_KEY_BYTES} visible ASCII characters, once");
    let shown = String::from_utf8_lossy(bytes);
    Err(ApiError::Fields(vec![error(
        Problem::Value(words),
        &["header", "idempotency-key"],
        &shown,
    )]))
}

fn error(problem: Problem, location: &[&str], input: &str) -> FieldError {
    FieldError {
        problem,
        location: location.iter().copied().map(Into::into).collect(),
        input: echo(&Value::String(input.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_wait_is_read_and_bounded() {
        for (values, seconds) in [
            (&["wait=5"][..], Some(5)),
            (&["respond-async, Wait = 7"], Some(7)),
            (&["x", "wait=0; y"], Some(0)),
            (&["wait=601"], Some(600)),
            (&["wait=99999999999999999999999"], Some(600)),
            (&["wait=-1"], None),
            (&["wait=1.5"], None),
            (&["wait="], None),
            (&["wait"], None),
            (&[], None),
        ] {
            let found = wait(&headers("prefer", values)).map(|wait| wait.as_secs());
            assert_eq!(found, seconds, "{values:?}");
        }
    }

    #[test]
    fn a_key_is_visible_ascii_and_not_too_long() {
        let key = |values: &[&str]| idempotency_key(&headers("idempotency-key", values));
        assert_eq!(key(&[]).unwrap(), None);
        assert_eq!(key(&["a-1!"]).unwrap().as_deref(), Some("a-1!"));
        assert!(key(&["a".repeat(255).as_str()]).is_ok());
        for values in [
            &[""][..],
            &["a b"],
            &["é"],
            &["a", "a"],
            &["a".repeat(256).as_str()],
        ] {
            assert!(
                matches!(key(values), Err(ApiError::Fields(_))),
                "{values:?}"
            );
        }
    }

    #[test]
    fn parameters_of_a_list_are_checked() {
        let read = |query: &[(&str, &str)]| {
            let pairs: Vec<_> = query
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            listing(&pairs).map_err(|errors| {
                let kinds = errors.iter().map(|error| error.problem.kind());
                kinds.collect::<Vec<_>>().join(" ")
            })
        };
        let filter = read(&[
            ("limit", "0"),
            ("limit", "100"),
            ("x", "y"),
            ("status", "FAIL"),
        ]);
        let filter = filter.unwrap();
        assert_eq!(
            (filter.limit, filter.status.as_deref()),
            (100, Some("FAIL"))
        );
        let filter = read(&[("cursor", &cursor(42))]).unwrap();
        assert_eq!((filter.limit, filter.before), (20, Some(42)));
        for (name, value, kind) in [
            ("limit", "0", "greater_than_equal"),
            ("limit", "101", "less_than_equal"),
            ("limit", "9999999999", "less_than_equal"),
            ("limit", "x", "int_parsing"),
            ("cursor", "42", "value_error"),
            ("cursor", "é", "value_error"),
            ("status", "fail", "literal_error"),
        ] {
            assert_eq!(
                read(&[(name, value)]),
                Err(kind.to_owned()),
                "{name}={value}"
            );
        }
    }
}
