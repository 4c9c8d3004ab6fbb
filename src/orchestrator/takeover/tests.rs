//! Taking over from an engine that says what a test has written down for it.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::*;
use crate::artifacts::OutputRoot;
use crate::config::Execution;
use crate::execution::result::Status;
use crate::orchestrator::handoff::tests::handoff;
use crate::orchestrator::resuming::tests::{Scripted, channel};
use crate::orchestrator::{HostPaths, Sandboxes};
use crate::sandbox::engine::{Created, Engine, EngineDescription, EngineError, Leftover};
use crate::sandbox::template::{Image, SandboxRequest};

pub(super) fn spec() -> ExecutionSpec {
    ExecutionSpec {
        id: ExecutionId::random(),
        code: "print()".to_owned(),
        input_files: BTreeMap::new(),
        expected_output_files: vec!["a.csv".to_owned()],
        bash_script: None,
        dataset: None,
        image: "image".to_owned(),
        runtime: None,
        preload: true,
        limits: Execution::default().default_limits(),
    }
}

/// Notes what it is asked for. It has no image, so that nothing gets as far as a new sandbox.
#[derive(Debug)]
struct Noting {
    remains: Mutex<Option<Remains>>,
    asked: Mutex<Vec<&'static str>>,
}

impl Noting {
    fn note(&self, asked: &'static str) {
        self.asked.lock().unwrap().push(asked);
    }
}

#[async_trait]
impl Engine for Noting {
    async fn describe(&self) -> Result<EngineDescription, EngineError> {
        Err(EngineError::Vanished)
    }

    async fn image(&self, reference: &str) -> Result<Image, EngineError> {
        self.note("image");
        Err(EngineError::ImageMissing {
            reference: reference.to_owned(),
        })
    }

    async fn create(&self, _request: &SandboxRequest) -> Result<Created, EngineError> {
        self.note("create");
        Err(EngineError::Vanished)
    }

    async fn places_datasets(&self, _runtime: Option<&str>) -> bool {
        false
    }

    async fn destroy(&self, _execution: &ExecutionId) -> Result<(), EngineError> {
        self.note("destroy");
        Ok(())
    }

    fn may_appear(&self, _execution: &ExecutionId) {
        self.note("may appear");
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, EngineError> {
        Ok(Vec::new())
    }

    async fn remains(&self, _execution: &ExecutionId) -> Result<Remains, EngineError> {
        Ok(self
            .remains
            .lock()
            .unwrap()
            .take()
            .unwrap_or(Remains::Missing))
    }

    fn leave_behind(&self) {}
}

#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn observe(&self, _event: RunEvent) {}
}

async fn taken_over(
    put_away: Handoff,
    remains: Remains,
) -> (ExecutionResult, Vec<&'static str>, bool) {
    taken_over_by(put_away, remains, &CancellationToken::new()).await
}

/// Takes over an execution of which this was put away, and this is left. Tells the result, what the
/// engine was asked for, and whether it could be taken over once more.
async fn taken_over_by(
    put_away: Handoff,
    remains: Remains,
    cancel: &CancellationToken,
) -> (ExecutionResult, Vec<&'static str>, bool) {
    let place = tempfile::tempdir().unwrap();
    let spec = spec();
    let dead = Handoffs::open(place.path()).unwrap();
    dead.put(&spec.id, put_away).await.unwrap();
    let handoffs = Handoffs::open(place.path()).unwrap();
    let engine = Arc::new(Noting {
        remains: Mutex::new(Some(remains)),
        asked: Mutex::default(),
    });
    let slots = Slots::new(100_000);
    let left = LeftExecution {
        id: spec.id.clone(),
        host_restarted: false,
    };
    let takeover = Takeover::read(handoffs.clone(), &slots, &[left]).await;
    let executor = Executor::new(
        Sandboxes::new(Arc::clone(&engine) as Arc<dyn Engine>, slots, None),
        OutputRoot::new(&place.path().join("outputs")),
        HostPaths::default(),
        Some(takeover),
    );
    let gate = Gate::open();
    let executed = executor.take_over(&spec, &gate, cancel, &Nobody);
    let result = executed.await.result;
    let asked = engine.asked.lock().unwrap().clone();
    let is_left = handoffs.find(&spec.id).await.unwrap().is_some();
    (result, asked, is_left)
}

fn stopped(never_started: bool) -> Remains {
    Remains::Stopped {
        memory_kill: false,
        never_started,
    }
}

/// A supervisor that ends when it is attached to.
fn ending(never_started: bool) -> Remains {
    let mut sandbox = Scripted::new([Ok(true), Ok(false)], [channel(Vec::new())]);
    sandbox.never_started = never_started;
    Remains::Running(Box::new(sandbox))
}

/// And where a sandbox appears that the dead daemon had asked for, it is not in the way.
#[tokio::test(start_paused = true)]
async fn a_program_that_was_never_told_to_start_is_carried_out_afresh() {
    for remains in [stopped(true), ending(true)] {
        let (result, asked, is_left) = taken_over(handoff(), remains).await;
        assert_eq!(asked, ["destroy", "may appear", "image"]);
        let why = result.error_info.unwrap();
        assert!(why.contains("is not installed"), "{why}");
        assert_eq!(result.started_at, None);
        // Else the next daemon would look for a sandbox that is gone.
        assert!(!is_left);
    }
}

/// Its container is paused, or the engine is away: who does not want the result does not wait for it.
#[tokio::test(start_paused = true)]
async fn a_run_that_is_to_end_does_not_wait_for_its_sandbox() {
    let begun = Instant::now();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let silent = Remains::Running(Box::new(Scripted::default()));
    let (result, ..) = taken_over_by(handoff(), silent, &cancel).await;
    assert_eq!(result.status, Status::Cancelled);
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn a_program_that_may_have_been_started_is_lost() {
    for remains in [stopped(false), ending(false), Remains::Missing] {
        let (result, asked, _) = taken_over(handoff(), remains).await;
        assert!(!asked.contains(&"image"), "{asked:?}");
        assert_eq!(result.status, Status::Error);
        assert!(result.started_at.is_some());
    }
    // Something was heard of it, whatever its supervisor says.
    let mut heard = handoff();
    heard.progress.received = 2;
    for remains in [stopped(true), ending(true)] {
        let (result, asked, _) = taken_over(heard.clone(), remains).await;
        assert!(!asked.contains(&"image"), "{asked:?}");
        assert_eq!(result.status, Status::Error);
    }
}
