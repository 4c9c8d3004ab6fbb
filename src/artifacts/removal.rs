//! Removing what was published, in one step for whoever reads: it is moved out of its place first,
//! under the name of something half-done, which the next start clears away if this one does not come
//! to it. This module blocks: call it from a blocking thread.

use std::io;

use rustix::fs::{RenameFlags, fsync, renameat_with};
use rustix::io::Errno;

use super::staging::{OutputRoot, PARTIAL_PREFIX};
use crate::ids::ExecutionId;

impl OutputRoot {
    /// Removes what an execution has published, and returns after that is on disk. There may be
    /// nothing, or what an earlier call has moved away already.
    ///
    /// # Errors
    ///
    /// The file system's; what is left is removed by calling it again.
    pub fn remove_published(&self, execution: &ExecutionId) -> io::Result<()> {
        let models = match self.find_models() {
            Ok(models) => models,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let moved = format!("{PARTIAL_PREFIX}{execution}");
        let path = self.models_path().join(&moved);
        // What an earlier call has left: not to be in the way.
        remove_tree(&path)?;
        let name = execution.as_str();
        match renameat_with(&models, name, &models, &moved, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        fsync(&models)?;
        // By a way that follows no link in it.
        remove_tree(&path)?;
        Ok(fsync(&models)?)
    }
}

fn remove_tree(path: &std::path::Path) -> io::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn published() -> (tempfile::TempDir, OutputRoot, ExecutionId) {
        let directory = tempfile::tempdir().unwrap();
        let root = OutputRoot::new(directory.path());
        let execution = ExecutionId::random();
        let place = root.published(&execution);
        fs::create_dir_all(place.join("models")).unwrap();
        fs::write(place.join("models/a"), "a").unwrap();
        (directory, root, execution)
    }

    fn entries(root: &OutputRoot) -> usize {
        fs::read_dir(root.models_path()).unwrap().count()
    }

    #[test]
    fn it_is_gone_and_nothing_else_is() {
        let (_directory, root, execution) = published();
        let other = root.published(&ExecutionId::random());
        fs::create_dir_all(&other).unwrap();
        for _ in 0..2 {
            root.remove_published(&execution).unwrap();
            assert_eq!(entries(&root), 1);
        }
        assert!(other.exists());
    }

    #[test]
    fn no_link_in_it_is_followed() {
        let (directory, root, execution) = published();
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "").unwrap();
        symlink(&outside, root.published(&execution).join("link")).unwrap();
        root.remove_published(&execution).unwrap();
        assert_eq!(entries(&root), 0);
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn what_was_moved_away_by_a_daemon_that_died_is_removed_by_the_next() {
        let (_directory, root, execution) = published();
        let moved = root
            .models_path()
            .join(format!("{PARTIAL_PREFIX}{execution}"));
        fs::rename(root.published(&execution), &moved).unwrap();
        root.remove_published(&execution).unwrap();
        assert_eq!(entries(&root), 0);
        fs::create_dir_all(&moved).unwrap();
        root.prepare().unwrap();
        assert_eq!(entries(&root), 0);
    }

    #[test]
    fn where_nothing_was_ever_published_nothing_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let root = OutputRoot::new(&directory.path().join("never"));
        root.remove_published(&ExecutionId::random()).unwrap();
        assert!(!directory.path().join("never").exists());
    }
}
