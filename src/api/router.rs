//! Every route in one table.

use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn;
use axum::routing::{MethodRouter, get, post};

use super::error::ApiError;
use super::{ApiState, health, layers, runs, settings};

/// The whole interface, to be served or called without a socket.
pub fn router(state: ApiState) -> Router {
    Router::new()
        .route("/health", only_get(health::health))
        .route("/live", only_get(health::live))
        .route("/ready", only_get(health::ready))
        .route("/settings", only_get(settings::settings))
        .route(
            "/runs",
            get(runs::list)
                .post(runs::create)
                .head(refuse("GET, POST"))
                .fallback(refuse("GET, POST")),
        )
        .route("/runs/{run_id}", only_get(runs::show))
        .route("/runs/{run_id}/episodes", only_get(runs::episodes))
        .route("/runs/{run_id}/artifacts", only_get(runs::artifacts))
        .route("/runs/{run_id}/events", only_get(runs::events))
        .route("/runs/{run_id}/receipt", only_get(runs::receipt))
        .route(
            "/runs/{run_id}/cancel",
            post(runs::cancel).fallback(refuse("POST")),
        )
        .fallback(async || ApiError::NotFound)
        .layer(from_fn(layers::answer_panics))
        .layer(from_fn(layers::log_failures))
        .layer(from_fn(layers::set_headers))
        .with_state(state)
}

/// A route with `GET` alone: like the replaced system, it does not answer `HEAD`.
fn only_get<H, T>(handler: H) -> MethodRouter<ApiState>
where
    H: Handler<T, ApiState>,
    T: 'static,
{
    get(handler).head(refuse("GET")).fallback(refuse("GET"))
}

fn refuse(allow: &'static str) -> impl Handler<((),), ApiState> {
    async move || ApiError::MethodNotAllowed { allow }
}
