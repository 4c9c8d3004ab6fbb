//! The `options` object of a request: which keys are known and which values they take.
//!
//! Unknown keys are ignored, `null` counts as not given, everything else that is wrong is reported.

use serde_json::{Map, Value};

use super::Rules;
use super::problem::{Bound, Problem, Problems};
use crate::execution::Limits;
use crate::execution::runtime::Offered;
use crate::runs::request::LlmMode;

/// Least memory that an interpreter starts in, in MiB.
const MIN_MEMORY_MB: u64 = 64;

/// Least number of processes: the supervisor, the program and its threads.
const MIN_PROCESSES: u64 = 4;

/// Least share of a CPU. With less even ending a crowd of processes takes seconds, since they
/// have to run to die.
const MIN_CPUS: f64 = 0.1;

/// Most turns of the loop.
const MAX_ITERATIONS: u64 = 50;

/// Most attempts after the first one.
const MAX_RETRIES: u64 = 5;

/// Memory that must be left beside the workspace and `/dev/shm`, in MiB.
const PROGRAM_MB: u64 = 64;

/// The options after validation, defaults filled in.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) llm_mode: LlmMode,
    pub(super) max_iterations: u32,
    pub(super) disable_judge: bool,
    pub(super) image: String,
    pub(super) runtime: Option<String>,
    pub(super) preload: bool,
    pub(super) retries: u32,
    pub(super) limits: Limits,
}

/// Reads the options; whatever is wrong is added to `problems`, and the default taken instead.
pub(super) fn read(
    options: &Map<String, Value>,
    rules: &Rules,
    problems: &mut Problems,
) -> Options {
    let mut reader = Reader { options, problems };
    let execution = &rules.execution;

    let mock_llm = reader.boolean("mock_llm");
    let named_mode = reader.one_of("llm_mode", &["mock".to_owned(), "real".to_owned()]);
    let llm_mode = match (named_mode.as_deref(), mock_llm) {
        (Some("real"), _) | (None, Some(false)) => LlmMode::Real,
        (Some(_), _) | (None, Some(true)) => LlmMode::Mock,
        (None, None) => rules.llm_mode,
    };
    let max_iterations = reader
        .integer("max_iterations", 1, MAX_ITERATIONS)
        .and_then(|count| u32::try_from(count).ok())
        .unwrap_or(rules.max_iterations);
    let disable_judge = reader.boolean("disable_judge").unwrap_or(false);
    let retries = reader
        .integer("retries", 0, MAX_RETRIES)
        .and_then(|count| u32::try_from(count).ok())
        .unwrap_or_default();
    let preload = reader.boolean("preload").unwrap_or(true);

    let mut limits = execution.default_limits();
    let above_zero = Problem::GreaterThan(Bound(0.0));
    if let Some(seconds) = reader.number(
        "timeout_seconds",
        |seconds| (seconds <= 0.0).then(|| above_zero.clone()),
        execution.max_timeout_seconds,
    ) {
        limits.timeout_seconds = seconds;
    }
    if let Some(mib) = reader.integer("memory_mb", MIN_MEMORY_MB, execution.max_memory_mb) {
        limits.memory_mb = mib;
    }
    let at_least = Problem::GreaterThanEqual(Bound(MIN_CPUS));
    if let Some(cpus) = reader.number(
        "cpus",
        |cpus| (cpus < MIN_CPUS).then(|| at_least.clone()),
        execution.max_cpus,
    ) {
        limits.cpus = cpus;
    }
    if let Some(count) = reader.integer("max_processes", MIN_PROCESSES, execution.max_max_processes)
    {
        limits.max_processes = count;
    }
    let workspace = reader.integer("workspace_mb", 1, execution.max_workspace_mb);
    let shm = reader.integer("shm_mb", 1, execution.max_shm_mb);
    reader.fit_into_memory(&mut limits, workspace, shm);

    let image = reader.one_of("image", &rules.images());
    let runtime = reader.runtime(execution.runtime.as_deref(), &rules.gate.offered());
    Options {
        llm_mode,
        max_iterations,
        disable_judge,
        image: image.unwrap_or_else(|| rules.default_image.clone()),
        runtime,
        preload,
        retries,
        limits,
    }
}

struct Reader<'a> {
    options: &'a Map<String, Value>,
    problems: &'a mut Problems,
}

impl<'a> Reader<'a> {
    fn value(&self, key: &str) -> Option<&'a Value> {
        self.options.get(key).filter(|value| !value.is_null())
    }

    fn refuse(&mut self, key: &str, problem: Problem) {
        let input = self.options.get(key).unwrap_or(&Value::Null);
        self.problems.add(problem, &["body", "options", key], input);
    }

    fn boolean(&mut self, key: &str) -> Option<bool> {
        let problem = match self.value(key)? {
            Value::Bool(value) => return Some(*value),
            Value::String(_) | Value::Number(_) => Problem::BoolParsing,
            Value::Null | Value::Array(_) | Value::Object(_) => Problem::BoolType,
        };
        self.refuse(key, problem);
        None
    }

    fn one_of(&mut self, key: &str, allowed: &[String]) -> Option<String> {
        let found = self.value(key)?;
        match found.as_str() {
            Some(text) if allowed.iter().any(|value| value == text) => Some(text.to_owned()),
            Some(_) => {
                self.refuse(key, Problem::Literal(allowed.to_vec()));
                None
            }
            None => {
                self.refuse(key, Problem::StringType);
                None
            }
        }
    }

    /// The runtime that is at least what the request asks for; the usual one if it does not ask, or
    /// if what it asks for is refused.
    fn runtime(&mut self, configured: Option<&str>, offered: &Offered) -> Option<String> {
        let usual = offered.usual(configured);
        let Some(found) = self.value("runtime") else {
            return usual;
        };
        let problem = match found.as_str() {
            Some(asked) => match offered.at_least(asked, configured) {
                Ok(runtime) => return runtime,
                Err(names) => Problem::Literal(names),
            },
            None => Problem::StringType,
        };
        self.refuse("runtime", problem);
        usual
    }

    fn number(
        &mut self,
        key: &str,
        too_small: impl Fn(f64) -> Option<Problem>,
        most: f64,
    ) -> Option<f64> {
        let problem = match self.value(key)? {
            // A number that no double can hold reads as `None`.
            Value::Number(number) => match number.as_f64().filter(|value| value.is_finite()) {
                None => Problem::FiniteNumber,
                Some(value) => match too_small(value) {
                    Some(problem) => problem,
                    None if value > most => Problem::LessThanEqual(Bound(most)),
                    None => return Some(value),
                },
            },
            Value::Null
            | Value::Bool(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => Problem::FloatType,
        };
        self.refuse(key, problem);
        None
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "bounds are counts and MiB, far below 2^53"
    )]
    fn integer(&mut self, key: &str, least: u64, most: u64) -> Option<u64> {
        let problem = match self.value(key)? {
            Value::Number(number) => match whole(number) {
                Err(problem) => problem,
                Ok(Whole::Below) => Problem::GreaterThanEqual(Bound(least as f64)),
                Ok(Whole::Exactly(value)) if value < least => {
                    Problem::GreaterThanEqual(Bound(least as f64))
                }
                Ok(Whole::Exactly(value)) if value <= most => return Some(value),
                Ok(Whole::Exactly(_) | Whole::Above) => Problem::LessThanEqual(Bound(most as f64)),
            },
            Value::Null
            | Value::Bool(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => Problem::IntType,
        };
        self.refuse(key, problem);
        None
    }

    /// Files in the workspace and in `/dev/shm` are memory (security.md row 36): sizes that the
    /// request named must fit, defaults give way.
    fn fit_into_memory(&mut self, limits: &mut Limits, workspace: Option<u64>, shm: Option<u64>) {
        let fits = |workspace: u64, shm: u64| {
            workspace.saturating_add(shm).saturating_add(PROGRAM_MB) <= limits.memory_mb
        };
        let mut workspace_mb = workspace.unwrap_or(limits.workspace_mb);
        let mut shm_mb = shm.unwrap_or(limits.shm_mb);
        if !fits(workspace_mb, shm_mb) {
            if workspace.is_none() {
                workspace_mb = workspace_mb.min(limits.memory_mb / 2);
            }
            if shm.is_none() {
                shm_mb = shm_mb.min(limits.memory_mb / 8);
            }
            if !fits(workspace_mb, shm_mb) {
                for (key, named) in [("workspace_mb", workspace), ("shm_mb", shm)] {
                    if named.is_some() {
                        let text = format!(
                            "{key} is charged to memory_mb: workspace_mb, shm_mb and {PROGRAM_MB} \
                             MiB for the program must fit into the {} MiB of memory_mb",
                            limits.memory_mb
                        );
                        self.refuse(key, Problem::Value(text));
                    }
                }
            }
        }
        limits.workspace_mb = workspace_mb;
        limits.shm_mb = shm_mb;
    }
}

/// An integer, as far as it matters where the bounds are.
enum Whole {
    Below,
    Exactly(u64),
    Above,
}

/// Numbers like `5`, `5.0` and `5e0` are the same integer.
fn whole(number: &serde_json::Number) -> Result<Whole, Problem> {
    if let Some(value) = number.as_u64() {
        return Ok(Whole::Exactly(value));
    }
    if number.as_i64().is_some() {
        return Ok(Whole::Below);
    }
    let value = number
        .as_f64()
        .filter(|value| value.is_finite())
        .ok_or(Problem::FiniteNumber)?;
    if value.fract() != 0.0 {
        return Err(Problem::IntFromFloat);
    }
    if value < 0.0 {
        return Ok(Whole::Below);
    }
    // A double without a fraction prints as an integer.
    let value = format!("{value:.0}").parse();
    Ok(value.map_or(Whole::Above, Whole::Exactly))
}
