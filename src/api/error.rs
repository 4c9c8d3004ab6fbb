//! The one place where errors become answers. Conversion has no side effect: a failure of ours
//! rides along in the response's extensions, for the one layer that logs.

use std::sync::Arc;

use axum::Json;
use axum::http::header::{ALLOW, CONNECTION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Value, json};

use super::rate_limit::Standing;
use crate::auth::Role;
use crate::runs::admission::{AdmissionError, FieldError, Place, Problem};
use crate::runs::service::SubmitError;
use crate::runs::store::StoreError;
use crate::runs::tenants::Quota;

/// Why a request did not get what it asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("no such path")]
    NotFound,
    #[error("the path has other methods: {allow}")]
    MethodNotAllowed { allow: &'static str },
    /// Whatever is wrong with a token: nobody learns what.
    #[error("no valid token was sent")]
    Unauthenticated,
    #[error("the token's role is not enough")]
    Forbidden { needed: Role },
    #[error("the tokens file cannot be used")]
    TokensUnavailable,
    #[error("the request came by a name that is not the daemon's")]
    HostNotAllowed,
    #[error("the request came from a page of another origin")]
    OriginNotAllowed,
    #[error("the tenant has had all the runs of this minute")]
    TooManyRuns(Standing),
    #[error("as many requests of the tenant are being answered as may be")]
    TooManyRequests(Standing),
    #[error("the queue is full")]
    QueueFull(Standing),
    #[error("{quota}")]
    OverQuota { quota: Quota, standing: Standing },
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

/// Room comes back when somebody or retention makes some, not in a moment.
const LOW_SPACE_RETRY_SECONDS: HeaderValue = HeaderValue::from_static("60");

const LOW_SPACE: &str = "The server's disk is nearly full, so no new runs are accepted; those that \
                         were accepted go on. Try again later, or ask its operator to free some space";

const UNAVAILABLE: &str = "Service temporarily unavailable";

/// How to authenticate.
const BEARER: HeaderValue = HeaderValue::from_static("Bearer");

/// What a client is told.
struct Answer {
    status: StatusCode,
    detail: Value,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Answer {
    fn new(status: StatusCode, detail: &str) -> Self {
        Self {
            status,
            detail: detail.into(),
            headers: Vec::new(),
        }
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
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
        ApiError::Unauthenticated => {
            new(StatusCode::UNAUTHORIZED, "Not authenticated").with(WWW_AUTHENTICATE, BEARER)
        }
        ApiError::Forbidden { needed } => {
            let role = needed.as_str();
            let text = format!("The token's role does not allow this: it has to be {role}");
            new(StatusCode::FORBIDDEN, &text)
        }
        ApiError::HostNotAllowed => new(StatusCode::MISDIRECTED_REQUEST, "Host not allowed"),
        ApiError::OriginNotAllowed => new(StatusCode::FORBIDDEN, "Origin not allowed"),
        ApiError::TooManyRuns(standing) => used_up("Too many runs per minute", standing),
        ApiError::TooManyRequests(standing) => {
            used_up("Too many requests of this tenant at once", standing)
        }
        ApiError::QueueFull(standing) => used_up("Too many runs are waiting", standing),
        ApiError::OverQuota { quota, standing } => used_up(words(*quota), standing),
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
            | AdmissionError::NoModel => new(StatusCode::BAD_REQUEST, &error.to_string()),
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
            // With headers it is `ApiError::QueueFull`.
            SubmitError::QueueFull { .. } => {
                later(StatusCode::TOO_MANY_REQUESTS, "Too many runs are waiting")
            }
            // With where the tenant stands it is `ApiError::OverQuota`.
            SubmitError::OverQuota(quota) => later(StatusCode::TOO_MANY_REQUESTS, words(*quota)),
            SubmitError::KeyReused => new(
                StatusCode::CONFLICT,
                "Idempotency-Key was used with another request body",
            ),
            SubmitError::Closed { .. } => later(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE),
            SubmitError::ShuttingDown => {
                later(StatusCode::SERVICE_UNAVAILABLE, "Service is shutting down")
            }
            SubmitError::Store(StoreError::LowSpace { .. }) => {
                new(StatusCode::INSUFFICIENT_STORAGE, LOW_SPACE)
                    .with(RETRY_AFTER, LOW_SPACE_RETRY_SECONDS)
            }
            SubmitError::Store(_) => later(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE),
        },
        ApiError::AlreadyEnded => new(StatusCode::CONFLICT, "Run has already ended"),
        ApiError::Store(_)
        | ApiError::TokensUnavailable
        | ApiError::TooManyBodies
        | ApiError::TooManyStreams
        | ApiError::CheckTimeout => later(StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE),
        ApiError::Task(_) | ApiError::Panicked => {
            new(StatusCode::INTERNAL_SERVER_ERROR, "Internal Server Error")
        }
    }
}

fn used_up(detail: &str, standing: &Standing) -> Answer {
    Answer {
        headers: standing.refusal_headers(),
        ..Answer::new(StatusCode::TOO_MANY_REQUESTS, detail)
    }
}

/// What a client is told about a quota that is used up.
fn words(quota: Quota) -> &'static str {
    match quota {
        Quota::Waiting => "Too many runs of this tenant are waiting",
        Quota::CpuTime => "The CPU time of this tenant is used up for today",
        Quota::CpuReserved => "The CPU time of this tenant is reserved for its unfinished runs",
        Quota::Storage => "The room of this tenant is used up",
    }
}

fn fields(errors: &[FieldError]) -> Answer {
    Answer {
        status: StatusCode::UNPROCESSABLE_ENTITY,
        detail: errors.iter().map(field).collect(),
        headers: Vec::new(),
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
            headers,
        } = answer(&self);
        let mut response = (status, Json(Body { detail })).into_response();
        for (name, value) in headers {
            response.headers_mut().insert(name, value);
        }
        if status.is_server_error() {
            response.extensions_mut().insert(Failure(Arc::new(self)));
        }
        response
    }
}

#[cfg(test)]
mod tests;
