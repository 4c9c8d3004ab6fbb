//! The work on one run: what is known of it, and what is done for each step.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::spent::{seconds, used_up};
use super::turn::{self, Turn};
use super::{Crew, Generated};
use crate::execution::ExecutionSpec;
use crate::execution::redaction::Redaction;
use crate::ids::ExecutionId;
use crate::orchestrator::analysis::{Failure, analyse};
use crate::orchestrator::attempts::{Attempt, Attempts, before_closing};
use crate::orchestrator::coder::{Assignment, Previous, Written, checked};
use crate::orchestrator::executor::Executed;
use crate::orchestrator::given::{category, specification};
use crate::orchestrator::judge::{Bench, Review, decide};
use crate::orchestrator::perception::{self, Seen};
use crate::orchestrator::step::{
    Action, Budget, End, Event, NextTurn, Program, Spent, Then, begin,
};
use crate::runs::events::RunEvent;
use crate::runs::record::{Ending, PlannedProgram, RecordedEpisode};
use crate::runs::service::{CarriedOut, Observer, Origin, RunContext, SoFar};
use crate::runs::task::ModelUsage;
use crate::runs::{Episode, RunOutcome, RunRecord};
use crate::telemetry::log_chain;

/// What a generated program has to leave if the request does not say.
const EXPECTED_FILES: [&str; 2] = ["predictions.csv", "summary.json"];

/// So many daemons ask a model for one and the same run: each may have been killed over what came of it.
const MAX_TAKEOVERS: u32 = 5;

pub(super) struct Work<'a> {
    pub(super) of: &'a Generated,
    crew: &'a Crew,
    pub(super) run: &'a RunRecord,
    context: &'a RunContext,
    redaction: Redaction,
    expected_files: Vec<String>,
    pub(super) budget: Budget,
    /// Wall clock that the run had used up when this work on it began, as far as it is recorded.
    before: Duration,
    begun: Instant,
    seen: Seen,
    /// What is recorded, the look at the data set included.
    pub(super) episodes: Vec<Episode>,
    /// The program of the last recorded turn.
    last_program: Option<String>,
    /// An execution that is planned and not yet used.
    pub(super) planned: Option<(ExecutionId, Attempt)>,
    pub(super) turn: Turn,
    /// To be recorded together with the end.
    pub(super) last: Option<Box<RecordedEpisode>>,
}

impl<'a> Work<'a> {
    pub(super) fn new(
        of: &'a Generated,
        run: &'a RunRecord,
        context: &'a RunContext,
        so_far: SoFar,
    ) -> Self {
        let request = &run.request;
        let dataset = request.dataset.as_ref().map(|pin| pin.path.as_path());
        let SoFar {
            episodes,
            last_program,
        } = so_far;
        let looked = episodes.iter().find(|episode| !episode.is_turn());
        let instruction = request.user_instruction.as_deref();
        let seen = looked.map(|look| perception::conclude(instruction, &look.execution));
        let expected_files = if request.expected_output_files.is_empty() {
            EXPECTED_FILES.map(str::to_owned).to_vec()
        } else {
            request.expected_output_files.clone()
        };
        let turn = left_program(context).map_or_else(Turn::default, Turn::of);
        Self {
            crew: of.crew(request.llm_mode),
            redaction: of.runner.redaction(dataset),
            expected_files,
            budget: Budget {
                iterations: request.max_iterations,
                wall: of.bounds.wall,
                tokens: of.bounds.tokens,
            },
            before: used_up(&episodes, &turn.usage),
            begun: Instant::now(),
            seen: seen.unwrap_or_default(),
            episodes,
            last_program,
            planned: Attempt::of(&context.origin),
            turn,
            last: None,
            of,
            run,
            context,
        }
    }

    /// The end of a run of which nothing could be read.
    pub(super) fn unreadable() -> CarriedOut {
        let why = "Infrastructure: what is recorded of the run could not be read.".to_owned();
        RunOutcome::without_execution(Ending::Fail, why).into()
    }

    pub(super) fn first_action(&self) -> Action {
        let next = match left_program(self.context) {
            Some(_) => NextTurn::Written,
            None if self.planned.is_some() && !self.episodes.is_empty() => {
                return Action::End(End::Broken("a program of it is gone"));
            }
            None => NextTurn::Unwritten,
        };
        begin(&self.episodes, next, &self.budget, &self.spent())
    }

    /// Whether a model may still be asked.
    fn may_ask(&self) -> bool {
        self.context.takeovers <= MAX_TAKEOVERS
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(super) fn spent(&self) -> Spent {
        let recorded = self.episodes.iter().filter(|episode| episode.is_turn());
        let usage = self
            .episodes
            .iter()
            .filter_map(|episode| episode.model_usage.as_ref());
        Spent {
            iterations: u32::try_from(recorded.count()).unwrap_or(u32::MAX),
            wall: self.wall(),
            tokens: usage.map(ModelUsage::tokens).fold(0, u64::saturating_add),
        }
    }

    fn wall(&self) -> Duration {
        self.before.saturating_add(self.begun.elapsed())
    }

    /// Waits for something that a model has a part in, as long as the run may go on.
    async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Event> {
        let left = self.budget.wall.saturating_sub(self.wall());
        match self
            .context
            .cancel
            .run_until_cancelled(timeout(left, work))
            .await
        {
            Some(Ok(done)) => Ok(done),
            Some(Err(_elapsed)) => Err(Event::OutOfTime),
            None => Err(Event::Cancelled),
        }
    }

    /// No program gets more time than its run has left.
    fn within_run(&self, mut spec: ExecutionSpec) -> ExecutionSpec {
        let left = self.budget.wall.saturating_sub(self.wall()).as_secs_f64();
        let limits = &mut spec.limits;
        limits.timeout_seconds = limits.timeout_seconds.min(left.max(MIN_SECONDS));
        spec
    }

    /// The next execution, after it was written down.
    async fn plan(
        &mut self,
        spec: &ExecutionSpec,
        program: Option<&PlannedProgram>,
    ) -> Result<(ExecutionId, Attempt), Event> {
        if let Some(planned) = self.planned.take() {
            return Ok(planned);
        }
        // Nothing new runs on a host that is not known to be fit for it, nor once the daemon goes down.
        let may_start = before_closing(self.context, self.context.gate.opened());
        self.in_time(may_start).await?;
        let id = self.of.runner.reserve(spec.clone());
        let Attempt { number, .. } = Attempt::FIRST;
        let journal = &self.context.journal;
        let planning = journal.plan_execution(self.run.id, &id, number, program);
        match planning.await {
            Ok(()) => Ok((id, Attempt::FIRST)),
            Err(error) => {
                log_chain("an execution could not be planned", &error);
                self.of.runner.release(&id);
                Err(Event::NotRecorded)
            }
        }
    }

    /// Runs a program as it is planned.
    async fn attempt(
        &mut self,
        spec: &mut ExecutionSpec,
        program: Option<&PlannedProgram>,
        observer: &dyn Observer,
    ) -> Result<Executed, Event> {
        let (id, first) = self.plan(spec, program).await?;
        spec.id = id;
        let attempts = Attempts {
            runner: self.of.runner.as_ref(),
            run: self.run,
            context: self.context,
            observer,
            program,
        };
        let begun = Instant::now();
        let executed = attempts.execute(spec, first).await;
        // What an earlier daemon saw of it is no time of this one, but of the run.
        let seen_before = seconds(executed.result.duration_seconds).saturating_sub(begun.elapsed());
        self.before = self.before.saturating_add(seen_before);
        Ok(executed)
    }

    pub(super) async fn perceive(&mut self) -> Event {
        let spec = perception::specification(self.run, ExecutionId::random());
        let mut spec = self.within_run(spec);
        let Executed { result, evidence } = match self.attempt(&mut spec, None, &Silent).await {
            Ok(executed) => executed,
            Err(event) => return event,
        };
        let instruction = self.run.request.user_instruction.as_deref();
        self.seen = perception::conclude(instruction, &result);
        let program = Program::from(result.status);
        let episode = Episode {
            perceived: Some(Box::new(self.seen.perceived.clone())),
            error_category: category(&result).map(str::to_owned),
            ..turn::episode(self.run.id, 0, &spec.code, result)
        };
        let recorded = RecordedEpisode {
            episode,
            code: spec.code,
            evidence,
        };
        match self.keep(recorded).await {
            Ok(()) => Event::Perceived(program),
            Err(event) => event,
        }
    }

    pub(super) async fn write(&mut self, iteration: u32) -> Event {
        self.turn = Turn {
            iteration,
            ..Turn::default()
        };
        let last = self.episodes.iter().rev().find(|episode| episode.is_turn());
        let previous = last.zip(self.last_program.as_deref());
        let request = &self.run.request;
        let assignment = Assignment {
            iteration,
            instruction: request.user_instruction.as_deref(),
            seen: &self.seen,
            expected_files: &self.expected_files,
            limits: &request.limits,
            previous: previous.map(|(episode, code)| Previous { code, episode }),
            redaction: &self.redaction,
        };
        if !self.may_ask() {
            return Event::NotWritten("the daemon was restarted too often meanwhile".to_owned());
        }
        // A program that is not to be started any more is not worth asking for.
        let writing = before_closing(self.context, self.crew.coder.write(&assignment));
        let Written { code, usage } = match self.in_time(writing).await {
            Ok(written) => written,
            Err(event) => return event,
        };
        self.turn.usage.add(&usage);
        match code.and_then(checked) {
            Ok(code) => {
                self.turn.code = code;
                Event::Written
            }
            Err(why) => Event::NotWritten(why),
        }
    }

    pub(super) async fn execute(&mut self) -> Event {
        let mut spec = specification(self.run, ExecutionId::random());
        spec.code.clone_from(&self.turn.code);
        spec.expected_output_files.clone_from(&self.expected_files);
        let mut spec = match left_program(self.context) {
            // It may be running, with this limit.
            Some(left) if self.planned.is_some() => {
                spec.limits.timeout_seconds = left.timeout_seconds;
                spec
            }
            Some(_) | None => self.within_run(spec),
        };
        let program = self.turn.planned(spec.limits.timeout_seconds);
        let context = self.context;
        let observer = context.observer.as_ref();
        let attempting = self.attempt(&mut spec, Some(&program), observer);
        let executed = match attempting.await {
            Ok(executed) => executed,
            Err(event) => return event,
        };
        let status = executed.result.status;
        self.turn.executed = Some((executed.result, executed.evidence));
        Event::Executed(Program::from(status))
    }

    pub(super) async fn judge(&mut self) -> Event {
        let Some((result, _)) = &self.turn.executed else {
            return Event::NotRecorded;
        };
        let bench = match &self.crew.judge {
            _ if self.run.request.disable_judge => Bench::ExitCode,
            Some(_) if !self.may_ask() => Bench::Rules,
            None => Bench::Rules,
            Some(judge) => Bench::Judge(judge.as_ref()),
        };
        let review = Review {
            seen: &self.seen,
            code: &self.turn.code,
            result,
            redaction: &self.redaction,
        };
        let (verdict, usage) = match self.in_time(decide(bench, &review)).await {
            Ok(decided) => decided,
            Err(event) => return event,
        };
        let decision = verdict.decision;
        self.turn.usage.add(&usage);
        self.turn.verdict = Some(verdict);
        Event::Judged(decision)
    }

    pub(super) async fn analyse(&mut self) -> Event {
        let (Some((result, _)), Some(verdict)) = (&self.turn.executed, &self.turn.verdict) else {
            return Event::NotRecorded;
        };
        let failure = Failure {
            iteration: self.turn.iteration,
            seen: &self.seen,
            code: &self.turn.code,
            result,
            verdict,
            redaction: &self.redaction,
        };
        let analyser = self.crew.analyser.as_deref().filter(|_| self.may_ask());
        let (analysis, usage) = match self.in_time(analyse(analyser, &failure)).await {
            Ok(analysed) => analysed,
            Err(event) => return event,
        };
        self.turn.usage.add(&usage);
        self.turn.analysis = Some(analysis);
        Event::Analysed
    }

    /// Writes the turn down: at once if another may follow, together with the end of the run otherwise.
    pub(super) async fn record(&mut self, then: &Then) -> Event {
        let Some(recorded) = self.turn.take(self.run.id) else {
            return Event::NotRecorded;
        };
        if matches!(then, Then::End(_)) {
            self.last = Some(Box::new(recorded));
            return Event::Recorded;
        }
        let code = recorded.code.clone();
        match self.keep(recorded).await {
            Ok(()) => {
                self.last_program = Some(code);
                Event::Recorded
            }
            Err(event) => event,
        }
    }

    async fn keep(&mut self, recorded: RecordedEpisode) -> Result<(), Event> {
        match self.context.journal.add_episode(&recorded).await {
            Ok(()) => {
                let runner = &self.of.runner;
                runner
                    .settle(&recorded.episode.execution.execution_id)
                    .await;
                self.episodes.push(recorded.episode);
                Ok(())
            }
            Err(error) => {
                log_chain("a turn of a run could not be recorded", &error);
                Err(Event::NotRecorded)
            }
        }
    }
}

/// A program gets at least so much, since less is none.
const MIN_SECONDS: f64 = 0.1;

/// The program that an earlier daemon had planned.
fn left_program(context: &RunContext) -> Option<&PlannedProgram> {
    match &context.origin {
        Origin::Left(open) => open.program.as_deref(),
        Origin::New(_) | Origin::Between => None,
    }
}

/// Nobody is told what the look at a data set prints: it is about the data.
#[derive(Debug)]
struct Silent;

impl Observer for Silent {
    fn observe(&self, _event: RunEvent) {}
}
