//! `GET /metrics`: what an operator's Prometheus reads, made anew from the daemon's state each time it
//! asks. The names and what they mean are in `docs/metrics.md`.
//!
//! Labels are words of this program only: never anything that a client sent, so that there are as many
//! series as there are here, and nothing of a run is in them (security.md section 6).

use std::fmt;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::error::ApiError;
use super::{ApiState, CallReport, EngineReport, ModelReport};
use crate::runs::service::InFlight;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`
pub(super) async fn metrics(State(state): State<ApiState>) -> Result<Response, ApiError> {
    let snapshot = Snapshot {
        runs: state.runs.in_flight(),
        places: state.config.app.max_concurrent_runs,
        accepting: state.runs.accepting()
            && state.runs.gate().reasons().is_empty()
            && state.runs.room().await.is_ok(),
        engine: state.readiness.engine(),
        pool_size: state.config.pool.size,
        pool_waiting: state.readiness.waiting_sandboxes(),
        model: state.readiness.model(),
    };
    let text = snapshot.encoded().map_err(|_| ApiError::Panicked)?;
    Ok(([(CONTENT_TYPE, OPEN_METRICS)], text).into_response())
}

/// The daemon at a moment.
#[derive(Debug)]
struct Snapshot {
    runs: InFlight,
    places: usize,
    accepting: bool,
    engine: EngineReport,
    pool_size: usize,
    pool_waiting: usize,
    /// `None` without a model.
    model: Option<ModelReport>,
}

impl Snapshot {
    fn encoded(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("fumehood");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(text)
    }

    /// Runs that can be carried out at the same time: none while no sandbox can be made.
    fn capacity(&self) -> usize {
        if self.engine.available {
            self.places
        } else {
            0
        }
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let engine = &self.engine;
        let gauges = [
            ("runs_queued", "Runs that wait their turn", self.runs.queued),
            (
                "runs_running",
                "Runs that are carried out",
                self.runs.running,
            ),
            (
                "runs_capacity",
                "Runs that can be carried out at the same time; 0 while no sandbox can be made",
                self.capacity(),
            ),
            (
                "accepting_runs",
                "Whether new runs are taken (1) or refused (0)",
                usize::from(self.accepting),
            ),
            (
                "engine_available",
                "Whether sandboxes can be made (1), or runs wait for the container engine (0)",
                usize::from(engine.available),
            ),
            (
                "sandboxes_set_aside",
                "Sandboxes whose end or removal the engine has not confirmed",
                engine.set_aside,
            ),
            (
                "sandboxes_set_aside_limit",
                "So many of them, and no further run is started",
                engine.set_aside_limit,
            ),
            (
                "pool_size",
                "Sandboxes that are to wait for a run",
                self.pool_size,
            ),
            (
                "pool_waiting",
                "Sandboxes that wait for a run",
                self.pool_waiting,
            ),
        ];
        for (name, help, value) in gauges {
            one(&mut encoder, (name, help), &gauge(value))?;
        }
        each_call(
            &mut encoder,
            (
                "engine_call_available",
                "Whether calls of this kind are made (1), or refused until one has succeeded (0)",
            ),
            engine,
            |call| gauge(usize::from(call.available)),
        )?;
        for (name, help, count) in COUNTS {
            each_call(&mut encoder, (name, help), engine, |call| {
                ConstCounter::new(count(call))
            })?;
        }
        match self.model {
            Some(model) => asked(&mut encoder, &model),
            None => Ok(()),
        }
    }
}

/// What the model was asked, and what it cost.
fn asked(encoder: &mut DescriptorEncoder<'_>, model: &ModelReport) -> fmt::Result {
    let ModelReport { usage, failures } = model;
    let counts = [
        (
            "model_answers",
            "Answers of the model, well or not",
            u64::from(usage.calls),
        ),
        (
            "model_failures",
            "Attempts to ask the model that brought no answer, those tried again included",
            *failures,
        ),
        (
            "model_prompt_tokens",
            "Tokens sent to the model, as its server counted them",
            usage.prompt_tokens,
        ),
        (
            "model_completion_tokens",
            "Tokens received from the model, as its server counted them",
            usage.completion_tokens,
        ),
        (
            "model_uncounted_answers",
            "Answers whose tokens the model's server did not count",
            u64::from(usage.uncounted_calls),
        ),
    ];
    for (name, help, count) in counts {
        one(encoder, (name, help), &ConstCounter::new(count))?;
    }
    let seconds = ConstCounter::new(usage.seconds);
    one(
        encoder,
        ("model_seconds", "Time spent asking the model"),
        &seconds,
    )?;
    let Some(cost) = usage.cost else {
        return Ok(());
    };
    one(
        encoder,
        (
            "model_cost",
            "What the counted tokens cost, in the unit of the configured prices",
        ),
        &ConstCounter::new(cost),
    )
}

type Count = fn(&CallReport) -> u64;

/// What is counted of each kind of call since the daemon's start.
const COUNTS: [(&str, &str, Count); 3] = [
    (
        "engine_call_failures",
        "Calls that the engine did not answer, those tried again included",
        |call| call.failed,
    ),
    (
        "engine_call_retries",
        "Calls that were tried again",
        |call| call.retried,
    ),
    (
        "engine_call_outages",
        "How often calls of this kind were found to fail one after the other",
        |call| call.outages,
    ),
];

fn gauge(value: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

fn one<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    metric: &M,
) -> fmt::Result {
    let metric_encoder = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
    metric.encode(metric_encoder)
}

fn each_call<M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    engine: &EngineReport,
    metric: impl Fn(&CallReport) -> M,
) -> fmt::Result {
    let Some(first) = engine.calls.first() else {
        return Ok(());
    };
    let kind = metric(first).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for call in &engine.calls {
        let labels = [("call", call.kind)];
        metric(call).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::task::ModelUsage;

    fn snapshot(available: bool) -> Snapshot {
        Snapshot {
            runs: InFlight {
                queued: 7,
                running: 2,
            },
            places: 4,
            accepting: true,
            engine: EngineReport {
                available,
                since: None,
                set_aside: 1,
                set_aside_limit: 24,
                calls: vec![CallReport {
                    kind: "create",
                    available,
                    failed: 5,
                    retried: 3,
                    outages: 1,
                }],
            },
            pool_size: 2,
            pool_waiting: 1,
            model: Some(ModelReport {
                usage: ModelUsage {
                    calls: 9,
                    prompt_tokens: 900,
                    completion_tokens: 90,
                    uncounted_calls: 1,
                    seconds: 12.5,
                    cost: Some(0.25),
                    ..ModelUsage::default()
                },
                failures: 4,
            }),
        }
    }

    #[test]
    fn every_number_is_there_with_its_meaning_and_nothing_else() {
        insta::assert_snapshot!(snapshot(true).encoded().unwrap());
    }

    #[test]
    fn without_a_model_there_is_no_word_of_one() {
        let mut without = snapshot(true);
        without.model = None;
        assert!(!without.encoded().unwrap().contains("model"));
    }

    #[test]
    fn an_engine_that_is_away_leaves_no_capacity_and_says_which_call() {
        let text = snapshot(false).encoded().unwrap();
        for line in [
            "fumehood_runs_capacity 0",
            "fumehood_engine_available 0",
            "fumehood_engine_call_available{call=\"create\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
