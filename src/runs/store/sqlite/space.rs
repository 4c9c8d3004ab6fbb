//! The disk under the store: below what free space no new run is taken, and a file that holds room
//! for the records of the runs that are accepted already (security.md 3.2, 8).
//!
//! The floor alone is no promise: others write to the same disk. The reserve is room that is
//! allocated, beside the database. When the disk is nearly full the file is removed, and what is
//! accepted is recorded in its place. Until it could be made again no new run is taken, so that the
//! same room is never promised twice. Only the writer's thread changes anything here.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::lock::no_follow;

/// Free bytes at which the reserve is given up: more than a transaction and what it makes the log
/// and the database grow by.
const NEARLY_FULL: u64 = 16 << 20;

/// What the store keeps free on its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpaceSettings {
    /// Free bytes below which no new run is taken.
    pub floor: u64,
    /// Bytes of the file that holds room for accepted runs; 0 is no such file.
    pub reserve: u64,
}

impl Default for SpaceSettings {
    /// A floor and no file: for tests and for commands that take no runs.
    fn default() -> Self {
        Self {
            floor: 64 << 20,
            reserve: 0,
        }
    }
}

/// Too little is left for new runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Low {
    pub(super) free: u64,
    pub(super) floor: u64,
}

/// The disk.
#[derive(Debug)]
pub(super) struct Space {
    directory: PathBuf,
    file: PathBuf,
    floor: AtomicU64,
    reserve: u64,
    held: AtomicBool,
}

impl Space {
    /// The disk that the database at `path` is on.
    pub(super) fn new(directory: PathBuf, path: &Path, settings: SpaceSettings) -> Self {
        let mut file = path.as_os_str().to_owned();
        file.push(".reserve");
        Self {
            directory,
            file: PathBuf::from(file),
            floor: AtomicU64::new(settings.floor),
            reserve: settings.reserve,
            held: AtomicBool::new(settings.reserve == 0),
        }
    }

    #[cfg(test)]
    pub(super) fn set_floor(&self, floor: u64) {
        self.floor.store(floor, Ordering::Relaxed);
    }

    /// Sees to it that something can be written: gives the reserve up where the disk is nearly full.
    pub(super) fn before_writing(&self) {
        if self.reserve == 0 || !self.held.load(Ordering::Relaxed) {
            return;
        }
        if self.free().is_ok_and(|free| free < NEARLY_FULL) {
            self.give_up();
        }
    }

    /// Refuses new runs if too little is free.
    pub(super) fn require(&self) -> io::Result<Result<(), Low>> {
        let free = self.free()?;
        let floor = self.floor.load(Ordering::Relaxed);
        if !self.held.load(Ordering::Relaxed) {
            let needed = floor.saturating_add(self.reserve);
            if free < needed || !self.hold() {
                return Ok(Err(Low {
                    free,
                    floor: needed,
                }));
            }
            // What is held was counted as free.
            return Ok(Ok(()));
        }
        Ok(if free < floor {
            Err(Low { free, floor })
        } else {
            Ok(())
        })
    }

    /// What [`Space::require`] would say, but for making the reserve.
    pub(super) fn look(&self) -> io::Result<Result<(), Low>> {
        let free = self.free()?;
        let floor = self.floor.load(Ordering::Relaxed);
        let reserve = if self.held.load(Ordering::Relaxed) {
            0
        } else {
            self.reserve
        };
        let floor = floor.saturating_add(reserve);
        Ok(if free < floor {
            Err(Low { free, floor })
        } else {
            Ok(())
        })
    }

    /// Makes the reserve, unless that takes what new runs need: then they are refused, until there is
    /// room for both.
    pub(super) fn prepare(&self) {
        if self.reserve == 0 {
            return;
        }
        // One of a daemon before, which may have been told another size.
        remove(&self.file);
        self.held.store(false, Ordering::Relaxed);
        let free = self.free().unwrap_or(0);
        let floor = self.floor.load(Ordering::Relaxed);
        if free < floor.saturating_add(self.reserve) || !self.hold() {
            tracing::warn!(
                free_bytes = free,
                needed_bytes = floor.saturating_add(self.reserve),
                "The disk of the store is nearly full: accepted runs are carried out, new ones are \
                 refused until there is room; free some space"
            );
        }
    }

    /// Gives the room of the reserve to what has to be written.
    pub(super) fn give_up(&self) {
        if self.reserve == 0 || !self.held.swap(false, Ordering::Relaxed) {
            return;
        }
        remove(&self.file);
        tracing::error!(
            reserve_bytes = self.reserve,
            "The disk of the store is full: the room that was reserved for accepted runs is given to \
             them now, and new ones are refused; free some space"
        );
    }

    /// Free bytes for others than the superuser.
    fn free(&self) -> io::Result<u64> {
        let space = rustix::fs::statvfs(&self.directory)?;
        Ok(space.f_bavail.saturating_mul(space.f_frsize))
    }

    fn hold(&self) -> bool {
        if let Err(error) = allocate(&self.file, self.reserve) {
            remove(&self.file);
            tracing::warn!(%error, "Room for accepted runs could not be reserved");
            return false;
        }
        self.held.store(true, Ordering::Relaxed);
        true
    }
}

/// A file whose bytes are really there: a sparse one would hold nothing.
fn allocate(path: &Path, bytes: u64) -> io::Result<()> {
    let file: File = OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(path)?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        // Not every file system can, as those of a network.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(&file, bytes),
        allocated => Ok(allocated?),
    }
}

/// Writes so many bytes.
fn fill(mut file: &File, bytes: u64) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(bytes), &mut file)?;
    // What is only in memory has no room yet.
    file.sync_all()
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(%error, "The file that reserves room for accepted runs cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn space(floor: u64, reserve: u64) -> (tempfile::TempDir, Space) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let settings = SpaceSettings { floor, reserve };
        let space = Space::new(directory.path().to_owned(), &path, settings);
        (directory, space)
    }

    #[test]
    fn the_reserve_is_really_allocated_and_only_for_the_owner() {
        let (_directory, space) = space(1, 1 << 20);
        space.prepare();
        let metadata = std::fs::metadata(&space.file).unwrap();
        assert!(metadata.blocks() * 512 >= 1 << 20);
        assert_eq!(metadata.mode() & 0o777, 0o600);
        assert_eq!(space.require().unwrap(), Ok(()));
    }

    #[test]
    fn where_nothing_can_be_allocated_it_is_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fill(file.as_file(), 1 << 20).unwrap();
        let metadata = file.as_file().metadata().unwrap();
        assert_eq!(metadata.len(), 1 << 20);
        assert!(metadata.blocks() * 512 >= 1 << 20);
    }

    #[test]
    fn what_was_given_up_is_made_again_before_new_runs_are_taken() {
        let (_directory, space) = space(1, 1 << 20);
        space.prepare();
        space.give_up();
        assert!(!space.file.exists());
        assert_eq!(space.require().unwrap(), Ok(()));
        assert!(space.file.exists());

        space.give_up();
        space.set_floor(u64::MAX / 2);
        let low = space.require().unwrap().unwrap_err();
        assert_eq!(low.floor, u64::MAX / 2 + (1 << 20));
        assert_eq!(space.look().unwrap().unwrap_err().floor, low.floor);
        assert!(!space.file.exists());
    }

    #[test]
    fn a_reserve_that_there_is_no_room_for_is_not_made_and_new_runs_are_refused() {
        let (_directory, space) = space(1, u64::MAX / 4);
        space.prepare();
        assert!(!space.file.exists());
        assert!(space.require().unwrap().is_err());
    }

    #[test]
    fn a_floor_above_what_is_free_refuses() {
        let (_directory, space) = space(u64::MAX, 0);
        assert!(space.require().unwrap().is_err());
        space.set_floor(0);
        assert_eq!(space.require().unwrap(), Ok(()));
    }
}
