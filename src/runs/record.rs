//! What is kept about a run, and about each turn of it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::request::RunRequest;
use super::state::RunState;
use super::task::{Generation, ModelUsage, Perceived};
use crate::execution::ExecutionResult;
use crate::ids::{ClientKey, RunId, TenantId};
use crate::receipt::Evidence;

/// A run as the store has it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    /// Its id.
    pub id: RunId,
    /// Its place in the order of acceptance.
    pub sequence: i64,
    /// Whose it is.
    pub tenant: TenantId,
    /// Whose turn it was within the tenant.
    pub client: ClientKey,
    /// What was asked for.
    pub request: RunRequest,
    /// Where it is.
    pub state: RunState,
    /// When it was accepted.
    pub accepted_at: Timestamp,
}

/// How a run ended, and what the client sees of it (contract section 1).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Success, failure or cancellation.
    pub ending: Ending,
    /// Recorded episodes.
    pub iterations: u32,
    /// The `metrics` object of the script's `summary.json`, untouched.
    pub final_metrics: Option<Map<String, Value>>,
    /// `exec_…/predictions.csv`.
    pub prediction_artifact_reference: Option<String>,
    /// `exec_…/models`.
    pub model_artifact_reference: Option<String>,
    /// Seconds of the last execution.
    pub execution_duration: Option<f64>,
    /// The last error's category, or why the run died.
    pub final_error: Option<String>,
    /// How its programs came to be; `None` for a given program.
    #[serde(default)]
    pub generation: Option<Generation>,
}

impl RunOutcome {
    /// A run that was cut short from outside: what its recorded episodes say, and why it ended.
    #[must_use]
    pub fn cut_short(ending: Ending, final_error: String, episodes: &[Episode]) -> Self {
        let turns: Vec<&Episode> = episodes.iter().filter(|e| e.is_turn()).collect();
        Self {
            ending,
            iterations: u32::try_from(turns.len()).unwrap_or(u32::MAX),
            final_metrics: None,
            prediction_artifact_reference: None,
            model_artifact_reference: None,
            execution_duration: turns.last().map(|e| e.execution.duration_seconds),
            final_error: Some(final_error),
            generation: Generation::of(episodes),
        }
    }
}

/// An episode and what belongs to the record of it, but is never served with it.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedEpisode {
    /// The episode.
    pub episode: Episode,
    /// Its program.
    pub code: String,
    /// What its receipt says besides the result.
    pub evidence: Evidence,
}

/// What the judge decided about an episode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The run.
    pub run_id: RunId,
    /// Its turn, from 1.
    pub iteration: u32,
    /// `FINISH` or `FIX`.
    pub decision: String,
    /// Why.
    pub reason: Option<String>,
}

/// The three ways a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The program did what was asked.
    Success,
    /// It did not, or could not be run.
    Fail,
    /// On request.
    Cancelled,
}

/// One turn of the loop: a program, its execution and the judgement (contract section 3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Its id.
    pub episode_id: Uuid,
    /// The run it belongs to.
    pub run_id: RunId,
    /// From 1; 0 is [what was looked at](Episode::is_turn) before.
    pub iteration: u32,
    /// When it was recorded.
    pub timestamp: Timestamp,
    /// What the execution did.
    pub execution: ExecutionResult,
    /// The program's SHA-256; the program itself is stored, never served.
    pub code_sha256: String,
    /// The program's size in bytes.
    pub code_bytes: u64,
    /// `FINISH` or `FIX`; `None` for a given program, which nobody judges.
    pub judge_decision: Option<String>,
    /// The judge's reason.
    pub judge_reason: Option<String>,
    /// What happened, in one sentence.
    pub summary: String,
    /// What to do about a failure.
    pub suggested_fix: Option<String>,
    /// The kind of a failure.
    pub error_category: Option<String>,
    /// What a failure says of itself.
    #[serde(default)]
    pub error_message: Option<String>,
    /// What was found out about the run, if this episode was about that.
    #[serde(default)]
    pub perceived: Option<Box<Perceived>>,
    /// What the model's calls of this episode cost; `None` for a given program.
    #[serde(default)]
    pub model_usage: Option<ModelUsage>,
}

/// A program that was written for a run, as it is kept while its execution is open: whoever goes on
/// with the run has it from nowhere else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedProgram {
    /// The turn, from 1.
    pub iteration: u32,
    /// The program.
    pub code: String,
    /// How long it may run: less than what was asked for where the run has not so much left.
    pub timeout_seconds: f64,
    /// What writing it cost.
    pub usage: ModelUsage,
}

impl Episode {
    /// Whether this is a turn of the loop. The look at the data set before the first turn is recorded
    /// like one, so that its execution is planned, closed, charged and signed like any other, but it
    /// counts as none and is not shown.
    #[must_use]
    pub fn is_turn(&self) -> bool {
        self.iteration > 0
    }
}

impl Generation {
    /// What recorded episodes say of the generation of their run; `None` for those of a given program.
    #[must_use]
    pub fn of(episodes: &[Episode]) -> Option<Self> {
        let looked =
            |episode: &Episode| episode.perceived.is_some() || episode.model_usage.is_some();
        if !episodes.iter().any(looked) {
            return None;
        }
        let mut generation = Self::default();
        for episode in episodes {
            if let Some(perceived) = &episode.perceived {
                generation.perceived = Some(perceived.as_ref().clone());
            }
            if let Some(usage) = &episode.model_usage {
                generation.model_usage.add(usage);
            }
        }
        Some(generation)
    }
}
