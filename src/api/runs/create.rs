//! `POST /runs`: admission, acceptance, and the wait for the end if the client prefers that.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use super::{found, judgements};
use crate::api::ApiState;
use crate::api::body::RequestBody;
use crate::api::error::ApiError;
use crate::api::extract::{idempotency_key, wait};
use crate::api::identity::Caller;
use crate::api::rate_limit::Standing;
use crate::api::tenants::{Counted, Tenant};
use crate::api::views::{ResultView, RunView, WaitedRunView};
use crate::clock;
use crate::ids::RunId;
use crate::runs::RunRequest;
use crate::runs::admission::admit;
use crate::runs::service::{SubmitError, Submitted};
use crate::runs::state::RunState;
use crate::runs::store::IdempotencyKey;

/// A file system that does not answer by then will not answer at all.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a request waits while the sandboxes of this host are examined: some seconds on a host
/// that is not too busy.
const EXAMINATION_PATIENCE: Duration = Duration::from_secs(15);

const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// `POST /runs`
pub(crate) async fn create(
    State(state): State<ApiState>,
    caller: Caller,
    headers: HeaderMap,
    body: RequestBody,
) -> Result<Response, ApiError> {
    let key = idempotency_key(&headers)?.map(|key| IdempotencyKey {
        scope: caller.key_scope.clone(),
        key,
        fingerprint: hex::encode(Sha256::digest(&body.bytes)),
    });
    // Asked before the checks: what was admitted once may be refused by now, and its client still
    // gets the run.
    let known = match &key {
        Some(key) => state.runs.repeated(caller.tenant_id(), key).await?,
        None => None,
    };
    let (submitted, standing) = match known {
        Some(id) => (Submitted { id, repeated: true }, None),
        None => {
            // A host that is fit takes the first run of its daemon like any other.
            state.runs.gate().settled(EXAMINATION_PATIENCE).await;
            // Before the checks, which depend on what is known of the host by then.
            state.runs.check_gate()?;
            let request = admitted(&caller.tenant, body).await?;
            submit(&state, &caller, request, key).await?
        }
    };
    let mut response = answer(&state, &caller, &headers, submitted).await?;
    if let Some(standing) = standing {
        standing.add_to(response.headers_mut());
    }
    Ok(response)
}

/// The request after every check; on a thread where the file system may block.
async fn admitted(tenant: &Tenant, body: RequestBody) -> Result<RunRequest, ApiError> {
    let rules = tenant.rules.clone();
    let check = tokio::task::spawn_blocking(move || {
        let body = body.json()?;
        admit(&body, &rules).map_err(ApiError::from)
    });
    timeout(CHECK_TIMEOUT, check)
        .await
        .map_err(|_| ApiError::CheckTimeout)??
}

/// Has the run accepted, within the tenant's pace and quotas. Only what becomes a run counts
/// towards the pace.
async fn submit(
    state: &ApiState,
    caller: &Caller,
    request: RunRequest,
    key: Option<IdempotencyKey>,
) -> Result<(Submitted, Option<Standing>), ApiError> {
    let tenant = &caller.tenant;
    let counted = tenant.count_run().await.map_err(ApiError::TooManyRuns)?;
    // A handler's future is dropped when its client goes away; the service then still accepts the
    // run whole or not at all.
    match state.runs.submit(request, caller.submitter(), key).await {
        Ok(submitted) if submitted.repeated => {
            Counted::discount(counted);
            Ok((submitted, None))
        }
        Ok(submitted) => {
            let standing = counted.map(|counted| counted.standing().clone());
            Ok((submitted, standing))
        }
        Err(error) => {
            Counted::discount(counted);
            Err(match error {
                SubmitError::OverQuota(quota) => ApiError::OverQuota {
                    quota,
                    standing: tenant.standing(quota, clock::now()),
                },
                SubmitError::QueueFull { .. } => {
                    let most = state.config.app.max_queued_runs;
                    ApiError::QueueFull(Standing::queued_runs(most))
                }
                other @ (SubmitError::KeyReused
                | SubmitError::Closed { .. }
                | SubmitError::ShuttingDown
                | SubmitError::Store(_)) => ApiError::Submit(other),
            })
        }
    }
}

async fn answer(
    state: &ApiState,
    caller: &Caller,
    headers: &HeaderMap,
    submitted: Submitted,
) -> Result<Response, ApiError> {
    let Submitted { id, repeated } = submitted;
    // Where too many wait already it stays a wish, and the answer is the one without it.
    if let Some(limit) = wait(headers)
        && let Ok(_place) = state.long_answers.try_acquire()
    {
        return waited(state, caller, id, limit).await;
    }
    // A new run may have been started in the meantime; what was accepted is a waiting one.
    let status = if repeated {
        found(state, caller, id).await?.state.status()
    } else {
        RunState::Queued.status()
    };
    Ok(Json(json!({ "run_id": id.to_string(), "status": status })).into_response())
}

async fn waited(
    state: &ApiState,
    caller: &Caller,
    id: RunId,
    limit: Duration,
) -> Result<Response, ApiError> {
    let waiting = state.runs.wait(caller.tenant_id(), id, limit);
    let ended = tokio::select! {
        ended = state.shutdown.run_until_cancelled(waiting) => ended,
        error = caller.credential.ended() => return Err(error),
    };
    let run = match ended {
        Some(run) => run?.ok_or(ApiError::RunNotFound)?,
        None => found(state, caller, id).await?,
    };
    let mut result = None;
    if run.state.outcome().is_some() {
        let last = state.runs.last_episode(&run).await?;
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
