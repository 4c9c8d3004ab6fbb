//! That the pool outlives its own faults.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use tokio::sync::Notify;

use super::*;
use crate::execution::spec::SandboxLimits;
use crate::sandbox::engine::{Created, Engine, EngineDescription, EngineError, Leftover, Remains};
use crate::sandbox::pool::{Pool, PoolSettings};
use crate::sandbox::slots::Slots;
use crate::sandbox::template::Image;

/// An engine whose driver has a fault: making a sandbox panics.
#[derive(Debug, Default)]
struct Faulty {
    asked: AtomicUsize,
    again: Notify,
}

#[async_trait]
impl Engine for Faulty {
    async fn describe(&self) -> Result<EngineDescription, EngineError> {
        unreachable!("the pool does not ask for this")
    }

    async fn image(&self, reference: &str) -> Result<Image, EngineError> {
        Ok(Image {
            reference: reference.to_owned(),
            id: "sha256:0".to_owned(),
            environment_names: Vec::new(),
        })
    }

    async fn create(&self, _request: &SandboxRequest) -> Result<Created, EngineError> {
        if self.asked.fetch_add(1, Ordering::SeqCst) > 0 {
            self.again.notify_one();
        }
        panic!("a fault of the driver")
    }

    async fn places_datasets(&self, _runtime: Option<&str>) -> bool {
        false
    }

    async fn destroy(&self, _execution: &ExecutionId) -> Result<(), EngineError> {
        Ok(())
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>, EngineError> {
        Ok(Vec::new())
    }

    async fn remains(&self, _execution: &ExecutionId) -> Result<Remains, EngineError> {
        Ok(Remains::Missing)
    }

    fn may_appear(&self, _execution: &ExecutionId) {}

    fn leave_behind(&self) {}
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_a_sandbox_is_made_costs_the_pool_no_place() {
    let engine = Arc::new(Faulty::default());
    let settings = PoolSettings {
        size: 1,
        memory_bytes: u64::MAX,
        preload: Vec::new(),
        longest_program: Duration::ZERO,
        cpus: 2,
    };
    let usual = Wish {
        image: "image".to_owned(),
        runtime: None,
        dataset: None,
        limits: SandboxLimits {
            memory_mb: 64,
            nano_cpus: 1_000_000_000,
            max_processes: 16,
            workspace_mb: 16,
            shm_mb: 16,
        },
        interpreter: true,
    };
    let driver = Arc::clone(&engine) as Arc<dyn Engine>;
    let pool = Pool::start(driver, Slots::new(100_000), settings, usual);
    engine.again.notified().await;
    pool.stop().await;
}
