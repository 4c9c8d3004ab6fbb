//! Each error has one answer, and no answer has the inside of an error.

use axum::body::to_bytes;

use super::*;
use crate::execution::paths::input_file_path;

async fn seen(error: ApiError) -> (u16, String, Option<String>) {
    let response = error.into_response();
    let status = response.status().as_u16();
    let names = [ALLOW, RETRY_AFTER, CONNECTION, WWW_AUTHENTICATE];
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
            ApiError::Unauthenticated,
            401,
            "Not authenticated",
            Some("www-authenticate: Bearer"),
        ),
        (
            ApiError::Forbidden {
                needed: Role::Submit,
            },
            403,
            "The token's role does not allow this: it has to be submit",
            None,
        ),
        (ApiError::TokensUnavailable, 503, unavailable, retry),
        (ApiError::HostNotAllowed, 421, "Host not allowed", None),
        (ApiError::OriginNotAllowed, 403, "Origin not allowed", None),
        (
            ApiError::OverQuota {
                quota: Quota::Waiting,
                standing: Standing::queued_runs(7),
            },
            429,
            "Too many runs of this tenant are waiting",
            retry,
        ),
        (
            SubmitError::OverQuota(Quota::Storage).into(),
            429,
            "The room of this tenant is used up",
            retry,
        ),
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
            AdmissionError::NoModel.into(),
            400,
            r#"No model is configured: set llm.base_url and llm.model, use the option llm_mode \"mock\", or send the Python program in \"code\"."#,
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
            SubmitError::Closed {
                reasons: vec!["SECRET".to_owned()],
            }
            .into(),
            503,
            unavailable,
            retry,
        ),
        (
            SubmitError::ShuttingDown.into(),
            503,
            "Service is shutting down",
            retry,
        ),
        (SubmitError::Store(store()).into(), 503, unavailable, retry),
        (
            SubmitError::Store(StoreError::LowSpace { free: 1, floor: 2 }).into(),
            507,
            "The server's disk is nearly full, so no new runs are accepted; those that were accepted \
             go on. Try again later, or ask its operator to free some space",
            Some("retry-after: 60"),
        ),
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
