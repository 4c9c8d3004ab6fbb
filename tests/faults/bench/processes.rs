//! Processes of the bench's own engine, told from everybody else's by what only they can have: the
//! bench's directory in their command line, or a container of this engine in their control groups.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Processes of an engine: how the names of their programs begin.
pub(super) const OF_AN_ENGINE: [&str; 3] = ["dockerd", "containerd", "runc"];

/// The process that looks after a container, as the kernel shortens its name.
pub(super) const SHIM: [&str; 1] = ["containerd-shim"];

/// Process ids of programs with such names that have the text in their command line.
pub(super) fn with_argument(names: &[&str], text: &str) -> Vec<i32> {
    let has = |pid: &i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        names.iter().any(|begin| name.starts_with(begin))
            && String::from_utf8_lossy(&line).contains(text)
    };
    all().filter(has).collect()
}

/// Process ids in the control group of a container.
pub(super) fn in_container(id: &str) -> Vec<i32> {
    let is_in = |pid: &i32| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        groups.contains(id)
    };
    all().filter(is_in).collect()
}

/// Ids of the containers that an engine has on its disk.
pub(super) fn containers_below(data: &Path) -> Vec<String> {
    let entries = fs::read_dir(data.join("containers")).into_iter().flatten();
    let names = entries.flatten().map(|entry| entry.file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    names.filter(|name| name.len() == 64).collect()
}

/// Mount points below a directory, the deepest first.
pub(super) fn mounts_below(directory: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let below = points.filter(|point| Path::new(point).starts_with(directory));
    let mut below: Vec<String> = below.map(str::to_owned).collect();
    below.sort_by_key(|point| std::cmp::Reverse(point.len()));
    below
}

/// Sends a signal; whoever is gone already does not mind.
pub(super) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let own = i32::try_from(std::process::id()).unwrap();
    names
        .filter_map(|name| name.parse().ok())
        .filter(move |pid| *pid != own)
}
