//! The result of an execution as the interface shows it (contract section 2).

use serde::Serialize;
use serde_json::Number;

use super::ArtifactView;
use crate::execution::cause::{Cause, CauseKind, Limit};
use crate::execution::result::{ExecutionResult, ResourceUsage, SandboxUse, SkippedArtifact};

#[derive(Debug, Serialize)]
pub(in crate::api) struct ResultView {
    execution_id: String,
    success: bool,
    status: &'static str,
    return_code: Option<i32>,
    stdout: String,
    stderr: String,
    duration_seconds: f64,
    timed_out: bool,
    output_files: Vec<String>,
    missing_expected_files: Vec<String>,
    error_info: Option<String>,
    workspace_dir: String,
    limit: Option<&'static str>,
    cause: CauseView,
    warnings: Vec<String>,
    stdout_bytes: u64,
    stderr_bytes: u64,
    stdout_tail: Option<String>,
    stderr_tail: Option<String>,
    usage: Option<UsageView>,
    sandbox: Option<SandboxUse>,
    started_at: Option<String>,
    finished_at: String,
    artifacts: Vec<ArtifactView>,
    artifacts_skipped: Vec<SkippedView>,
}

#[derive(Debug, Serialize)]
struct CauseView {
    kind: &'static str,
    limit: Option<&'static str>,
    configured: Option<Number>,
    observed: Option<Number>,
    evidence: Vec<String>,
    message: String,
}

#[derive(Debug, Serialize)]
struct UsageView {
    cpu_seconds: f64,
    peak_memory_bytes: Option<u64>,
    peak_resident_bytes: u64,
    peak_workspace_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct SkippedView {
    path: String,
    reason: String,
    size: u64,
}

impl From<ExecutionResult> for ResultView {
    fn from(result: ExecutionResult) -> Self {
        let ExecutionResult {
            execution_id,
            success,
            status,
            return_code,
            stdout,
            stderr,
            duration_seconds,
            timed_out,
            output_files,
            missing_expected_files,
            error_info,
            workspace_dir,
            limit,
            cause,
            warnings,
            stdout_bytes,
            stderr_bytes,
            stdout_tail,
            stderr_tail,
            usage,
            sandbox,
            started_at,
            finished_at,
            artifacts,
            artifacts_skipped,
        } = result;
        Self {
            execution_id: execution_id.to_string(),
            success,
            status: status.as_str(),
            return_code,
            stdout,
            stderr,
            duration_seconds,
            timed_out,
            output_files,
            missing_expected_files,
            error_info,
            workspace_dir,
            limit: limit.map(limit_name),
            cause: cause.into(),
            warnings,
            stdout_bytes,
            stderr_bytes,
            stdout_tail,
            stderr_tail,
            usage: usage.map(UsageView::from),
            sandbox,
            started_at: started_at.map(|time| time.to_string()),
            finished_at: finished_at.to_string(),
            artifacts: artifacts.into_iter().map(ArtifactView::from).collect(),
            artifacts_skipped: artifacts_skipped
                .into_iter()
                .map(SkippedView::from)
                .collect(),
        }
    }
}

impl From<Cause> for CauseView {
    fn from(cause: Cause) -> Self {
        let Cause {
            may_be_the_programs: _,
            kind,
            limit,
            configured,
            observed,
            evidence,
            message,
        } = cause;
        Self {
            kind: match kind {
                CauseKind::Exited => "exited",
                CauseKind::Signal => "signal",
                CauseKind::Limit => "limit",
                CauseKind::Cancelled => "cancelled",
                CauseKind::Infrastructure => "infrastructure",
            },
            limit: limit.map(limit_name),
            configured,
            observed,
            evidence,
            message,
        }
    }
}

impl From<ResourceUsage> for UsageView {
    fn from(usage: ResourceUsage) -> Self {
        let ResourceUsage {
            cpu_seconds,
            peak_memory_bytes,
            peak_resident_bytes,
            peak_workspace_bytes,
        } = usage;
        Self {
            cpu_seconds,
            peak_memory_bytes,
            peak_resident_bytes,
            peak_workspace_bytes,
        }
    }
}

impl From<SkippedArtifact> for SkippedView {
    fn from(skipped: SkippedArtifact) -> Self {
        let SkippedArtifact { path, reason, size } = skipped;
        Self { path, reason, size }
    }
}

fn limit_name(limit: Limit) -> &'static str {
    match limit {
        Limit::Time => "time",
        Limit::Cpu => "cpu",
        Limit::Memory => "memory",
        Limit::Processes => "processes",
        Limit::Disk => "disk",
        Limit::FileSize => "file_size",
    }
}
