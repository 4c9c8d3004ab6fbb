//! Owns the readings of what a program uses: its control group (version 1 or 2) and the file
//! systems it can fill. A kernel that does not tell is `None`, never 0.

use std::ffi::CStr;
use std::fs::File;
use std::io::Read as _;
use std::time::{Duration, Instant};

use fumehood_protocol::message::{Filesystem, Usage};

use crate::sys::{files, process};
use crate::workspace::Workspace;

/// The places at which a counter of the control group may be found, version 2 first.
const CPU: &[(&str, Option<&str>, u64)] = &[
    // File, name of the line, how many units make a microsecond.
    ("/sys/fs/cgroup/cpu.stat", Some("usage_usec"), 1),
    ("/sys/fs/cgroup/cpuacct/cpuacct.usage", None, 1000),
    ("/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage", None, 1000),
];
const PEAK_MEMORY: &[(&str, Option<&str>, u64)] = &[
    ("/sys/fs/cgroup/memory.peak", None, 1),
    ("/sys/fs/cgroup/memory/memory.max_usage_in_bytes", None, 1),
];
const MEMORY_KILLS: &[(&str, Option<&str>, u64)] = &[
    ("/sys/fs/cgroup/memory.events", Some("oom_kill"), 1),
    (
        "/sys/fs/cgroup/memory/memory.oom_control",
        Some("oom_kill"),
        1,
    ),
];
const PROCESS_REFUSALS: &[(&str, Option<&str>, u64)] = &[
    ("/sys/fs/cgroup/pids.events", Some("max"), 1),
    ("/sys/fs/cgroup/pids/pids.events", Some("max"), 1),
];

/// The counters that only ever grow, at one moment.
#[derive(Debug, Clone, Copy)]
struct Counters {
    cpu_microseconds: Option<u64>,
    memory_kills: Option<u64>,
    process_refusals: Option<u64>,
    /// Of children that were reaped: for a kernel that counts no CPU time for the sandbox.
    children_cpu_microseconds: Option<u64>,
}

impl Counters {
    fn read() -> Self {
        let children = process::child_usage().ok();
        Self {
            cpu_microseconds: counter(CPU),
            memory_kills: counter(MEMORY_KILLS),
            process_refusals: counter(PROCESS_REFUSALS),
            children_cpu_microseconds: children.map(|children| children.cpu_microseconds),
        }
    }
}

/// The most memory that was charged to the sandbox so far.
pub(crate) fn peak_memory_bytes() -> Option<u64> {
    counter(PEAK_MEMORY)
}

/// Watches one program.
#[derive(Debug)]
pub(crate) struct Watch {
    before: Counters,
    /// How many kills for memory were seen since the beginning, and when they last became more.
    memory_kills: u64,
    memory_killed_at: Option<Instant>,
    workspace: Option<Filesystem>,
    /// `None` where the directory is no file system of its own.
    temporary: Fullest,
    shared_memory: Fullest,
}

impl Watch {
    /// Takes the readings that later ones are compared with; call right before the start. `used`
    /// is the CPU time of a process that will become the program: it is reaped with it.
    pub(crate) fn begin(workspace: &Workspace, used: Duration) -> Self {
        let mut before = Counters::read();
        let used = u64::try_from(used.as_micros()).unwrap_or(u64::MAX);
        let children = &mut before.children_cpu_microseconds;
        *children = children.map(|reaped| reaped.saturating_add(used));
        let mut watch = Self {
            before,
            memory_kills: 0,
            memory_killed_at: None,
            workspace: None,
            temporary: Fullest::of(c"/tmp"),
            shared_memory: Fullest::of(c"/dev/shm"),
        };
        watch.look(workspace);
        watch
    }

    /// Looks how full the file systems are, and whether something was killed for memory.
    pub(crate) fn look(&mut self, workspace: &Workspace) {
        let kills = since(self.before.memory_kills, counter(MEMORY_KILLS)).unwrap_or(0);
        if kills > self.memory_kills {
            self.memory_kills = kills;
            self.memory_killed_at = Some(Instant::now());
        }
        if let Ok(now) = workspace.filesystem() {
            self.workspace = Some(fuller(self.workspace, now));
        }
        self.temporary.look();
        self.shared_memory.look();
    }

    /// What was used since the beginning; call when everything has been reaped. The main process was over
    /// at `ended`.
    pub(crate) fn usage(&self, ended: Instant) -> Usage {
        let after = Counters::read();
        // One that nobody has looked at since is of the very end.
        let memory_kills = since(self.before.memory_kills, after.memory_kills);
        let last_kill = match memory_kills {
            Some(kills) if kills > self.memory_kills => Some(ended),
            _ => self.memory_killed_at,
        };
        let since_last_kill = last_kill.map(|at| ended.saturating_duration_since(at));
        let children = process::child_usage().ok();
        Usage {
            cpu_microseconds: since(self.before.cpu_microseconds, after.cpu_microseconds)
                .or(since(
                    self.before.children_cpu_microseconds,
                    after.children_cpu_microseconds,
                ))
                .unwrap_or(0),
            peak_memory_bytes: peak_memory_bytes(),
            peak_resident_bytes: children.map_or(0, |children| children.peak_resident_bytes),
            memory_kills,
            since_memory_kill_milliseconds: since_last_kill
                .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            process_refusals: since(self.before.process_refusals, after.process_refusals),
            workspace_fullest: self.workspace,
            temporary_fullest: self.temporary.reading,
            shared_memory_fullest: self.shared_memory.reading,
        }
    }
}

fn since(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

/// The fullest reading of a file system mounted at a fixed place.
#[derive(Debug)]
struct Fullest {
    place: Option<&'static CStr>,
    reading: Option<Filesystem>,
}

impl Fullest {
    /// A directory that belongs to the root file system tells nothing about the program.
    fn of(place: &'static CStr) -> Self {
        let here = files::working_directory();
        let device = |path| {
            files::status_at(here, path)
                .ok()
                .map(|status| status.device)
        };
        let own = device(place).is_some() && device(place) != device(c"/");
        Self {
            place: own.then_some(place),
            reading: None,
        }
    }

    fn look(&mut self) {
        if let Some(now) = self.place.and_then(|place| files::filesystem(place).ok()) {
            self.reading = Some(fuller(self.reading, now.sizes));
        }
    }
}

/// The least free bytes and the least free inodes of both readings.
fn fuller(before: Option<Filesystem>, now: Filesystem) -> Filesystem {
    let before = before.unwrap_or(now);
    Filesystem {
        total_bytes: now.total_bytes,
        free_bytes: now.free_bytes.min(before.free_bytes),
        total_inodes: now.total_inodes,
        free_inodes: now.free_inodes.min(before.free_inodes),
    }
}

/// The first of these counters that the kernel has.
fn counter(places: &[(&str, Option<&str>, u64)]) -> Option<u64> {
    places.iter().find_map(|&(path, line, units)| {
        let mut text = String::new();
        File::open(path)
            .ok()?
            .take(16 << 10)
            .read_to_string(&mut text)
            .ok()?;
        value(&text, line).map(|value| value / units)
    })
}

/// The number in a file of one number, or in the line `name number`.
fn value(text: &str, line: Option<&str>) -> Option<u64> {
    match line {
        None => text.trim().parse().ok(),
        Some(name) => text.lines().find_map(|text| {
            let mut words = text.split_whitespace();
            (words.next()? == name)
                .then_some(words.next()?)?
                .parse()
                .ok()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_in_both_versions_of_the_format() {
        assert_eq!(value("1234\n", None), Some(1234));
        assert_eq!(value("max\n", None), None);
        let events = "low 0\nmax 3\noom 1\noom_kill 2\noom_group_kill 9\n";
        assert_eq!(value(events, Some("oom_kill")), Some(2));
        assert_eq!(
            value("oom_kill_disable 0\nunder_oom 0\n", Some("oom_kill")),
            None
        );
    }

    #[test]
    fn the_fullest_reading_keeps_the_least_of_bytes_and_of_inodes() {
        let reading = |free_bytes, free_inodes| Filesystem {
            total_bytes: 100,
            free_bytes,
            total_inodes: 10,
            free_inodes,
        };
        let fullest = fuller(Some(reading(50, 2)), reading(40, 9));
        assert_eq!(fullest, reading(40, 2));
        assert_eq!(fuller(None, reading(1, 1)), reading(1, 1));
    }
}
