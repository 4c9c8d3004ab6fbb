//! Whose turn it is: making sandboxes ahead of use yields to the runs that are there.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Sandboxes made at the same time while nothing runs; one while something does.
const MAKING_AT_ONCE: usize = 2;

/// While every CPU is busy with programs, or a run makes a sandbox of its own, one sandbox is begun
/// in so long.
const BUSY_PACE: Duration = Duration::from_secs(5);

/// A run that has just begun has the host to itself for so long: most are over by then.
const RUN_FIRST: Duration = Duration::from_millis(500);

/// From the moment that a sandbox is kept for a run until that is seen to run.
const ON_ITS_WAY: Duration = Duration::from_millis(50);

/// What goes on besides making sandboxes ahead of use.
#[derive(Debug)]
pub(super) struct Load {
    counts: Mutex<Counts>,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Counts {
    preparing: usize,
    running: usize,
    making: usize,
    begun_at: Option<Instant>,
    run_begun_at: Option<Instant>,
}

/// A run makes a sandbox of its own.
#[derive(Debug)]
pub struct Preparing(Arc<Load>);

/// An execution goes on.
#[derive(Debug)]
pub struct Running(Arc<Load>);

/// A sandbox is made ahead of use.
#[derive(Debug)]
pub(super) struct Making(Arc<Load>);

impl Load {
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        Self {
            counts: Mutex::default(),
            changed,
        }
    }

    pub(super) fn preparing(self: &Arc<Self>) -> Preparing {
        self.counts().preparing += 1;
        Preparing(Arc::clone(self))
    }

    /// A run is on its way.
    pub(super) fn run_begins(&self, now: Instant) {
        self.counts().run_begun_at = Some(now);
    }

    pub(super) fn running(self: &Arc<Self>) -> Running {
        self.counts().running += 1;
        Running(Arc::clone(self))
    }

    /// The right to make one now; otherwise when to ask again, at the latest, if that is known:
    /// every change of the load is told.
    pub(super) fn may_make(
        self: &Arc<Self>,
        cpus: usize,
        now: Instant,
    ) -> Result<Making, Option<Instant>> {
        let mut counts = self.counts();
        counts.wait_for(cpus, now)?;
        counts.making += 1;
        counts.begun_at = Some(now);
        Ok(Making(Arc::clone(self)))
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, end: impl FnOnce(&mut Counts)) {
        end(&mut self.counts());
        self.changed.notify_one();
    }
}

impl Counts {
    fn wait_for(&self, cpus: usize, now: Instant) -> Result<(), Option<Instant>> {
        let at_once = if self.running == 0 { MAKING_AT_ONCE } else { 1 };
        if self.making >= at_once {
            return Err(None);
        }
        let paced = self.begun_at.map(|begun| begun + BUSY_PACE);
        if let Some(begun) = self.run_begun_at {
            let first = if self.running > 0 {
                RUN_FIRST
            } else {
                ON_ITS_WAY
            };
            // However many begin one after the other: at the pace of a busy host at least.
            let next = paced.map_or(begun + first, |paced| paced.min(begun + first));
            if now < next {
                return Err(Some(next));
            }
        }
        // A run that makes its own sandbox has the engine nearly to itself, but runs that do so all
        // the time must not keep the pool empty for ever.
        let is_busy = self.preparing > 0 || self.running >= cpus;
        match paced.filter(|next| is_busy && now < *next) {
            Some(next) => Err(Some(next)),
            None => Ok(()),
        }
    }
}

impl Drop for Preparing {
    fn drop(&mut self) {
        self.0.ended(|counts| counts.preparing -= 1);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.ended(|counts| counts.running -= 1);
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.0.ended(|counts| counts.making -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> (Arc<Load>, Instant) {
        (Arc::new(Load::new(Arc::new(Notify::new()))), Instant::now())
    }

    #[tokio::test]
    async fn an_idle_host_makes_two_at_once_and_a_busy_one_a_single_one() {
        let (load, now) = load();
        let first = load.may_make(2, now).unwrap();
        let second = load.may_make(2, now).unwrap();
        assert_eq!(load.may_make(2, now).unwrap_err(), None);
        drop(second);
        let running = load.running();
        assert_eq!(load.may_make(2, now).unwrap_err(), None);
        drop(first);
        drop(load.may_make(2, now).unwrap());
        drop(running);
    }

    #[tokio::test]
    async fn runs_that_make_their_own_sandboxes_go_first_and_do_not_starve_the_pool() {
        let (load, now) = load();
        let preparing = load.preparing();
        drop(load.may_make(2, now).unwrap());
        let next = now + BUSY_PACE;
        assert_eq!(load.may_make(2, now).unwrap_err(), Some(next));
        drop(load.may_make(2, next).unwrap());
        drop(preparing);
        load.may_make(2, next).unwrap();
    }

    #[tokio::test]
    async fn when_every_cpu_is_busy_making_goes_on_at_a_pace() {
        let (load, now) = load();
        let _programs = [load.running(), load.running()];
        drop(load.may_make(2, now).unwrap());
        let next = now + BUSY_PACE;
        assert_eq!(load.may_make(2, now).unwrap_err(), Some(next));
        drop(load.may_make(3, now).unwrap());
        load.may_make(2, next).unwrap();
    }

    #[tokio::test]
    async fn a_run_that_has_just_begun_is_not_disturbed_and_many_do_not_starve_the_pool() {
        let (load, now) = load();
        load.run_begins(now);
        assert_eq!(load.may_make(2, now).unwrap_err(), Some(now + ON_ITS_WAY));
        let running = load.running();
        let settled = now + ON_ITS_WAY;
        assert_eq!(
            load.may_make(2, settled).unwrap_err(),
            Some(now + RUN_FIRST)
        );
        drop(running);
        drop(load.may_make(2, settled).unwrap());
        let _running = load.running();
        let paced = settled + BUSY_PACE;
        load.run_begins(paced);
        load.may_make(2, paced).unwrap();
    }

    #[tokio::test]
    async fn every_end_is_told() {
        let (load, now) = load();
        let ends = [
            |load: &Arc<Load>, _| Box::new(load.preparing()) as Box<dyn Send>,
            |load: &Arc<Load>, _| Box::new(load.running()) as Box<dyn Send>,
            |load: &Arc<Load>, now| Box::new(load.may_make(1, now).unwrap()) as Box<dyn Send>,
        ];
        for begin in ends {
            let end = begin(&load, now);
            let told = load.changed.notified();
            drop(end);
            told.await;
        }
    }
}
