//! The handlers of runs: parse, call the service, convert.

mod create;

mod events;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

pub(super) use create::create;
pub(super) use events::events;

use super::ApiState;
use super::error::ApiError;
use super::extract::{Listing, PathRun, cursor};
use super::views::{ArtifactsView, EpisodesView, RunView};
use crate::runs::service::CancelAnswer;
use crate::runs::{Episode, RunRecord};

/// `GET /runs/{run_id}`
pub(super) async fn show(
    State(state): State<ApiState>,
    PathRun(id): PathRun,
) -> Result<Json<RunView>, ApiError> {
    let run = state.runs.get(id).await?.ok_or(ApiError::RunNotFound)?;
    Ok(Json(view(&state, &run).await?))
}

/// `GET /runs/{run_id}/episodes`
pub(super) async fn episodes(
    State(state): State<ApiState>,
    PathRun(id): PathRun,
) -> Result<Json<EpisodesView>, ApiError> {
    let run = state.runs.get(id).await?.ok_or(ApiError::RunNotFound)?;
    let episodes = state.runs.episodes(id).await?;
    Ok(Json(EpisodesView::new(&run, episodes)))
}

/// `GET /runs/{run_id}/artifacts`
pub(super) async fn artifacts(
    State(state): State<ApiState>,
    PathRun(id): PathRun,
) -> Result<Json<ArtifactsView>, ApiError> {
    let run = state.runs.get(id).await?.ok_or(ApiError::RunNotFound)?;
    let artifacts = state.runs.artifacts(id).await?;
    Ok(Json(ArtifactsView::new(&run, artifacts)))
}

/// `GET /runs`: newest first.
pub(super) async fn list(
    State(state): State<ApiState>,
    Listing(mut filter): Listing,
) -> Result<Json<Value>, ApiError> {
    let wanted = usize::try_from(filter.limit).unwrap_or(usize::MAX);
    // One more than wanted tells whether there is a next page.
    filter.limit = filter.limit.saturating_add(1);
    let mut runs = state.runs.list(&filter).await?;
    let more = runs.len() > wanted;
    runs.truncate(wanted);
    let next = runs.last().filter(|_| more).map(|run| cursor(run.sequence));
    let mut views = Vec::new();
    for run in &runs {
        views.push(view(&state, run).await?);
    }
    Ok(Json(json!({ "runs": views, "next_cursor": next })))
}

/// `POST /runs/{run_id}/cancel`
pub(super) async fn cancel(
    State(state): State<ApiState>,
    PathRun(id): PathRun,
) -> Result<Json<Value>, ApiError> {
    match state.runs.cancel(id).await? {
        CancelAnswer::Unknown => Err(ApiError::RunNotFound),
        CancelAnswer::AlreadyEnded => Err(ApiError::AlreadyEnded),
        CancelAnswer::Accepted => {
            let run = state.runs.get(id).await?.ok_or(ApiError::RunNotFound)?;
            let status = run.state.status();
            Ok(Json(json!({ "run_id": id.to_string(), "status": status })))
        }
    }
}

async fn view(state: &ApiState, run: &RunRecord) -> Result<RunView, ApiError> {
    // Only the loop has a judge; episodes are large, and not fetched for nothing.
    let judged = run.request.code.is_none() && run.state.outcome().is_some();
    let episodes: Vec<Episode> = if judged {
        state.runs.episodes(run.id).await?
    } else {
        Vec::new()
    };
    Ok(RunView::new(run, &episodes))
}

#[cfg(test)]
mod tests;
