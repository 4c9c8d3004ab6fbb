//! What happens to every answer: fixed headers, one log line per failure of ours, and an answer
//! even if a handler panics.

use std::error::Error;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;

use axum::extract::{MatchedPath, Request};
use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;

use super::error::{ApiError, Failure};

/// What every answer has (security.md row 78): no browser guesses its type, keeps it, shows it in another
/// page, or tells where it was.
const FIXED_HEADERS: [(HeaderName, &str); 4] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (REFERRER_POLICY, "no-referrer"),
];

const NOTHING_IN_IT: HeaderValue =
    HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");

pub(super) async fn set_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in FIXED_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // A page of ours says itself what it needs.
    headers
        .entry(CONTENT_SECURITY_POLICY)
        .or_insert(NOTHING_IN_IT);
    response
}

pub(super) async fn log_failures(request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    if let Some(Failure(error)) = response.extensions().get() {
        // The route and not the path, which is the client's text.
        let route = route.as_ref().map_or("-", MatchedPath::as_str);
        let status = response.status().as_u16();
        tracing::error!(%method, route, status, error = chain(error.as_ref()), "request failed");
    }
    response
}

pub(super) async fn answer_panics(request: Request, next: Next) -> Response {
    // The panic's message is written by the panic hook; what a handler held is dropped.
    AssertUnwindSafe(next.run(request))
        .catch_unwind()
        .await
        .unwrap_or_else(|_| ApiError::Panicked.into_response())
}

/// An error with everything that caused it, on one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let _infallible = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn a_page_says_itself_what_may_be_in_it_and_nothing_else_may_have_anything() {
        const OWN: &str = "default-src 'self'";
        let router: Router = Router::new()
            .route("/page", get(async || [(CONTENT_SECURITY_POLICY, OWN)]))
            .route("/answer", get(async || [(CACHE_CONTROL, "max-age=600")]))
            .layer(from_fn(set_headers));
        let ask = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
            (header("content-security-policy"), header("cache-control"))
        };
        let kept = "no-store".to_owned();
        assert_eq!(ask("/page").await, (OWN.to_owned(), kept.clone()));
        let nothing = NOTHING_IN_IT.to_str().unwrap().to_owned();
        assert_eq!(ask("/answer").await, (nothing, kept));
    }
}
