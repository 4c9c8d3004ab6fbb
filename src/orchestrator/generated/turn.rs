//! One turn of the loop while it is under way, and as it is recorded.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::clock;
use crate::execution::ExecutionResult;
use crate::ids::RunId;
use crate::orchestrator::analysis::Analysis;
use crate::orchestrator::given::category;
use crate::orchestrator::judge::Verdict;
use crate::receipt::Evidence;
use crate::runs::Episode;
use crate::runs::record::{PlannedProgram, RecordedEpisode};
use crate::runs::task::ModelUsage;

/// A turn that is under way.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) iteration: u32,
    pub(super) code: String,
    pub(super) executed: Option<(ExecutionResult, Evidence)>,
    pub(super) verdict: Option<Verdict>,
    pub(super) analysis: Option<Analysis>,
    pub(super) usage: ModelUsage,
}

impl Turn {
    /// One whose program is written.
    pub(super) fn of(planned: &PlannedProgram) -> Self {
        let PlannedProgram {
            iteration,
            code,
            timeout_seconds: _,
            usage,
        } = planned.clone();
        Self {
            iteration,
            code,
            usage,
            ..Self::default()
        }
    }

    /// What has to be written down of its program before it is started.
    pub(super) fn planned(&self, timeout_seconds: f64) -> PlannedProgram {
        PlannedProgram {
            iteration: self.iteration,
            code: self.code.clone(),
            timeout_seconds,
            usage: self.usage,
        }
    }

    /// The turn as it is recorded, if its program was run; then it is not under way any more.
    pub(super) fn take(&mut self, run: RunId) -> Option<RecordedEpisode> {
        let (result, evidence) = self.executed.take()?;
        let turn = std::mem::take(self);
        let verdict = turn.verdict.as_ref();
        let known = category(&result).map(str::to_owned);
        let mut episode = Episode {
            judge_decision: verdict.map(|verdict| verdict.decision.as_str().to_owned()),
            judge_reason: verdict.and_then(Verdict::why),
            error_category: known,
            model_usage: Some(turn.usage),
            ..episode(run, turn.iteration, &turn.code, result)
        };
        if let Some(Analysis {
            iteration: _,
            error_category,
            error_summary,
            error_message,
            // Made of the result, which is recorded whole.
            stderr_excerpt: _,
            stdout_excerpt: _,
            suggested_fix,
        }) = turn.analysis
        {
            episode.error_category = Some(error_category);
            episode.summary = error_summary;
            episode.error_message = Some(error_message);
            episode.suggested_fix = Some(suggested_fix);
        }
        Some(RecordedEpisode {
            episode,
            code: turn.code,
            evidence,
        })
    }
}

/// An episode of which nothing is known but the execution.
pub(super) fn episode(run: RunId, iteration: u32, code: &str, result: ExecutionResult) -> Episode {
    Episode {
        episode_id: Uuid::new_v4(),
        run_id: run,
        iteration,
        timestamp: clock::now(),
        code_sha256: hex::encode(Sha256::digest(code)),
        code_bytes: code.len() as u64,
        judge_decision: None,
        judge_reason: None,
        summary: result.cause.message.clone(),
        suggested_fix: None,
        error_category: None,
        error_message: None,
        perceived: None,
        model_usage: None,
        execution: result,
    }
}
