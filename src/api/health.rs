//! Whether the daemon is there, and whether it can work.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::ApiState;
use crate::runs::store::StoreError;

/// `GET /health`: the replaced system's answer.
pub(super) async fn health() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// `GET /live`: the process answers.
pub(super) async fn live() -> Json<Value> {
    Json(json!({ "status": "ok" }))
}

/// `GET /ready`: runs can be accepted and carried out.
pub(super) async fn ready(State(state): State<ApiState>) -> (StatusCode, Json<Value>) {
    let mut reasons = state.readiness.check().await;
    let engine = state.readiness.engine();
    if !state.runs.accepting() {
        reasons.push("the daemon is shutting down".to_owned());
    } else if let Err(error) = state.runs.room().await {
        let reason = if matches!(error, StoreError::LowSpace { .. }) {
            "the disk is nearly full: runs that were accepted are carried out, new ones are refused; \
             free some space"
        } else {
            "the disk of the store does not answer"
        };
        reasons.push(reason.to_owned());
    }
    let (status, mut body) = if reasons.is_empty() {
        let pool = json!({
            "size": state.config.pool.size,
            "waiting": state.readiness.waiting_sandboxes(),
        });
        let body = json!({ "status": "ready", "pool": pool });
        (StatusCode::OK, body)
    } else {
        let mut body = json!({ "status": "unavailable", "reasons": reasons });
        if let Some(since) = engine.since {
            body["since"] = json!(since);
        }
        (StatusCode::SERVICE_UNAVAILABLE, body)
    };
    // Capacity that is missing, whether or not the rest is enough to go on.
    let set_aside = engine.set_aside;
    if set_aside > 0 {
        body["set_aside"] = json!(set_aside);
    }
    (status, Json(body))
}
