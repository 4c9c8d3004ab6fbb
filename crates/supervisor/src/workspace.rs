//! Owns the open workspace directory and what is put into it before the program starts. Every
//! path is walked one component at a time from that directory, and no link is ever followed.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use fumehood_protocol::message::{Filesystem, WriteFile};

use crate::error::Fatal;
use crate::sys::files;

/// Directories that every program finds in its workspace: results, home, caches.
const PREPARED: [&CStr; 3] = [c"out", c".home", c".cache"];

/// The open workspace. Stays valid whatever the program does to its permissions.
#[derive(Debug)]
pub(crate) struct Workspace {
    directory: OwnedFd,
}

impl Workspace {
    pub(crate) fn open(path: &CStr) -> Result<Self, Fatal> {
        let here = files::working_directory();
        files::open_at(here, path, libc::O_RDONLY | libc::O_DIRECTORY, 0)
            .map(|directory| Self { directory })
            .map_err(Fatal::io("opening the workspace"))
    }

    pub(crate) fn filesystem(&self) -> io::Result<Filesystem> {
        files::filesystem_of(self.directory.as_fd()).map(|mounted| mounted.sizes)
    }

    /// Appends to an input file, creating it and its parents.
    pub(crate) fn write(&self, file: &WriteFile) -> io::Result<()> {
        let components =
            components(&file.path).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))?;
        let Some((name, parents)) = components.split_last() else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let mut parent: Option<OwnedFd> = None;
        for component in parents {
            let above = parent.as_ref().map_or(self.directory.as_fd(), AsFd::as_fd);
            parent = Some(enter(above, component)?);
        }
        let parent = parent.as_ref().map_or(self.directory.as_fd(), AsFd::as_fd);
        let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_APPEND;
        File::from(files::open_at(parent, name, flags, 0o644)?).write_all(&file.bytes)
    }

    /// Makes the directories that every program finds. Nobody else is to look into the workspace:
    /// some runtimes give a tmpfs the mode of the directory below it, whatever was asked for.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        self.regain()?;
        PREPARED
            .iter()
            .try_for_each(|name| enter(self.directory.as_fd(), name).map(drop))
    }

    /// Gives back to ourselves what the program may have taken: the right to search the workspace.
    pub(crate) fn regain(&self) -> io::Result<()> {
        files::change_mode(self.directory.as_fd(), 0o700)
    }
}

impl AsFd for Workspace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// Opens a directory, making it if it is not there.
fn enter(parent: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    match files::make_directory_at(parent, name, 0o755) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    files::open_at(parent, name, libc::O_RDONLY | libc::O_DIRECTORY, 0)
}

/// The components of a path that stays below where it starts, or `None`.
fn components(path: &str) -> Option<Vec<CString>> {
    path.split('/')
        .map(|component| match component {
            "" | "." | ".." => None,
            name => CString::new(name).ok(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_relative_paths_are_taken() {
        let expected = [c"a", c".b", c"..c", c" "].map(CString::from);
        assert_eq!(components("a/.b/..c/ ").unwrap(), expected);
    }

    #[test]
    fn paths_that_could_leave_the_workspace_are_not() {
        for path in [
            "", "/", "/etc/x", "a//b", "a/", ".", "a/./b", "..", "a/../b", "a\0b",
        ] {
            assert_eq!(components(path), None, "{path:?}");
        }
    }
}
