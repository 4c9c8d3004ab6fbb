//! A daemon's calls of the kernel, followed and made to fail by strace, where there is one.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::Daemon;

/// Follows a daemon's calls.
pub(super) struct Trace {
    child: Child,
    file: PathBuf,
}

impl Trace {
    /// Follows these calls, or makes them fail. Nothing where there is no strace, or it may not: then there
    /// is nothing to be seen either.
    pub(super) fn of(daemon: &Daemon, arguments: &[&str]) -> Option<Self> {
        let file = daemon.path().join("trace");
        let spawned = Command::new("strace")
            .args(["-f", "-y", "-s", "24"])
            .args(arguments)
            .arg("-o")
            .arg(&file)
            .args(["-p", &daemon.pid().to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            eprintln!("SKIPPED: there is no strace");
            return None;
        };
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        if !line.contains("attached") {
            eprintln!("SKIPPED: strace may not follow another process: {line}");
            child.wait().unwrap();
            return None;
        }
        // It says a line for each thread; nobody reads on, and a pipe holds all of them.
        child.stderr = Some(said.into_inner());
        Some(Self { child, file })
    }

    /// The calls until now, each where it was over, in order.
    pub(super) fn end(mut self) -> Vec<String> {
        // Where the daemon has ended it has ended, too.
        if self.child.try_wait().unwrap().is_none() {
            kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        }
        self.child.wait().unwrap();
        let text = std::fs::read_to_string(&self.file).unwrap();
        let mut begun = std::collections::HashMap::new();
        let mut calls = Vec::new();
        for line in text.lines() {
            let (thread, call) = line.split_once(' ').unwrap();
            let call = call.trim_start();
            if let Some((call, _)) = call.split_once("<unfinished ...>") {
                begun.insert(thread.to_owned(), call.to_owned());
            } else if call.starts_with("<... ") {
                let rest = call.split_once("resumed>").map_or("", |(_, rest)| rest);
                let first = begun.remove(thread).unwrap_or_default();
                calls.push(format!("{first}{rest}"));
            } else {
                calls.push(call.to_owned());
            }
        }
        calls
    }
}
