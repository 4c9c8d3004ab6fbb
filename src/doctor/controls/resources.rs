//! Section D of the security bar: how much the program can take, and for how long.

use super::findings::{SETTINGS, absent, all, broken, decide, differs, holds, some};
use super::{Area, Control, Finding, Mark};
use crate::doctor::facts::{MemoryEnd, SandboxFacts};
use crate::sandbox::policy::{
    LOCKED_MEMORY_BYTES, OOM_SCORE_ADJUSTMENT, OPEN_FILES, SUPERVISOR_DIRECTORY,
};

const REPORT: &str = "This is the supervisor's work, not the host's: report it";

/// What the end at a deadline may take beyond it, in seconds: in the host's kernel, in its own.
const LATE_SECONDS: (f64, f64) = (1.0, 4.0);

/// Rows 35 to 47.
pub const TABLE: &[Control<SandboxFacts>] = &[
    Control {
        number: "35",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "memory, swap included",
        expected: "taking twice the limit is ended",
        remedy: "Memory is not limited: enable the memory control group (see `docker info`), or give a rootless engine delegated cgroup v2",
        judge: memory,
    },
    Control {
        number: "36",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "full disks are errors, not kills",
        expected: "all places together fit into the memory",
        remedy: "Lower execution.workspace_mb and execution.shm_mb",
        judge: places_fit,
    },
    Control {
        number: "37",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "killed before the daemon is",
        expected: "the score is set and cannot be lowered",
        remedy: SETTINGS,
        judge: oom_score,
    },
    Control {
        number: "38",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "processes",
        expected: "EAGAIN at the limit",
        remedy: "Enable the pids control group (see `docker info`)",
        judge: |facts| {
            let (outcome, children) = &facts.seen.resources.processes;
            let most = facts.sizes.processes;
            decide(
                outcome == "EAGAIN" && *children < most,
                format!("{outcome} after {children} children, limit {most}"),
            )
        },
    },
    Control {
        number: "39",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "CPU time",
        expected: "the quota that was asked for, and a weight",
        remedy: "Enable the cpu control group with CFS quotas (see `docker info`)",
        judge: cpu,
    },
    Control {
        number: "40",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "files: number, size, cores",
        expected: "EMFILE, EFBIG, no core",
        remedy: SETTINGS,
        judge: user_limits,
    },
    Control {
        number: "41",
        mark: Mark::Strong,
        area: Area::Resources,
        title: "block I/O",
        expected: "limited",
        remedy: "Nothing to do: nothing but memory can be written to",
        judge: |facts| match facts.applied.block_limits {
            0 => absent("not limited: nothing on disk is writable"),
            count => holds(format!("{count} limits")),
        },
    },
    Control {
        number: "42",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "wall clock, whatever the program does",
        expected: "everything is gone at the deadline",
        remedy: REPORT,
        judge: deadline,
    },
    Control {
        number: "43",
        mark: Mark::Strong,
        area: Area::Resources,
        title: "CPU seconds",
        expected: "limited",
        remedy: "Nothing to do: wall clock and quota bound them",
        judge: |facts| match facts.seen.resources.limits.get("CPU") {
            Some((_, hard)) if *hard >= 0 => holds(format!("{hard} s")),
            Some(_) => absent("not limited apart from wall clock and quota"),
            None => broken("not told"),
        },
    },
    Control {
        number: "44",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "output is capped and drained",
        expected: "all of a flood counted, its head kept",
        remedy: REPORT,
        judge: |facts| {
            let end = &facts.endurance;
            decide(
                end.written_bytes >= end.flood_bytes && end.forwarded_bytes <= end.cap_bytes,
                format!(
                    "{} bytes counted, {} kept",
                    end.written_bytes, end.forwarded_bytes
                ),
            )
        },
    },
    Control {
        number: "45",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "no log of the engine",
        expected: "the engine says none",
        remedy: SETTINGS,
        judge: |facts| {
            let driver = &facts.applied.log_driver;
            decide(driver == "none", driver.clone())
        },
    },
    Control {
        number: "46",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "no restart, no removal by itself",
        expected: "the engine says neither",
        remedy: SETTINGS,
        judge: |facts| {
            let (policy, removed) = (&facts.applied.restart_policy, facts.applied.auto_remove);
            decide(
                ["", "no"].contains(&policy.as_str()) && !removed,
                format!("restart {policy}, removed by itself: {removed}"),
            )
        },
    },
    Control {
        number: "47",
        mark: Mark::Mandatory,
        area: Area::Resources,
        title: "nothing of the image runs by itself",
        expected: "our entrypoint, no health check",
        remedy: SETTINGS,
        judge: |facts| {
            let applied = &facts.applied;
            let supervisor = format!("{SUPERVISOR_DIRECTORY}/supervisor");
            let is_ours = applied.entrypoint == [supervisor] && applied.health_check == ["NONE"];
            decide(
                is_ours,
                format!(
                    "{}; health check {}",
                    some(&applied.entrypoint),
                    some(&applied.health_check)
                ),
            )
        },
    },
];

fn memory(facts: &SandboxFacts) -> Finding {
    let applied = &facts.applied;
    if applied.memory_bytes != applied.memory_and_swap_bytes || applied.memory_bytes <= 0 {
        return broken(format!(
            "{} bytes, with swap {}",
            applied.memory_bytes, applied.memory_and_swap_bytes
        ));
    }
    // What the control group shows inside, where it shows anything.
    let shown = facts.seen.resources.group.get("memory").cloned().flatten();
    if let Some(shown) = shown
        && !facts.has_own_kernel()
        && shown.parse::<u64>() != Ok(facts.sizes.memory_bytes)
    {
        return broken(format!(
            "the limit is {shown} instead of {}",
            facts.sizes.memory_bytes
        ));
    }
    match &facts.memory {
        MemoryEnd::Child(end) if end == "SIGKILL" => holds("SIGKILL for the process that took it"),
        MemoryEnd::Child(end) if end == "42" => broken("twice the limit was given"),
        MemoryEnd::Child(end) => broken(format!("taking it ended with {end}")),
        MemoryEnd::Sandbox { .. } if facts.has_own_kernel() => {
            differs("the sandbox is ended as a whole")
        }
        MemoryEnd::Sandbox { seen_by_engine } => broken(format!(
            "the sandbox ended as a whole; for memory by the engine's word: {seen_by_engine}"
        )),
    }
}

fn places_fit(facts: &SandboxFacts) -> Finding {
    let places = &facts.seen.files.temporary;
    let sizes = places.values().map(|place| place.bytes);
    let together = sizes.fold(0, u64::saturating_add);
    let memory = facts.sizes.memory_bytes;
    let conditions = [
        (!places.is_empty(), "nothing was filled".to_owned()),
        (
            together < memory,
            format!("{together} bytes in {memory} of memory"),
        ),
        (
            places.values().all(|place| place.fill.0 == "ENOSPC"),
            "filling a place did not end with ENOSPC".to_owned(),
        ),
    ];
    all(
        &conditions,
        format!("{} of {} MiB", together >> 20, memory >> 20),
    )
}

fn oom_score(facts: &SandboxFacts) -> Finding {
    let resources = &facts.seen.resources;
    if facts.applied.oom_kill_disabled {
        return broken("the kernel may not kill it");
    }
    if facts.has_own_kernel() {
        return differs("the engine kills its kernel; nothing to be seen inside");
    }
    let is_high = |score: &String| {
        let score = score.parse::<i64>();
        score.is_ok_and(|score| score >= OOM_SCORE_ADJUSTMENT)
    };
    let (own, first) = (&resources.oom_score, &resources.first_oom_score);
    let conditions = [
        (is_high(own), format!("the score is {own}")),
        (is_high(first), format!("that of process 1 is {first}")),
        (
            resources.lower_oom_score != "ok",
            "the program can lower it".to_owned(),
        ),
        (
            resources.nice != "ok",
            "the program can raise its priority".to_owned(),
        ),
    ];
    all(&conditions, format!("{own}, fixed; process 1 {first}"))
}

fn cpu(facts: &SandboxFacts) -> Finding {
    let applied = &facts.applied;
    let asked = facts.nano_cpus;
    if u64::try_from(applied.nano_cpus) != Ok(asked) || applied.cpu_shares <= 0 {
        return broken(format!(
            "{} billionths of a CPU, weight {}",
            applied.nano_cpus, applied.cpu_shares
        ));
    }
    let shown = facts.seen.resources.group.get("cpu").cloned().flatten();
    let Some(shown) = shown.filter(|_| !facts.has_own_kernel()) else {
        return holds("by the engine's word");
    };
    // `quota period` in version 2, the quota alone in version 1, where the engine sets 100 ms.
    let mut words = shown.split_whitespace();
    let quota = words.next().and_then(|word| word.parse::<u64>().ok());
    let period = words
        .next()
        .map_or(Some(100_000_u64), |word| word.parse().ok());
    let quota = quota.zip(period.filter(|period| *period > 0));
    let billionths = quota.and_then(|(quota, period)| {
        let scaled: u64 = quota.checked_mul(1_000_000_000)?;
        Some(scaled / period)
    });
    decide(billionths == Some(asked), format!("quota {shown}"))
}

fn user_limits(facts: &SandboxFacts) -> Finding {
    let resources = &facts.seen.resources;
    let own_kernel = facts.has_own_kernel();
    let at_most = |name: &str, most: u64| {
        let hard = resources.limits.get(name).map(|(_, hard)| *hard);
        let is_set = hard.is_some_and(|hard| u64::try_from(hard).is_ok_and(|hard| hard <= most));
        let shown = hard.map_or_else(|| "not told".to_owned(), |hard| hard.to_string());
        (is_set, format!("{name} {shown}"))
    };
    let locked = at_most(
        "MEMLOCK",
        u64::try_from(LOCKED_MEMORY_BYTES).unwrap_or_default(),
    );
    let conditions = [
        at_most("CORE", 0),
        at_most("NOFILE", OPEN_FILES),
        at_most("FSIZE", facts.sizes.workspace.bytes),
        (locked.0 || own_kernel, locked.1),
        (
            resources.open_files.0 == "EMFILE",
            format!("opening files: {}", resources.open_files.0),
        ),
        (
            resources.sparse == "EFBIG",
            format!("a file of 1 TiB: {}", resources.sparse),
        ),
        (
            resources.core_files.is_empty(),
            format!("a crash left {}", some(&resources.core_files)),
        ),
    ];
    all(&conditions, "EMFILE, EFBIG, no core")
}

fn deadline(facts: &SandboxFacts) -> Finding {
    let end = &facts.endurance;
    let (shared, own) = LATE_SECONDS;
    let late = if facts.has_own_kernel() { own } else { shared };
    let conditions = [
        (
            end.ended_at_deadline,
            "it did not end at its deadline".to_owned(),
        ),
        (end.survivors == 0, format!("{} survivors", end.survivors)),
        (
            end.wall_seconds <= end.limit_seconds + late,
            format!("it took {:.1} s", end.wall_seconds),
        ),
    ];
    let good = format!("{:.1} of {:.1} s", end.wall_seconds, end.limit_seconds);
    all(&conditions, good)
}
