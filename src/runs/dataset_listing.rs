//! A fingerprint of a data set for receipts: the names, sizes and times of what is in it.
//!
//! Reads no content, since that can be terabytes, and looks at [`ENTRY_LIMIT`] entries at most, since
//! a program waits for it. Follows no link and opens no file.

use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, statat};

use super::dataset_contents::{Scan, walk};
use crate::digest::Domain;
use crate::receipt::evidence::DatasetListing;

/// Entries in one fingerprint.
pub const ENTRY_LIMIT: usize = 1000;

/// Takes the fingerprint of what is below the directory. Blocks on the file system.
///
/// Each entry counts as one part of the hash ([`Domain::Dataset`]): a letter for its kind (`f` file,
/// `d` directory, `l` link, `o` other), its size (64 bits) and its modification time in seconds (64
/// bits) and nanoseconds (32 bits), little-endian, both only of files, and the bytes of its path
/// relative to the data set. They are in order of their paths.
#[must_use]
pub fn list(directory: &OwnedFd) -> DatasetListing {
    list_some(directory, ENTRY_LIMIT)
}

fn list_some(directory: &OwnedFd, most: usize) -> DatasetListing {
    let mut entries: Vec<(Vec<u8>, Facts)> = Vec::new();
    let walked = walk(directory, most, |path, kind| {
        let name = path.strip_prefix(".").unwrap_or(path);
        let name = name.as_os_str().as_bytes().to_vec();
        entries.push((name, Facts::of(directory, path, kind)));
        Ok::<(), Infallible>(())
    });
    entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    let parts = entries.iter().map(|(name, facts)| facts.part(name));
    DatasetListing {
        sha256: Domain::Dataset.digest(parts),
        entries: entries.len(),
        entry_limit: most,
        complete: walked == Ok(Scan::Complete),
        bytes: entries
            .iter()
            .fold(0, |sum: u64, (_, facts)| sum.saturating_add(facts.size)),
    }
}

/// What counts of an entry besides its name.
struct Facts {
    kind: u8,
    size: u64,
    seconds: i64,
    nanoseconds: u32,
}

impl Facts {
    fn of(directory: &OwnedFd, path: &Path, kind: FileType) -> Self {
        let mut facts = Self {
            kind: letter(kind),
            size: 0,
            seconds: 0,
            nanoseconds: 0,
        };
        if kind == FileType::RegularFile
            && let Ok(stat) = statat(directory, path, AtFlags::SYMLINK_NOFOLLOW)
        {
            facts.size = u64::try_from(stat.st_size).unwrap_or_default();
            facts.seconds = stat.st_mtime;
            facts.nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or_default();
        }
        facts
    }

    fn part(&self, name: &[u8]) -> Vec<u8> {
        let mut part = vec![self.kind];
        part.extend(self.size.to_le_bytes());
        part.extend(self.seconds.to_le_bytes());
        part.extend(self.nanoseconds.to_le_bytes());
        part.extend(name);
        part
    }
}

fn letter(kind: FileType) -> u8 {
    match kind {
        FileType::RegularFile => b'f',
        FileType::Directory => b'd',
        FileType::Symlink => b'l',
        FileType::Fifo
        | FileType::Socket
        | FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Unknown => b'o',
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    use rustix::fs::{CWD, Mode, OFlags, openat};

    use super::*;

    fn taken(path: &Path, most: usize) -> DatasetListing {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        list_some(&openat(CWD, path, flags, Mode::empty()).unwrap(), most)
    }

    fn write(path: &Path, text: &str, second: u64) {
        fs::write(path, text).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }

    fn set(names: &[&str]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("deep")).unwrap();
        for name in names {
            write(&directory.path().join(name), "1,2\n", 7);
        }
        directory
    }

    #[test]
    fn it_depends_on_names_sizes_and_times_and_on_nothing_else() {
        let one = set(&["a.csv", "deep/b.csv"]);
        let other = set(&["deep/b.csv", "a.csv"]);
        let first = taken(one.path(), 9);
        assert_eq!((first.entries, first.bytes, first.complete), (3, 8, true));
        assert_eq!(
            first,
            taken(other.path(), 9),
            "the place and the order of making count"
        );
        // The bound, as documented: other bytes with the size and time of the old ones.
        write(&other.path().join("a.csv"), "3,4\n", 7);
        assert_eq!(first, taken(other.path(), 9));

        write(&other.path().join("a.csv"), "1,2\n", 8);
        assert_ne!(first.sha256, taken(other.path(), 9).sha256);
        write(&other.path().join("a.csv"), "1,2,3\n", 7);
        assert_ne!(first.sha256, taken(other.path(), 9).sha256);
        let renamed = set(&["a.csv", "deep/c.csv"]);
        assert_ne!(first.sha256, taken(renamed.path(), 9).sha256);
        let more = set(&["a.csv", "deep/b.csv", "deep/c.csv"]);
        assert_ne!(first.sha256, taken(more.path(), 9).sha256);
    }

    #[test]
    fn links_are_not_followed() {
        let directory = set(&[]);
        std::os::unix::fs::symlink("/", directory.path().join("root")).unwrap();
        let listing = taken(directory.path(), 9);
        assert_eq!((listing.entries, listing.bytes), (2, 0));
    }

    #[test]
    fn a_large_one_is_cut_and_says_so() {
        let directory = set(&["a", "b", "c"]);
        let listing = taken(directory.path(), 2);
        assert_eq!((listing.entries, listing.entry_limit), (2, 2));
        assert!(!listing.complete);
        assert!(taken(directory.path(), 4).complete);
    }
}
