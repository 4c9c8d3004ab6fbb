//! What an examination needs on the host: a data set that everybody could change, were it not for
//! the sandbox, and a canary beside it that nobody inside may find.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use tempfile::TempDir;

use crate::clock;
use crate::execution::DatasetPin;
use crate::ids::ExecutionId;

const PREFIX: &str = "doctor-";

/// No examination takes as long: such files are those of one that was killed.
const STALE: Duration = Duration::from_secs(3600);

const CONTENT: &str = "a,b\n1,2\n";

/// The files; dropping it removes them.
#[derive(Debug)]
pub(super) struct Bench {
    directory: TempDir,
    pin: DatasetPin,
    canary: String,
}

impl Bench {
    /// Makes the files below `parent`. Blocks.
    pub(super) fn make(parent: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(parent)?;
        remove_stale(parent);
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let path = directory.path().canonicalize()?;
        let data = path.join("data");
        std::fs::create_dir_all(data.join("sub"))?;
        std::fs::write(data.join("data.csv"), CONTENT)?;
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        };
        open(&data.join("sub"), 0o777)?;
        open(&data.join("data.csv"), 0o666)?;
        open(&data, 0o777)?;
        // Random, so that nothing in an image has this name.
        let canary = path.join(format!("canary-{}", ExecutionId::random()));
        std::fs::write(&canary, "not to be found\n")?;
        let metadata = data.metadata()?;
        Ok(Self {
            pin: DatasetPin {
                device: metadata.dev(),
                inode: metadata.ino(),
                path: data,
            },
            canary: canary.to_string_lossy().into_owned(),
            directory,
        })
    }

    pub(super) fn pin(&self) -> &DatasetPin {
        &self.pin
    }

    pub(super) fn canary(&self) -> &str {
        &self.canary
    }

    /// Whether the data set is as it was made. Blocks.
    pub(super) fn is_unchanged(&self) -> bool {
        let data = &self.pin.path;
        let text = std::fs::read_to_string(data.join("data.csv"));
        let names = |path: &Path| -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in std::fs::read_dir(path)? {
                names.push(entry?.file_name().to_string_lossy().into_owned());
            }
            names.sort();
            Ok(names)
        };
        let mode = |name: &str| {
            let metadata = data.join(name).metadata();
            metadata.map(|metadata| metadata.mode() & 0o7777).ok()
        };
        text.is_ok_and(|text| text == CONTENT)
            && names(data).is_ok_and(|names| names == ["data.csv", "sub"])
            && names(&data.join("sub")).is_ok_and(|names| names.is_empty())
            && mode("data.csv") == Some(0o666)
            && self.directory.path().exists()
    }
}

/// Removes what killed examinations left, as far as that can be done.
fn remove_stale(parent: &Path) {
    let entries = parent.read_dir().into_iter().flatten().flatten();
    let now = clock::now();
    let is_stale = |metadata: std::fs::Metadata| {
        let time = metadata.modified().ok();
        let time = time.and_then(|time| Timestamp::try_from(time).ok());
        // What is of a later time is not old.
        let age = time.and_then(|time| Duration::try_from(now.duration_since(time)).ok());
        metadata.is_dir() && age.is_some_and(|age| age > STALE)
    };
    for entry in entries {
        let is_ours = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes());
        if is_ours && entry.metadata().is_ok_and(is_stale) {
            // The next one tries again.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_the_data_set_is_noticed() {
        let parent = tempfile::tempdir().unwrap();
        type Change = fn(&Path) -> io::Result<()>;
        let changes: [Change; 4] = [
            |data| std::fs::write(data.join("data.csv"), "a,b\n1,3\n"),
            |data| std::fs::write(data.join("sub/x"), ""),
            |data| std::fs::remove_file(data.join("data.csv")),
            |data| {
                let mode = std::fs::Permissions::from_mode(0o777);
                std::fs::set_permissions(data.join("data.csv"), mode)
            },
        ];
        for change in changes {
            let bench = Bench::make(parent.path()).unwrap();
            assert!(bench.is_unchanged());
            assert!(Path::new(bench.canary()).exists());
            change(&bench.pin().path).unwrap();
            assert!(!bench.is_unchanged());
        }
        assert_eq!(parent.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_examination_left_is_removed_and_nothing_else() {
        let parent = tempfile::tempdir().unwrap();
        let long_ago = std::time::SystemTime::now() - 2 * STALE;
        for (name, is_old) in [("doctor-old", true), ("doctor-new", false), ("other", true)] {
            let path = parent.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join("x"), "").unwrap();
            if is_old {
                let directory = std::fs::File::open(&path).unwrap();
                directory.set_modified(long_ago).unwrap();
            }
        }
        drop(Bench::make(parent.path()).unwrap());
        let entries = parent.path().read_dir().unwrap();
        let mut left: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["doctor-new", "other"]);
    }
}
