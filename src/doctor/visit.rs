//! The sandboxes of one examination: in which order programs run in them, and the facts that come
//! of it. Judges nothing.

use std::time::Duration;

use fumehood_protocol::message::EndedBy;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;

use super::DoctorError;
use super::bench::Bench;
use super::controls::machine::confines;
use super::examine::Examiner;
use super::facts::{Collected, Endurance, MachineFacts, MemoryEnd, SandboxFacts, Seen};
use super::probe::{Bounds, Ended, Program, Settings, Subject};
use crate::execution::environment::environment;
use crate::execution::spec::SandboxLimits;
use crate::ids::ExecutionId;
use crate::sandbox::Engine;
use crate::sandbox::check::check;
use crate::sandbox::policy;
use crate::sandbox::survey::AppliedSettings;
use crate::sandbox::template::{DatasetMount, Image, SandboxRequest, Template};

/// Bytes that the probe may print.
const PROBE_BYTES: u64 = 512 << 10;

/// Bytes kept of the neighbour's flood, and what it prints at least.
const FLOOD_CAP: u64 = 64 << 10;
const FLOOD_BYTES: u64 = 1 << 20;

/// How long a container may be there at most, for its label.
const LIFETIME: Duration = Duration::from_secs(300);

/// The sandboxes of one runtime.
pub(super) struct Visit<'a> {
    pub(super) examiner: &'a Examiner,
    pub(super) runtime: &'a str,
    /// Whether they have a kernel of their own.
    pub(super) own_kernel: bool,
    pub(super) image: Image,
    pub(super) bench: Bench,
    pub(super) thorough: bool,
    /// Where the neighbour listens.
    pub(super) neighbour: String,
}

/// What came of the probe.
struct Observed {
    seen: Seen,
    memory: Option<MemoryEnd>,
    collected: Option<Collected>,
    applied: AppliedSettings,
    uid: u32,
    supervisor: Option<String>,
    dataset_is_the_checked_one: bool,
}

impl Visit<'_> {
    /// Makes them, one beside the other, and gathers what is seen.
    pub(super) async fn facts(self, machine: &MachineFacts) -> Result<SandboxFacts, DoctorError> {
        let (observe, endure) = tokio::try_join!(
            self.prepare(Program::Observe, self.probe_bounds()),
            self.prepare(Program::Endure, self.endurance_bounds()),
        )?;
        let (observed, endurance) = self.side_by_side(observe, endure).await?;
        let memory = match observed.memory {
            Some(memory) => memory,
            None => self.exhaust().await?,
        };
        let limits = self.limits();
        let names = environment(&limits).into_iter().map(|(name, _)| name);
        let bench = self.bench;
        let dataset_unchanged = spawn_blocking(move || bench.is_unchanged()).await?;
        Ok(SandboxFacts {
            runtime: self.runtime.to_owned(),
            uid: observed.uid,
            sizes: policy::sizes(&limits),
            image: self.image.id,
            nano_cpus: limits.nano_cpus,
            environment: names.collect(),
            host_name: machine.host.name.clone(),
            host_kernel: machine.engine.kernel.clone(),
            supervisor: observed.supervisor,
            host_has_lsm: machine.host.lsm.as_deref().is_some_and(confines),
            seen: observed.seen,
            endurance,
            memory,
            collected: observed.collected,
            dataset_is_the_checked_one: observed.dataset_is_the_checked_one,
            dataset_unchanged,
            applied: observed.applied,
        })
    }

    /// Small, so that filling everything is fast; a kernel of its own takes some memory, too, and
    /// more for each process.
    fn limits(&self) -> SandboxLimits {
        let (memory_mb, max_processes) = if self.own_kernel {
            (512, 32)
        } else {
            (128, 48)
        };
        SandboxLimits {
            memory_mb,
            nano_cpus: 1_000_000_000,
            max_processes,
            workspace_mb: 16,
            shm_mb: 8,
        }
    }

    fn probe_bounds(&self) -> Bounds {
        Bounds {
            wall: Duration::from_secs(if self.own_kernel { 100 } else { 60 }),
            stdout_bytes: PROBE_BYTES,
        }
    }

    /// Long enough for the probe to look for it first.
    fn endurance_bounds(&self) -> Bounds {
        Bounds {
            wall: Duration::from_secs(if self.own_kernel { 8 } else { 3 }),
            stdout_bytes: FLOOD_CAP,
        }
    }

    async fn prepare(&self, program: Program, bounds: Bounds) -> Result<Subject, DoctorError> {
        let slot = self.examiner.slots.take();
        let limits = self.limits();
        let sizes = policy::sizes(&limits);
        let request = SandboxRequest {
            execution: ExecutionId::random(),
            template: Template {
                image: self.image.clone(),
                runtime: Some(self.runtime.to_owned()),
                dataset: DatasetMount::Created(self.bench.pin().clone()),
                limits,
                interpreter: false,
            },
            uid: slot.uid(),
            lifetime: LIFETIME,
        };
        let settings = Settings {
            thorough: self.thorough,
            exhaust_memory: !self.own_kernel,
            memory_bytes: sizes.memory_bytes,
            processes: sizes.processes,
            canary: self.bench.canary().to_owned(),
            neighbour: self.neighbour.clone(),
            flood_bytes: FLOOD_BYTES,
        };
        let engine: &dyn Engine = &*self.examiner.engine;
        Subject::prepare(engine, (request, slot), (program, bounds), &settings).await
    }

    /// The neighbour first, then the probe beside it.
    async fn side_by_side(
        &self,
        observe: Subject,
        mut endure: Subject,
    ) -> Result<(Observed, Endurance), DoctorError> {
        endure.launch().await?;
        let hello: Hello = parse("neighbour", &endure.first_line().await?)?;
        let follow = async {
            let ended = endure.follow().await?;
            Ok::<_, DoctorError>((ended, endure))
        };
        let (observed, (ended, endure)) = tokio::try_join!(self.observe(observe), follow)?;
        endure.remove().await;
        let Some(exited) = ended.exited else {
            return Err(broke_off("neighbour", &ended.stderr));
        };
        #[expect(
            clippy::cast_precision_loss,
            reason = "microseconds of a program fit a double exactly"
        )]
        let wall_seconds = exited.wall_microseconds as f64 / 1e6;
        let endurance = Endurance {
            uid: Some(hello.uid),
            ended_at_deadline: exited.ended_by == EndedBy::Deadline,
            wall_seconds,
            limit_seconds: self.endurance_bounds().wall.as_secs_f64(),
            survivors: exited.survivors,
            written_bytes: exited.stdout.bytes,
            forwarded_bytes: ended.received,
            cap_bytes: FLOOD_CAP,
            flood_bytes: FLOOD_BYTES,
        };
        Ok((observed, endurance))
    }

    async fn observe(&self, mut subject: Subject) -> Result<Observed, DoctorError> {
        subject.launch().await?;
        let execution = &subject.request.execution;
        let applied = self.examiner.engine.applied(execution).await?;
        let ended = subject.follow().await?;
        let mut lines = ended.stdout.lines();
        let Some(first) = lines.next() else {
            return Err(broke_off("probe", &ended.stderr));
        };
        let seen: Seen = parse("probe", first)?;
        let taken = lines
            .next()
            .and_then(|line| serde_json::from_str(line).ok());
        let memory = match (taken, &ended.exited) {
            (Some(Taken { memory }), _) => Some(MemoryEnd::Child(memory)),
            (None, None) => Some(self.died(&mut subject).await),
            (None, Some(_)) if self.own_kernel => None,
            (None, Some(_)) => return Err(broke_off("probe", &ended.stderr)),
        };
        let collected = match &ended.exited {
            Some(exited) => Some(subject.collect(exited.survivors).await?),
            None => None,
        };
        let pin = self.bench.pin();
        let found = subject.ready.dataset;
        let SandboxRequest { template, uid, .. } = &subject.request;
        let refusal = check(&subject.ready, template, *uid).err();
        let observed = Observed {
            seen,
            memory,
            collected,
            applied,
            uid: subject.request.uid,
            supervisor: refusal.map(|refusal| refusal.to_string()),
            dataset_is_the_checked_one: found
                .is_some_and(|found| (found.device, found.inode) == (pin.device, pin.inode)),
        };
        subject.remove().await;
        Ok(observed)
    }

    /// Takes more memory than there is in a sandbox of its own.
    async fn exhaust(&self) -> Result<MemoryEnd, DoctorError> {
        let mut subject = self.prepare(Program::Exhaust, self.probe_bounds()).await?;
        subject.launch().await?;
        let ended: Ended = subject.follow().await?;
        let mut lines = ended.stdout.lines();
        if lines.next().is_none() {
            return Err(broke_off("memory", &ended.stderr));
        }
        let taken = lines.next();
        let taken = taken.and_then(|line| serde_json::from_str(line).ok());
        let end = match taken {
            Some(Taken { memory }) => MemoryEnd::Child(memory),
            None => self.died(&mut subject).await,
        };
        subject.remove().await;
        Ok(end)
    }

    async fn died(&self, subject: &mut Subject) -> MemoryEnd {
        MemoryEnd::Sandbox {
            seen_by_engine: subject.memory_kill_seen().await,
        }
    }
}

/// The neighbour's first line.
#[derive(Deserialize)]
struct Hello {
    uid: u32,
}

/// The line after taking memory.
#[derive(Deserialize)]
struct Taken {
    memory: String,
}

fn parse<T: DeserializeOwned>(program: &'static str, line: &str) -> Result<T, DoctorError> {
    serde_json::from_str(line).map_err(|error| {
        DoctorError::failed(
            program,
            &format!("what it printed cannot be read ({error})"),
        )
    })
}

fn broke_off(program: &'static str, stderr: &str) -> DoctorError {
    DoctorError::failed(program, stderr.lines().last().unwrap_or("it ended early"))
}
