//! The effective settings, as far as clients may know them: no path, no secret, no address.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::ApiState;
use super::identity::Caller;

/// `GET /settings`
pub(super) async fn settings(State(state): State<ApiState>, caller: Caller) -> Json<Value> {
    let rules = &caller.tenant.rules;
    let config = &state.config;
    let execution = &rules.execution;
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "limits": {
            "timeout_seconds": execution.timeout_seconds,
            "memory_mb": execution.memory_mb,
            "cpus": execution.cpus,
            "max_processes": execution.max_processes,
            "workspace_mb": execution.workspace_mb,
            "shm_mb": execution.shm_mb,
            "max_stdout_size_bytes": execution.max_stdout_size_bytes,
            "max_stderr_size_bytes": execution.max_stderr_size_bytes,
            "max_artifact_mb": execution.max_artifact_mb,
            "max_artifact_files": execution.max_artifact_files,
            "max_iterations": rules.max_iterations,
            "max_instruction_length": rules.max_instruction_length,
            "max_body_bytes": config.api.max_body_bytes,
            "max_concurrent_runs": config.app.max_concurrent_runs,
            "max_queued_runs": config.app.max_queued_runs,
            "run_timeout_seconds": config.app.run_timeout_seconds,
        },
        "ceilings": {
            "timeout_seconds": execution.max_timeout_seconds,
            "memory_mb": execution.max_memory_mb,
            "cpus": execution.max_cpus,
            "max_processes": execution.max_max_processes,
            "workspace_mb": execution.max_workspace_mb,
            "shm_mb": execution.max_shm_mb,
        },
        "image": rules.default_image,
        "images": rules.images(),
        "runtime": execution.runtime,
        "runtimes": rules.gate.offered().runtimes,
        "llm_mode": rules.llm_mode.as_str(),
        "features": {
            "artifact_download": config.api.artifact_download,
            "uploads": config.api.uploads,
            "warm_pool": config.pool.size > 0,
            "preload": !config.pool.preload.is_empty(),
            "auth": config.auth.tokens_file.is_some(),
            "llm_base_url": config.llm.base_url.is_some(),
            "llm_model": config.llm.model.is_some(),
            "llm_key": config.llm.key.is_some(),
        },
    }))
}
