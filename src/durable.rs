//! Directories that are there after a loss of power: a new name is on disk only after its directory was
//! flushed (security.md 3.2, 2). Blocks.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

/// Makes a directory, and those above it that are missing, with this mode, and returns after their
/// names are on disk. One that is there stays as it is; its name is flushed all the same, because
/// whoever made it may have died before.
///
/// # Errors
///
/// The file system's.
pub fn make_directory(path: &Path, mode: u32) -> io::Result<()> {
    let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let made: Vec<&Path> = path.ancestors().take_while(missing).collect();
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    for directory in &made {
        sync_directory(above(directory))?;
    }
    match sync_directory(above(path)) {
        // One that others gave us, in a place that we may pass through and not read.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && made.is_empty() => Ok(()),
        flushed => flushed,
    }
}

/// Flushes the names in a directory.
///
/// # Errors
///
/// The file system's.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn above(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        // Of `name` it is the working directory; that of the root is the root.
        Some(_) => Path::new("."),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn all_that_are_missing_are_made_for_the_owner_and_what_is_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/c");
        for _ in 0..2 {
            make_directory(&path, 0o700).unwrap();
        }
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o700);
        make_directory(&path, 0o755).unwrap();
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn a_file_in_the_way_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), "").unwrap();
        assert!(make_directory(&directory.path().join("a/b"), 0o700).is_err());
    }

    #[test]
    fn the_one_above_is_that_which_has_the_name() {
        for (path, expected) in [("a", "."), ("a/b", "a"), ("/a", "/"), ("/", "/")] {
            assert_eq!(above(Path::new(path)), Path::new(expected));
        }
    }
}
