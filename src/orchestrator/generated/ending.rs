//! The end of the work on a run: its outcome, and what is still to be recorded of it.

use super::work::Work;
use crate::orchestrator::attempts::Attempt;
use crate::orchestrator::step::End;
use crate::runs::record::Ending;
use crate::runs::service::CarriedOut;
use crate::runs::task::Generation;
use crate::runs::{Episode, RunOutcome};

impl Work<'_> {
    /// The outcome of the run, and what is still to be recorded of it.
    pub(super) async fn end(mut self, end: End) -> CarriedOut {
        if let Some((planned, Attempt { is_left: false, .. })) = &self.planned {
            self.of.runner.release(planned);
        }
        if self.last.is_none() {
            // What was cut short between a program's end and its record.
            self.last = self.turn.take(self.run.id).map(Box::new);
        }
        let of = self.of;
        let mut outcome = match self.last_turn() {
            Some(episode) => of.runner.outcome(&mut episode.execution).await,
            None => RunOutcome::without_execution(Ending::Fail, String::new()),
        };
        let recorded = self.last.as_ref().map(|last| last.episode.clone());
        if let Some(last) = recorded {
            self.episodes.push(last);
        }
        outcome.iterations = self.spent().iterations;
        outcome.ending = match end {
            End::Success => Ending::Success,
            End::Cancelled => Ending::Cancelled,
            End::Failure
            | End::NotWritten(_)
            | End::Infrastructure
            | End::OutOfTime
            | End::OutOfTokens
            | End::Broken(_) => Ending::Fail,
        };
        outcome.final_error = self.final_error(&end);
        outcome.generation = Some(Generation::of(&self.episodes).unwrap_or_default());
        // A turn whose program was never run has cost something, too.
        if let Some(generation) = &mut outcome.generation {
            generation.model_usage.add(&self.turn.usage);
        }
        CarriedOut {
            outcome,
            last_episode: self.last,
        }
    }

    /// The last turn, recorded or about to be.
    fn last_turn(&mut self) -> Option<&mut Episode> {
        if let Some(last) = &mut self.last {
            return Some(&mut last.episode);
        }
        let mut turns = self.episodes.iter_mut().rev();
        turns.find(|episode| episode.is_turn())
    }

    /// The last error's category, or why the run died (contract section 1).
    fn final_error(&self, end: &End) -> Option<String> {
        let last = self.episodes.last();
        Some(match end {
            End::Success => return None,
            End::Failure => last?
                .error_category
                .clone()
                .unwrap_or_else(|| "rejected".to_owned()),
            End::Cancelled => "cancelled".to_owned(),
            End::NotWritten(why) => format!("The program could not be written: {why}."),
            End::Infrastructure => {
                let result = &last?.execution;
                let message = &result.cause.message;
                result.error_info.clone().unwrap_or_else(|| message.clone())
            }
            End::OutOfTime => {
                let seconds = self.budget.wall.as_secs();
                format!("Run timed out after {seconds} seconds.")
            }
            End::OutOfTokens => {
                let tokens = self.budget.tokens.unwrap_or_default();
                format!("The run has used up its {tokens} tokens of the model.")
            }
            End::Broken(why) => format!("Infrastructure: the run could not be carried out: {why}."),
        })
    }
}
