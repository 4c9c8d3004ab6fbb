//! A journal that keeps everything in memory, and fails when a test wishes it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;

use crate::ids::{ExecutionId, RunId};
use crate::runs::record::{PlannedProgram, RecordedEpisode};
use crate::runs::service::{Journal, SoFar};
use crate::runs::store::{Fault, StoreError};

/// A journal in memory.
#[derive(Debug, Default)]
pub(super) struct MemoryJournal {
    so_far: Mutex<SoFar>,
    recorded: Mutex<Vec<RecordedEpisode>>,
    pub(super) planned: Mutex<Vec<ExecutionId>>,
    pub(super) programs: Mutex<Vec<Option<PlannedProgram>>>,
    pub(super) abandoned: Mutex<Vec<ExecutionId>>,
    pub(super) fails: AtomicBool,
}

impl MemoryJournal {
    pub(super) fn recorded(&self) -> Vec<RecordedEpisode> {
        self.recorded.lock().unwrap().clone()
    }

    pub(super) fn set_so_far(&self, so_far: SoFar) {
        *self.so_far.lock().unwrap() = so_far;
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.fails.load(Ordering::SeqCst) {
            let source = Arc::new(Fault::Died);
            let operation = "do as the test wishes";
            return Err(StoreError::Failed { operation, source });
        }
        Ok(())
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn plan_execution(
        &self,
        _run: RunId,
        execution: &ExecutionId,
        _attempt: u32,
        program: Option<&PlannedProgram>,
    ) -> Result<(), StoreError> {
        self.check()?;
        self.planned.lock().unwrap().push(execution.clone());
        self.programs.lock().unwrap().push(program.cloned());
        Ok(())
    }

    async fn abandon_execution(&self, execution: &ExecutionId) -> Result<(), StoreError> {
        self.check()?;
        self.abandoned.lock().unwrap().push(execution.clone());
        Ok(())
    }

    async fn add_episode(&self, recorded: &RecordedEpisode) -> Result<(), StoreError> {
        self.check()?;
        self.recorded.lock().unwrap().push(recorded.clone());
        Ok(())
    }

    async fn so_far(&self, _run: RunId) -> Result<SoFar, StoreError> {
        Ok(self.so_far.lock().unwrap().clone())
    }
}
