//! What a data set may not hold: sockets, FIFOs and devices (security.md row 29). A read-only
//! mount keeps nobody from connecting to a socket, such as that of a container engine.
//!
//! Looks at kinds of files only; opens none, follows no link, and stays on the file system of the
//! directory, since nothing that is mounted below it is shown to a program.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat2, statat};

/// Entries looked at in one data set.
pub const MAX_ENTRIES: usize = 50_000;

/// What a scan saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// Everything.
    Complete,
    /// Only as many as are looked at.
    Incomplete,
}

/// Something that must not be shared with programs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the data set holds {kind} ({name}), which must not be shared with programs: remove it")]
pub struct UnsafeContents {
    /// Such as `a socket`.
    kind: &'static str,
    /// Relative to the data set.
    name: String,
}

/// Looks for what must not be shared. Blocks on the file system. What cannot be listed cannot be
/// listed by the program either, which has fewer rights.
///
/// # Errors
///
/// [`UnsafeContents`] with the first thing found.
pub fn scan(directory: &OwnedFd) -> Result<Scan, UnsafeContents> {
    walk(directory, MAX_ENTRIES, |path, kind| match kind {
        FileType::Socket => Err(found("a socket", path)),
        FileType::Fifo => Err(found("a FIFO", path)),
        FileType::CharacterDevice | FileType::BlockDevice => Err(found("a device", path)),
        FileType::Directory | FileType::RegularFile | FileType::Symlink | FileType::Unknown => {
            Ok(())
        }
    })
}

/// Goes through what is below the directory, in the order in which the file system lists it, and
/// has each of the first `most` entries looked at: its path, which begins with `./`, and its kind.
///
/// # Errors
///
/// The first that `look` gives.
pub(super) fn walk<E>(
    directory: &OwnedFd,
    most: usize,
    mut look: impl FnMut(&Path, FileType) -> Result<(), E>,
) -> Result<Scan, E> {
    let mut pending = vec![PathBuf::from(".")];
    let mut seen = 0;
    while let Some(path) = pending.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let opened = openat2(directory, &path, flags, Mode::empty(), resolve);
        let Ok(listing) = opened.and_then(Dir::new) else {
            continue;
        };
        for entry in listing.flatten() {
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if name == "." || name == ".." {
                continue;
            }
            seen += 1;
            if seen > most {
                return Ok(Scan::Incomplete);
            }
            let below = path.join(name);
            let kind = kind(directory, &below, entry.file_type());
            look(&below, kind)?;
            if kind == FileType::Directory {
                pending.push(below);
            }
        }
    }
    Ok(Scan::Complete)
}

/// Some file systems tell the kind only when asked for each file.
fn kind(directory: &OwnedFd, path: &Path, listed: FileType) -> FileType {
    if listed != FileType::Unknown {
        return listed;
    }
    let stat = statat(directory, path, AtFlags::SYMLINK_NOFOLLOW);
    stat.map_or(FileType::Unknown, |stat| {
        FileType::from_raw_mode(stat.st_mode)
    })
}

fn found(kind: &'static str, path: &Path) -> UnsafeContents {
    let shown = path.strip_prefix(".").unwrap_or(path).to_string_lossy();
    UnsafeContents {
        kind,
        name: shown.escape_debug().take(200).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, mknodat, openat};

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn files_directories_and_links_are_fine() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        std::fs::write(directory.path().join("a/b/x.csv"), "1").unwrap();
        std::os::unix::fs::symlink("/", directory.path().join("a/link")).unwrap();
        assert_eq!(scan(&open(directory.path())), Ok(Scan::Complete));
    }

    #[test]
    fn a_socket_or_fifo_at_any_depth_is_found() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("a/b")).unwrap();
        let listener = UnixListener::bind(directory.path().join("a/b/engine.sock")).unwrap();
        let error = scan(&open(directory.path())).unwrap_err();
        assert_eq!(
            (error.kind, error.name.as_str()),
            ("a socket", "a/b/engine.sock")
        );
        drop(listener);
        std::fs::remove_file(directory.path().join("a/b/engine.sock")).unwrap();
        mknodat(
            CWD,
            directory.path().join("pipe"),
            FileType::Fifo,
            Mode::RUSR,
            0,
        )
        .unwrap();
        assert_eq!(scan(&open(directory.path())).unwrap_err().kind, "a FIFO");
    }
}
