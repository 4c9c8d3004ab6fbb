//! Which directory a data set's path means, and whether it may be used (BR-26, BR-27).
//!
//! Owns the way from a text that a client sent to a pinned directory inside an allowed root, and
//! back to an open descriptor of the very same directory at the time of use. Opens no file, lists
//! no directory, and tells a client nothing about what exists outside the roots.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::execution::DatasetPin;

/// The longest path that a kernel takes, in bytes.
const MAX_PATH_BYTES: usize = 4095;

/// Symbolic links followed before a path counts as a loop, as in the kernel.
const MAX_LINKS: usize = 40;

/// Why a path is no data set. Says the same for every path outside the roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DatasetPathError {
    /// Not in any allowed root, whether it exists or not.
    #[error("the data set is outside the allowed data roots")]
    Outside,
    /// Nothing, or no directory, or no usable path at all.
    #[error("the data set is not a directory")]
    NotADirectory,
}

/// The pinned directory is not there any more, or something else is in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("data set changed or is missing since the run was accepted")]
pub struct DatasetChanged;

/// A list of roots that would allow nothing, which is a mistake of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// None at all.
    #[error("app.allowed_data_root is empty: name at least one directory")]
    Empty,
    /// One that cannot be used.
    #[error("app.allowed_data_root names {path}, which cannot be resolved to a directory")]
    Unresolvable {
        /// As configured.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Checks that every root resolves to a directory; to be called before anything is served.
///
/// # Errors
///
/// [`RootError`] for the first root that does not, or if there is none.
pub fn check_roots(roots: &[PathBuf]) -> Result<(), RootError> {
    canonical_roots(roots).map(drop)
}

/// Finds the directory that `requested` means, relative to the current directory, and pins it.
///
/// Blocks on the file system. Links are followed wherever they lead; what counts is where the
/// path ends. A root that cannot be resolved denies everything, since what it was meant to allow
/// is not known.
///
/// # Errors
///
/// [`DatasetPathError`]; outside the roots always [`DatasetPathError::Outside`].
pub fn resolve(roots: &[PathBuf], requested: &str) -> Result<DatasetPin, DatasetPathError> {
    if requested.is_empty() || requested.contains('\0') || requested.len() > MAX_PATH_BYTES {
        return Err(DatasetPathError::NotADirectory);
    }
    let roots = canonical_roots(roots).map_err(|_| DatasetPathError::Outside)?;
    let path = follow(Path::new(requested)).ok_or(DatasetPathError::Outside)?;
    // `starts_with` compares whole components: `data-evil` does not start with `data`.
    if !roots.iter().any(|root| path.starts_with(root)) {
        return Err(DatasetPathError::Outside);
    }
    // The pin is stored as text.
    if path.to_str().is_none() {
        return Err(DatasetPathError::NotADirectory);
    }
    let directory = open_without_links(&path).map_err(|_| DatasetPathError::NotADirectory)?;
    let (device, inode) = identity(&directory).map_err(|_| DatasetPathError::NotADirectory)?;
    Ok(DatasetPin {
        path,
        device,
        inode,
    })
}

/// Opens a pinned directory again, at the time of use. The descriptor is an `O_PATH` one.
///
/// # Errors
///
/// [`DatasetChanged`] if the path, or any part of it, is now a link, gone, or another directory.
pub fn reopen(pin: &DatasetPin) -> Result<OwnedFd, DatasetChanged> {
    let directory = open_without_links(&pin.path).map_err(|_| DatasetChanged)?;
    match identity(&directory) {
        Ok(found) if found == (pin.device, pin.inode) => Ok(directory),
        Ok(_) | Err(_) => Err(DatasetChanged),
    }
}

fn canonical_roots(roots: &[PathBuf]) -> Result<Vec<PathBuf>, RootError> {
    if roots.is_empty() {
        return Err(RootError::Empty);
    }
    let canonical = |root: &PathBuf| {
        let path = fs::canonicalize(root)?;
        if fs::metadata(&path)?.is_dir() {
            Ok(path)
        } else {
            Err(Errno::NOTDIR.into())
        }
    };
    roots
        .iter()
        .map(|root| {
            canonical(root).map_err(|source| RootError::Unresolvable {
                path: root.clone(),
                source,
            })
        })
        .collect()
}

/// The absolute path without links that `requested` leads to: links of the part that exists are
/// followed, the rest is taken by its names. `None` for a loop.
fn follow(requested: &Path) -> Option<PathBuf> {
    let mut resolved = if requested.is_absolute() {
        PathBuf::from("/")
    } else {
        std::env::current_dir().ok()?
    };
    let mut pending: VecDeque<OsString> = names(requested).collect();
    let mut links = 0;
    while let Some(name) = pending.pop_front() {
        if name == ".." {
            resolved.pop();
            continue;
        }
        resolved.push(&name);
        // Whatever cannot be read as a link, for whatever reason, is taken by its name.
        let Ok(target) = fs::read_link(&resolved) else {
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return None;
        }
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        } else {
            resolved.pop();
        }
        for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
            pending.push_front(name);
        }
    }
    Some(resolved)
}

fn names(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    })
}

fn open_without_links(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // EPERM is what an older container runtime's filter says instead of ENOSYS.
        Err(Errno::NOSYS | Errno::PERM) => open_by_component(path),
        opened => opened,
    }
}

/// The same for kernels before 5.6: every component is opened from its parent, and no link.
fn open_by_component(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = rustix::fs::open("/", flags, Mode::empty())?;
    for component in path.components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => {
                directory = rustix::fs::openat(&directory, name.as_bytes(), flags, Mode::empty())?;
            }
            Component::Prefix(_) | Component::CurDir | Component::ParentDir => {
                return Err(Errno::INVAL);
            }
        }
    }
    Ok(directory)
}

fn identity(directory: &OwnedFd) -> rustix::io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// `srv/data` is the root; beside it are a sibling with the same prefix and a secret.
    fn tree() -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        for path in ["data/ok/deep", "data-private", "secret"] {
            fs::create_dir_all(top.join(path)).unwrap();
        }
        fs::write(top.join("data/file.csv"), "x").unwrap();
        symlink("/etc", top.join("data/link_to_etc")).unwrap();
        symlink("../secret", top.join("data/link_out")).unwrap();
        symlink("ok/deep", top.join("data/link_in")).unwrap();
        symlink("loop_b", top.join("data/loop_a")).unwrap();
        symlink("loop_a", top.join("data/loop_b")).unwrap();
        symlink("self/x", top.join("data/self")).unwrap();
        symlink("missing", top.join("data/dangling")).unwrap();
        symlink("data", top.join("alias")).unwrap();
        (dir, top)
    }

    #[test]
    fn only_directories_inside_the_root_are_data_sets() {
        use DatasetPathError::{NotADirectory, Outside};
        let (_dir, top) = tree();
        let data = top.join("data");
        let long = format!("{}/{}", data.display(), "a/".repeat(2500));
        let long_name = format!("{}/{}", data.display(), "a".repeat(300));
        let inside: &[(&str, Result<&str, DatasetPathError>)] = &[
            ("@/data", Ok("")),
            ("@/data/", Ok("")),
            ("@/data/ok", Ok("ok")),
            ("@//data//ok/.", Ok("ok")),
            ("@/data/ok/../ok/deep/..", Ok("ok")),
            ("@/data-private/../data/ok", Ok("ok")),
            ("@/alias/ok", Ok("ok")),
            ("@/data/link_in", Ok("ok/deep")),
            ("@/data/link_in/..", Ok("ok")),
            ("@/data/file.csv", Err(NotADirectory)),
            ("@/data/file.csv/x", Err(NotADirectory)),
            ("@/data/missing", Err(NotADirectory)),
            ("@/data/dangling", Err(NotADirectory)),
            ("@/data/~", Err(NotADirectory)),
            ("@/data/$HOME", Err(NotADirectory)),
            ("@/data/a\0b", Err(NotADirectory)),
            ("", Err(NotADirectory)),
            (&long, Err(NotADirectory)),
            (&long_name, Err(NotADirectory)),
            ("@/data-private", Err(Outside)),
            ("@/data/../secret", Err(Outside)),
            ("@/data/ok/../../secret", Err(Outside)),
            ("@/data/missing/../../secret", Err(Outside)),
            ("@/data/link_to_etc", Err(Outside)),
            ("@/data/link_out", Err(Outside)),
            ("@/data/link_out/missing", Err(Outside)),
            ("@/data/loop_a", Err(Outside)),
            ("@/data/self", Err(Outside)),
            ("@", Err(Outside)),
            ("@/missing", Err(Outside)),
            ("/", Err(Outside)),
            ("/etc", Err(Outside)),
            ("/etc/passwd", Err(Outside)),
            ("/etc/missing", Err(Outside)),
            ("/proc/self/root/etc", Err(Outside)),
            ("/var/run/docker.sock", Err(Outside)),
            ("relative/x", Err(Outside)),
            ("../../.env", Err(Outside)),
            (".", Err(Outside)),
            ("~", Err(Outside)),
        ];
        for (requested, expected) in inside {
            let requested = requested.replace('@', top.to_str().unwrap());
            let found = resolve(std::slice::from_ref(&data), &requested).map(|pin| pin.path);
            let expected = expected.map(|path| data.join(path).components().collect::<PathBuf>());
            assert_eq!(found, expected, "{requested:?}");
        }
    }

    #[test]
    fn odd_names_mean_exactly_that_directory() {
        let (_dir, top) = tree();
        let data = top.join("data");
        for name in [
            "exp:2024,v1 é 'q' $(x)",
            "a:b:rw",
            " lead",
            "new\nline",
            "-v",
            "..x",
        ] {
            let path = data.join(name);
            fs::create_dir(&path).unwrap();
            let pin = resolve(std::slice::from_ref(&data), path.to_str().unwrap()).unwrap();
            assert_eq!(pin.path, path);
        }
    }

    #[test]
    fn a_path_is_taken_relative_to_the_current_directory() {
        let here = std::env::current_dir().unwrap();
        let root = [PathBuf::from(".")];
        assert_eq!(resolve(&root, ".").unwrap().path, here);
        assert_eq!(resolve(&root, "src").unwrap().path, here.join("src"));
        assert_eq!(resolve(&root, ".."), Err(DatasetPathError::Outside));
        assert_eq!(resolve(&root, "~"), Err(DatasetPathError::NotADirectory));
        assert_eq!(resolve(&root, "../../.env"), Err(DatasetPathError::Outside));
    }

    #[test]
    fn roots_that_allow_nothing_are_an_error_and_deny_everything() {
        let (_dir, top) = tree();
        let ok = top.join("data/ok");
        let requested = ok.to_str().unwrap();
        assert!(matches!(check_roots(&[]), Err(RootError::Empty)));
        assert_eq!(resolve(&[], requested), Err(DatasetPathError::Outside));
        for bad in ["missing", "data/file.csv", "data/loop_a"] {
            let roots = [top.join("data"), top.join(bad)];
            assert!(matches!(
                check_roots(&roots),
                Err(RootError::Unresolvable { .. })
            ));
            assert_eq!(resolve(&roots, requested), Err(DatasetPathError::Outside));
        }
        let roots = [top.join("secret"), top.join("alias")];
        check_roots(&roots).unwrap();
        assert!(resolve(&roots, requested).is_ok());
    }

    #[test]
    fn a_data_set_that_was_replaced_while_the_run_waited_is_noticed() {
        let (_dir, top) = tree();
        let data = top.join("data");
        let ok = data.join("ok");
        let pin = resolve(std::slice::from_ref(&data), ok.to_str().unwrap()).unwrap();
        let fd = reopen(&pin).unwrap();
        assert_eq!(identity(&fd).unwrap(), (pin.device, pin.inode));

        fs::rename(&ok, data.join("moved")).unwrap();
        assert!(reopen(&pin).is_err(), "gone");
        symlink("moved", &ok).unwrap();
        assert!(reopen(&pin).is_err(), "a link to the same directory");
        fs::remove_file(&ok).unwrap();
        fs::create_dir(&ok).unwrap();
        assert!(reopen(&pin).is_err(), "another directory");
        fs::remove_dir(&ok).unwrap();
        fs::rename(data.join("moved"), &ok).unwrap();
        assert!(reopen(&pin).is_ok());

        fs::rename(&data, top.join("data2")).unwrap();
        symlink("data2", &data).unwrap();
        assert!(reopen(&pin).is_err(), "a parent became a link");
    }

    #[test]
    fn without_openat2_the_answer_is_the_same() {
        let (_dir, top) = tree();
        assert!(open_by_component(&top.join("data/ok")).is_ok());
        for path in ["data/link_in", "alias/ok", "data/file.csv", "data/missing"] {
            assert!(open_by_component(&top.join(path)).is_err(), "{path}");
            assert!(open_without_links(&top.join(path)).is_err(), "{path}");
        }
    }
}
