//! Owns the walk over the workspace after the program's end: which message about the artifacts
//! comes next. Lazy, so that the sender can wait for room between any two messages; without
//! recursion, so that no tree the program made can exhaust the stack. It follows no link and
//! opens nothing but regular files and directories.
//!
//! Order: everything below `out`, depth first, the names of each directory sorted as bytes; then
//! the regular files at the top of the workspace. `out` itself is not listed.
//!
//! An `Entry` is ended by `EntryEnd`, or by a `Skipped` with the same path if the promised bytes
//! could not be delivered: the receiver then discards the entry.

mod names;
mod budget;
mod content;

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use fumehood_protocol::FromSupervisor;
use fumehood_protocol::message::{CollectLimits, Entry, SkipReason, Skipped};

use crate::sys::files::{self, Kind, Status};
use crate::workspace::Workspace;
use budget::Budget;
use content::{Content, Piece};
use names::Listing;

/// The directory for results.
const RESULTS: &CStr = c"out";

/// Whether the walk has something to say.
#[derive(Debug)]
pub(crate) enum Step {
    /// The next message; nothing follows after `Done`.
    Message(FromSupervisor),
    /// Something was looked at that needs no message.
    Working,
}

/// How far the walk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was looked at.
    Begin,
    /// Below `out`.
    Results,
    /// At the top of the workspace.
    Top,
}

/// An open directory on the way down.
#[derive(Debug)]
struct Level {
    directory: OwnedFd,
    names: std::vec::IntoIter<CString>,
    /// Length of the directory's own path within [`Walk::path`].
    path_length: usize,
}

/// A walk in progress.
#[derive(Debug)]
pub(crate) struct Walk {
    stage: Stage,
    levels: Vec<Level>,
    /// Path of the deepest level, relative to the workspace.
    path: Vec<u8>,
    /// The file being sent.
    content: Option<Content>,
    /// Said before anything else: a directory needs up to three messages.
    pending: VecDeque<FromSupervisor>,
    budget: Budget,
    ignore: Vec<String>,
}

impl Walk {
    pub(crate) fn new(limits: CollectLimits) -> Self {
        Self {
            stage: Stage::Begin,
            levels: Vec::new(),
            path: Vec::new(),
            content: None,
            pending: VecDeque::new(),
            budget: Budget::new(&limits),
            ignore: limits.ignore,
        }
    }

    /// Goes on by one message or one thing looked at.
    pub(crate) fn step(&mut self, workspace: &Workspace) -> Step {
        if let Some(message) = self.pending.pop_front() {
            return Step::Message(message);
        }
        if let Some(content) = self.content.take() {
            return self.send(content);
        }
        match self.stage {
            Stage::Begin => {
                // The program may have locked the workspace; it is ours, so this unlocks it.
                // If not, opening `out` fails next and is reported.
                let _ = workspace.regain();
                self.stage = Stage::Results;
                self.begin_results(workspace.as_fd());
            }
            Stage::Results if self.levels.is_empty() => {
                self.stage = Stage::Top;
                self.begin_top(workspace.as_fd());
            }
            Stage::Top if self.levels.is_empty() => {
                return Step::Message(FromSupervisor::Done(self.budget.done()));
            }
            Stage::Results | Stage::Top => self.next_name(),
        }
        self.pending
            .pop_front()
            .map_or(Step::Working, Step::Message)
    }

    fn begin_results(&mut self, workspace: BorrowedFd<'_>) {
        let path = RESULTS.to_bytes();
        match files::status_at(workspace, RESULTS) {
            Ok(status) if status.kind == Kind::Directory => {
                self.descend(workspace, RESULTS, status, path.to_vec(), Announce::No);
            }
            Ok(status) => {
                // Whatever the program has put there instead is judged like any other name.
                if status.kind != Kind::Regular {
                    self.skip(path, reason_against(status.kind), status.size);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => self.skip(path, SkipReason::Unreadable, 0),
        }
    }

    fn begin_top(&mut self, workspace: BorrowedFd<'_>) {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        match files::open_at(workspace, c".", flags, 0) {
            Ok(directory) => self.enter(directory, Vec::new()),
            Err(_) => self.skip(b".", SkipReason::Unreadable, 0),
        }
    }

    fn next_name(&mut self) {
        let Some(mut level) = self.levels.pop() else {
            return;
        };
        self.path.truncate(level.path_length);
        let Some(name) = level.names.next() else {
            return;
        };
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.to_bytes());
        let directory = level.directory.try_clone();
        self.levels.push(level);
        match directory {
            Ok(directory) => self.visit(directory.as_fd(), &name, path),
            Err(_) => self.skip(&path, SkipReason::Unreadable, 0),
        }
    }

    fn visit(&mut self, parent: BorrowedFd<'_>, name: &CStr, path: Vec<u8>) {
        let top = self.stage == Stage::Top;
        let ignored = |ignore: &String| ignore.as_bytes() == name.to_bytes();
        if top && self.ignore.iter().any(ignored) {
            return;
        }
        let status = match files::status_at(parent, name) {
            Ok(status) => status,
            Err(_) => return self.skip(&path, SkipReason::Unreadable, 0),
        };
        match status.kind {
            // Directories at the top are the program's own affair; `out` was walked already.
            Kind::Directory if top => {}
            _ if name == RESULTS && top && status.kind != Kind::Regular => {}
            Kind::Directory | Kind::Regular if path.len() > self.budget.path_bytes() => {
                self.skip(&path, SkipReason::PathLength, status.size);
            }
            Kind::Directory => self.descend(parent, name, status, path, Announce::Yes),
            Kind::Regular => self.open(parent, name, status, path),
            Kind::SymbolicLink | Kind::Special => {
                self.skip(&path, reason_against(status.kind), status.size);
            }
        }
    }

    fn descend(
        &mut self,
        parent: BorrowedFd<'_>,
        name: &CStr,
        status: Status,
        path: Vec<u8>,
        announce: Announce,
    ) {
        if self.levels.len() > self.budget.depth() {
            return self.skip(&path, SkipReason::Depth, 0);
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NONBLOCK;
        let Ok(directory) = open_ours(parent, name, status, flags, 0o700) else {
            return self.skip(&path, SkipReason::Unreadable, 0);
        };
        if announce == Announce::Yes {
            self.pending.push_back(entry(path.clone(), &status));
            self.pending.push_back(FromSupervisor::EntryEnd);
        }
        self.enter(directory, path);
    }

    fn enter(&mut self, directory: OwnedFd, path: Vec<u8>) {
        match names::list(directory.as_fd(), self.budget.entries()) {
            Ok(Listing { names, complete }) => {
                self.budget.take_entries(names.len());
                if !complete {
                    let shown: &[u8] = if path.is_empty() { b"." } else { &path };
                    self.skip(shown, SkipReason::EntryCount, 0);
                }
                self.path = path;
                let path_length = self.path.len();
                self.levels.push(Level {
                    directory,
                    names: names.into_iter(),
                    path_length,
                });
            }
            Err(_) => self.skip(&path, SkipReason::Unreadable, 0),
        }
    }

    fn open(&mut self, parent: BorrowedFd<'_>, name: &CStr, status: Status, path: Vec<u8>) {
        if let Err(reason) = self.budget.admits(status.size) {
            return self.skip(&path, reason, status.size);
        }
        let flags = libc::O_RDONLY | libc::O_NONBLOCK;
        let Ok(file) = open_ours(parent, name, status, flags, 0o400) else {
            return self.skip(&path, SkipReason::Unreadable, status.size);
        };
        // What was opened must be what was looked at.
        match files::status(file.as_fd()) {
            Ok(opened)
                if opened.kind == Kind::Regular
                    && (opened.device, opened.inode, opened.size)
                        == (status.device, status.inode, status.size) => {}
            Ok(_) => return self.skip(&path, SkipReason::Changed, status.size),
            Err(_) => return self.skip(&path, SkipReason::Unreadable, status.size),
        }
        self.budget.take_file(status.size);
        self.pending.push_back(entry(path.clone(), &status));
        self.content = Some(Content::new(file, path, status.size));
    }

    fn send(&mut self, mut content: Content) -> Step {
        match content.next_piece() {
            Piece::Chunk(chunk) => {
                self.content = Some(content);
                Step::Message(FromSupervisor::Chunk(chunk))
            }
            Piece::End => {
                self.budget.complete(content.size());
                Step::Message(FromSupervisor::EntryEnd)
            }
            Piece::Broken(reason) => {
                // Always listed: the receiver has to discard what it has got of this entry.
                let (path, size) = (content.path().to_vec(), content.size());
                Step::Message(FromSupervisor::Skipped(Skipped { path, reason, size }))
            }
        }
    }

    fn skip(&mut self, path: &[u8], reason: SkipReason, size: u64) {
        if self.budget.lists_another_skip() {
            let path = path[..path.len().min(self.budget.path_bytes())].to_vec();
            self.pending
                .push_back(FromSupervisor::Skipped(Skipped { path, reason, size }));
        }
    }
}

/// Whether a directory gets an entry of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announce {
    Yes,
    No,
}

fn entry(path: Vec<u8>, status: &Status) -> FromSupervisor {
    let is_directory = status.kind == Kind::Directory;
    FromSupervisor::Entry(Entry {
        path,
        is_directory,
        size: if is_directory { 0 } else { status.size },
        executable: !is_directory && status.mode & 0o100 != 0,
        modified_seconds: status.modified_seconds,
        modified_nanoseconds: status.modified_nanoseconds,
    })
}

fn reason_against(kind: Kind) -> SkipReason {
    match kind {
        Kind::SymbolicLink => SkipReason::SymbolicLink,
        Kind::Special | Kind::Regular | Kind::Directory => SkipReason::SpecialFile,
    }
}

/// Opens something of our own user, giving us the permissions that the program has taken away.
fn open_ours(
    parent: BorrowedFd<'_>,
    name: &CStr,
    status: Status,
    flags: libc::c_int,
    needed: libc::mode_t,
) -> std::io::Result<OwnedFd> {
    if status.mode & needed != needed {
        // Fails if it is not ours after all; then opening fails as well and says so.
        let _ = files::change_mode_at(parent, name, (status.mode | needed) & 0o777);
    }
    files::open_at(parent, name, flags, 0)
}
