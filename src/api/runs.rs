//! The handlers of runs: parse, call the service, convert.

mod create;

mod events;

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

pub(super) use create::create;
pub(super) use events::{Life, events};

use super::ApiState;
use super::error::ApiError;
use super::extract::{Listing, OfExecution, PathRun, cursor};
use super::identity::Caller;
use super::views::{ArtifactsView, EpisodesView, RunView};
use crate::ids::{ExecutionId, RunId};
use crate::runs::RunRecord;
use crate::runs::record::Judgement;
use crate::runs::service::CancelAnswer;

/// `GET /runs/{run_id}`
pub(super) async fn show(
    State(state): State<ApiState>,
    caller: Caller,
    PathRun(id): PathRun,
) -> Result<Json<RunView>, ApiError> {
    let run = found(&state, &caller, id).await?;
    let judgements = judgements(&state, std::slice::from_ref(&run)).await?;
    Ok(Json(RunView::new(&run, &judgements)))
}

/// `GET /runs/{run_id}/episodes`
pub(super) async fn episodes(
    State(state): State<ApiState>,
    caller: Caller,
    PathRun(id): PathRun,
) -> Result<Json<EpisodesView>, ApiError> {
    let run = found(&state, &caller, id).await?;
    let episodes = state.runs.episodes(&run).await?;
    Ok(Json(EpisodesView::new(&run, episodes)))
}

/// `GET /runs/{run_id}/artifacts`
pub(super) async fn artifacts(
    State(state): State<ApiState>,
    caller: Caller,
    PathRun(id): PathRun,
) -> Result<Json<ArtifactsView>, ApiError> {
    let run = found(&state, &caller, id).await?;
    let artifacts = state.runs.artifacts(&run).await?;
    Ok(Json(ArtifactsView::new(&run, artifacts)))
}

/// `GET /runs/{run_id}/receipt`: of its last execution, or of the one that `?execution=` names, byte
/// for byte as it was signed.
pub(super) async fn receipt(
    State(state): State<ApiState>,
    caller: Caller,
    PathRun(id): PathRun,
    OfExecution(named): OfExecution,
) -> Result<Response, ApiError> {
    // First, so that who may not see the run gets nothing of it.
    let run = found(&state, &caller, id).await?;
    let execution = match named.as_deref().map(ExecutionId::parse) {
        Some(None) => return Err(ApiError::ReceiptNotFound),
        Some(execution) => execution,
        None => None,
    };
    let receipt = state.runs.receipt(&run, execution.as_ref()).await?;
    let text = receipt.ok_or(ApiError::ReceiptNotFound)?;
    Ok(([(CONTENT_TYPE, "application/json")], text).into_response())
}

/// `GET /runs`: newest first.
pub(super) async fn list(
    State(state): State<ApiState>,
    caller: Caller,
    Listing(mut filter): Listing,
) -> Result<Json<Value>, ApiError> {
    let wanted = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    // One more than wanted tells whether there is a next page.
    filter.limit = filter.limit.saturating_add(1);
    let mut runs = state.runs.list(caller.tenant_id(), &filter).await?;
    let more = runs.len() > wanted;
    runs.truncate(wanted);
    let next = runs.last().filter(|_| more).map(|run| cursor(run.sequence));
    let judgements = judgements(&state, &runs).await?;
    let views: Vec<RunView> = runs
        .iter()
        .map(|run| RunView::new(run, &judgements))
        .collect();
    Ok(Json(json!({ "runs": views, "next_cursor": next })))
}

/// `POST /runs/{run_id}/cancel`
pub(super) async fn cancel(
    State(state): State<ApiState>,
    caller: Caller,
    PathRun(id): PathRun,
) -> Result<Json<Value>, ApiError> {
    match state.runs.cancel(caller.tenant_id(), id).await? {
        CancelAnswer::Unknown => Err(ApiError::RunNotFound),
        CancelAnswer::AlreadyEnded => Err(ApiError::AlreadyEnded),
        CancelAnswer::Accepted => {
            let run = found(&state, &caller, id).await?;
            let status = run.state.status();
            Ok(Json(json!({ "run_id": id.to_string(), "status": status })))
        }
    }
}

/// The run with this id, if it is the caller's.
async fn found(state: &ApiState, caller: &Caller, id: RunId) -> Result<RunRecord, ApiError> {
    let run = state.runs.get(caller.tenant_id(), id).await?;
    run.ok_or(ApiError::RunNotFound)
}

/// What was decided about the episodes of `runs`: one query for all of them, none if there is
/// nothing to find.
async fn judgements(state: &ApiState, runs: &[RunRecord]) -> Result<Vec<Judgement>, ApiError> {
    // Only the loop has a judge, and only its end is shown.
    let judged = |run: &&RunRecord| run.request.code.is_none() && run.state.outcome().is_some();
    let judged: Vec<&RunRecord> = runs.iter().filter(judged).collect();
    if judged.is_empty() {
        return Ok(Vec::new());
    }
    Ok(state.runs.judgements(&judged).await?)
}

#[cfg(test)]
mod tests;
