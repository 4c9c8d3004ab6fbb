//! `POST /runs`: admission, acceptance, and the wait for the end if the client prefers that.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::judgements;
use crate::api::ApiState;
use crate::api::body::RequestBody;
use crate::api::error::ApiError;
use crate::api::extract::{Client, idempotency_key, wait};
use crate::api::views::{ResultView, RunView, WaitedRunView};
use crate::ids::RunId;
use crate::runs::RunRequest;
use crate::runs::admission::admit;
use crate::runs::service::Submitted;
use crate::runs::state::RunState;
use crate::runs::store::IdempotencyKey;

/// A file system that does not answer by then will not answer at all.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// `POST /runs`
pub(crate) async fn create(
    State(state): State<ApiState>,
    Client(client): Client,
    headers: HeaderMap,
    body: RequestBody,
) -> Result<Response, ApiError> {
    let key = idempotency_key(&headers)?.map(|key| IdempotencyKey {
        key,
        fingerprint: hex::encode(Sha256::digest(&body.bytes)),
    });
    // Asked before the checks: what was admitted once may be refused by now, and its client still
    // gets the run.
    let known = match &key {
        Some(key) => state.runs.repeated(&client, key).await?,
        None => None,
    };
    let Submitted { id, repeated } = match known {
        Some(id) => Submitted { id, repeated: true },
        None => {
            let request = admitted(&state, body).await?;
            // A handler's future is dropped when its client goes away; the service then still
            // accepts the run whole or not at all.
            state.runs.submit(request, client, key).await?
        }
    };
    if let Some(limit) = wait(&headers) {
        return waited(&state, id, limit).await;
    }
    // A new run may have been started in the meantime; what was accepted is a waiting one.
    let status = if repeated {
        let run = state.runs.get(id).await?.ok_or(ApiError::RunNotFound)?;
        run.state.status()
    } else {
        RunState::Queued.status()
    };
    Ok(Json(json!({ "run_id": id.to_string(), "status": status })).into_response())
}

/// The request after every check; on a thread where the file system may block.
async fn admitted(state: &ApiState, body: RequestBody) -> Result<RunRequest, ApiError> {
    let rules = state.rules.clone();
    let check = tokio::task::spawn_blocking(move || {
        let body = body.json()?;
        admit(&body, &rules).map_err(ApiError::from)
    });
    timeout(CHECK_TIMEOUT, check)
        .await
        .map_err(|_| ApiError::CheckTimeout)??
}

async fn waited(state: &ApiState, id: RunId, limit: Duration) -> Result<Response, ApiError> {
    let ended = state
        .shutdown
        .run_until_cancelled(state.runs.wait(id, limit))
        .await;
    let run = match ended {
        Some(run) => run?,
        None => state.runs.get(id).await?,
    };
    let run = run.ok_or(ApiError::RunNotFound)?;
    let mut result = None;
    if run.state.outcome().is_some() {
        let last = state.runs.last_episode(id).await?;
        result = last.map(|episode| ResultView::from(episode.execution));
    }
    let judgements = judgements(state, std::slice::from_ref(&run)).await?;
    let run = RunView::new(&run, &judgements);
    let applied = format!("wait={}", limit.as_secs());
    Ok((
        [(PREFERENCE_APPLIED, applied)],
        Json(WaitedRunView { run, result }),
    )
        .into_response())
}
