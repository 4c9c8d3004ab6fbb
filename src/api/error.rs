//! The one place where errors become answers. Conversion has no side effect: a failure of ours
//! rides along in the response's extensions, for the one layer that logs.

use std::sync::Arc;

use axum::Json;
use axum::http::header::{ALLOW, CONNECTION, RETRY_AFTER};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use crate::runs::admission::{AdmissionError, FieldError, Place, Problem};
use crate::runs::service::SubmitError;
use crate::runs::store::StoreError;

/// Why a request did not get what it asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("no such path")]
    NotFound,
    #[error("the path has other methods: {allow}")]
    MethodNotAllowed { allow: &'static str },
    #[error("no such run")]
    RunNotFound,
    #[error("none of the run's executions is over")]
    ReceiptNotFound,
    #[error("a header, a parameter or the body is not valid")]
    Fields(Vec<FieldError>),
    #[error("the run was not admitted")]
    Admission(#[from] AdmissionError),
    #[error("the body is larger than allowed")]
    BodyTooLarge,
    #[error("the body did not arrive in time")]
    BodyTimeout,
    #[error("the body ended early")]
    BodyCut,
    #[error("too many large bodies are arriving")]
    TooManyBodies,
    #[error("too many event streams are open")]
    TooManyStreams,
    #[error("the data set's path could not be checked in time")]
    CheckTimeout,
    #[error("the run was not accepted")]
    Submit(#[from] SubmitError),
    #[error("the run has ended")]
    AlreadyEnded,
    #[error("the store failed")]
    Store(#[from] StoreError),
    #[error("a task ended without an answer")]
    Task(#[from] tokio::task::JoinError),
    #[error("a handler panicked")]
    Panicked,
}

/// An error that the daemon is to blame for, in a response's extensions.
#[derive(Debug, Clone)]
pub(super) struct Failure(pub(super) Arc<ApiError>);

/// Seconds after which another try makes sense.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("5");

const UNAVAILABLE: &str = "Service temporarily unavailable";

/// What a client is told.
struct Answer {
    status: StatusCode,
    detail: Value,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Answer {
    fn new(status: StatusCode, detail: &str) -> Self {
        Self {
            status,
            detail: detail.into(),
            header: None,
        }
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some((name, value));
        self
    }
}

fn answer(error: &ApiError) -> Answer {
    let new = Answer::new;
    let later = |status, detail| new(status, detail).with(RETRY_AFTER, RETRY_SECONDS);
    let close = HeaderValue::from_static("close");
    match error {
        ApiError::NotFound => new(StatusCode::NOT_FOUND, "Not Found"),
        ApiError::RunNotFound => new(StatusCode::NOT_FOUND, "Run not found"),
        ApiError::ReceiptNotFound => new(StatusCode::NOT_FOUND, "Receipt not found"),
        ApiError::MethodNotAllowed { allow } => {
            new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
                .with(ALLOW, HeaderValue::from_static(allow))
        }
        ApiError::Fields(errors) => fields(errors),
        ApiError::Admission(error) => match error {
            AdmissionError::Fields(errors) => fields(errors),
            AdmissionError::Outside
            | AdmissionError::InvalidDirectory
            | AdmissionError::InstructionTooLong
            | AdmissionError::InsecureInputPath(_)
            | AdmissionError::CollidingInputPaths { .. }
            | AdmissionError::NoCode => new(StatusCode::BAD_REQUEST, &error.to_string()),
        },
        ApiError::BodyTooLarge => {
            new(StatusCode::PAYLOAD_TOO_LARGE, "Request body too large").with(CONNECTION, close)
        }
        ApiError::BodyTimeout => {
            new(StatusCode::REQUEST_TIMEOUT, "Request body timed out").with(CONNECTION, close)
        }
        ApiError::BodyCut => new(
            StatusCode::BAD_REQUEST,
            "There was an error parsing the body",
        ),
        ApiError::Submit(error) => match error {
            SubmitError::QueueFull { .. } => {
                later(StatusCode::TOO_MANY_REQUESTS, "Too many runs are waiting")
            }
            SubmitError::KeyReused => new(
                StatusCode::CONFLICT,
                "Idempotency-Key was used with another request body",
            ),
            SubmitError::ShuttingDown => {
                later(StatusCode::SERVICE_UNAVAILABLE, "Service is shutting down")
            }
            SubmitError::Store(_) => later(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE),
        },
        ApiError::AlreadyEnded => new(StatusCode::CONFLICT, "Run has already ended"),
        ApiError::Store(_)
        | ApiError::TooManyBodies
        | ApiError::TooManyStreams
        | ApiError::CheckTimeout => later(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE),
        ApiError::Task(_) | ApiError::Panicked => {
            new(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
        }
    }
}

fn fields(errors: &[FieldError]) -> Answer {
    Answer {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        detail: errors.iter().map(field).collect(),
        header: None,
    }
}

fn field(error: &FieldError) -> Value {
    let FieldError {
        problem,
        location,
        input,
    } = error;
    let location: Vec<Value> = location
        .iter()
        .map(|place| match place {
            Place::Name(name) => name.as_str().into(),
            Place::Index(index) => (*index).into(),
        })
        .collect();
    let mut shown = json!({
        "type": problem.kind(),
        "loc": location,
        "msg": problem.to_string(),
        "input": input,
    });
    if let Problem::JsonInvalid(words) = problem {
        shown["ctx"] = json!({ "error": words });
    }
    shown
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Body {
            detail: Value,
        }

        let Answer {
            status,
            detail,
            header,
        } = answer(&self);
        let mut response = (status, Json(Body { detail })).into_response();
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, value);
        }
        if status.is_server_error() {
            response.extensions_mut().insert(Failure(Arc::new(self)));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;
    use crate::execution::paths::input_file_path;

    async fn seen(error: ApiError) -> (u16, String, Option<String>) {
        let response = error.into_response();
        let status = response.status().as_u16();
        let names = [ALLOW, RETRY_AFTER, CONNECTION];
        let header = names.iter().find_map(|name| {
            Some(format!(
                "{name}: {}",
                response.headers().get(name)?.to_str().ok()?
            ))
        });
        assert_eq!(
            status >= 500,
            response.extensions().get::<Failure>().is_some()
        );
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap(), header)
    }

    #[tokio::test]
    async fn every_error_has_its_status_and_body() {
        let retry = Some("retry-after: 5");
        let close = Some("connection: close");
        let insecure = input_file_path("../x").unwrap_err();
        let colliding = AdmissionError::CollidingInputPaths {
            first: "a".to_owned(),
            second: "./a".to_owned(),
        };
        let store = || StoreError::Corrupt("/secret/path".to_owned());
        let unavailable = "Service temporarily unavailable";
        let table: Vec<(ApiError, u16, &str, Option<&str>)> = vec![
            (ApiError::NotFound, 404, "Not Found", None),
            (ApiError::RunNotFound, 404, "Run not found", None),
            (ApiError::ReceiptNotFound, 404, "Receipt not found", None),
            (
                ApiError::MethodNotAllowed { allow: "GET" },
                405,
                "Method Not Allowed",
                Some("allow: GET"),
            ),
            (
                AdmissionError::Outside.into(),
                400,
                "Dataset path is outside allowed data root",
                None,
            ),
            (
                AdmissionError::InvalidDirectory.into(),
                400,
                "Invalid dataset directory",
                None,
            ),
            (
                AdmissionError::InstructionTooLong.into(),
                400,
                "User instruction exceeds maximum length",
                None,
            ),
            (
                AdmissionError::from(insecure).into(),
                400,
                "Insecure file path detected: Invalid path ../x escapes workspace.",
                None,
            ),
            (
                colliding.into(),
                400,
                "Input files a and ./a name the same path.",
                None,
            ),
            (
                AdmissionError::NoCode.into(),
                400,
                r#"Runs without code are not supported yet: send the Python program in \"code\"."#,
                None,
            ),
            (ApiError::BodyTooLarge, 413, "Request body too large", close),
            (ApiError::BodyTimeout, 408, "Request body timed out", close),
            (
                ApiError::BodyCut,
                400,
                "There was an error parsing the body",
                None,
            ),
            (ApiError::TooManyBodies, 503, unavailable, retry),
            (ApiError::TooManyStreams, 503, unavailable, retry),
            (ApiError::CheckTimeout, 503, unavailable, retry),
            (
                SubmitError::QueueFull { waiting: 7 }.into(),
                429,
                "Too many runs are waiting",
                retry,
            ),
            (
                SubmitError::KeyReused.into(),
                409,
                "Idempotency-Key was used with another request body",
                None,
            ),
            (
                SubmitError::ShuttingDown.into(),
                503,
                "Service is shutting down",
                retry,
            ),
            (SubmitError::Store(store()).into(), 503, unavailable, retry),
            (ApiError::AlreadyEnded, 409, "Run has already ended", None),
            (store().into(), 503, unavailable, retry),
            (ApiError::Panicked, 500, "Internal Server Error", None),
        ];
        for (error, status, detail, header) in table {
            let name = format!("{error:?}");
            let body = format!(r#"{{"detail":"{detail}"}}"#);
            let expected = (status, body, header.map(ToOwned::to_owned));
            assert_eq!(seen(error).await, expected, "{name}");
        }
    }

    #[tokio::test]
    async fn validation_errors_have_the_documented_shape() {
        let error = FieldError {
            problem: Problem::Missing,
            location: vec!["body".into(), "dataset_path".into()],
            input: json!({}),
        };
        let (status, body, _) = seen(ApiError::Fields(vec![error])).await;
        assert_eq!(status, 422);
        let text = r#"{"detail":[{"type":"missing","loc":["body","dataset_path"],"msg":"Field required","input":{}}]}"#;
        assert_eq!(body, text);
        let error = FieldError {
            problem: Problem::JsonInvalid("Expecting value".to_owned()),
            location: vec!["body".into(), 7.into()],
            input: json!({}),
        };
        let (_, body, _) = seen(AdmissionError::Fields(vec![error]).into()).await;
        let text = r#"{"detail":[{"type":"json_invalid","loc":["body",7],"msg":"JSON decode error","input":{},"ctx":{"error":"Expecting value"}}]}"#;
        assert_eq!(body, text);
    }
}
