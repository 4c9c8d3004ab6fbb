//! The directory that artifacts are gathered in, and its one-step appearance under its final name.
//!
//! Everything is done relative to open directories, with `O_EXCL` and `O_NOFOLLOW`; nothing that is
//! there already is ever written to, followed, or given another owner (security.md row 61). This
//! module blocks: call it from a blocking thread.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps, fchmod, flock,
    fsync, futimens, mkdirat, openat, renameat_with, statat,
};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::path::ArtifactPath;
use crate::execution::Artifact;
use crate::ids::ExecutionId;
use crate::telemetry::Chain;

/// The directory of the output root that executions are published in.
pub const MODELS: &str = "models";

/// What stands before the name of an execution in that of a directory that nobody is to read.
pub(super) const PARTIAL_PREFIX: &str = ".partial-";

/// The place where artifacts end up: `<output root>/models`.
#[derive(Debug, Clone)]
pub struct OutputRoot {
    path: PathBuf,
}

/// A failing output root. `Display` is for clients and names no path; the source does.
#[derive(Debug, thiserror::Error)]
#[error("the output directory cannot be written to: check `app.output_root` and its permissions")]
pub struct OutputRootError(#[source] pub io::Error);

impl OutputRootError {
    /// Whether there is only no room, which somebody may make at any time.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self.0.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }
}

impl OutputRoot {
    /// The output root at `path`, which is made when it is first used.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    /// Begins gathering the artifacts of one execution.
    ///
    /// # Errors
    ///
    /// [`OutputRootError`] if the directory cannot be made.
    pub fn stage(&self, execution: &ExecutionId) -> Result<Staging, OutputRootError> {
        let models = self.open_models().map_err(|error| self.error(error))?;
        let partial = format!("{PARTIAL_PREFIX}{execution}");
        let directory = mkdirat(&models, &partial, Mode::RWXU)
            .and_then(|()| open_directory(&models, &partial))
            .and_then(|directory| {
                // Whoever holds the lock is at work in it: see `is_abandoned`.
                match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                    // Where there are no locks nothing is taken for abandoned either.
                    Ok(()) | Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {}
                    Err(error) => return Err(error),
                }
                // Somebody tidying up can have been quicker than the lock.
                statat(&models, &partial, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok(directory)
            })
            .map_err(|error| self.error(error.into()))?;
        Ok(Staging {
            models,
            partial,
            name: execution.to_string(),
            directory,
            open: true,
        })
    }

    /// Where a published execution is, for reading back.
    #[must_use]
    pub fn published(&self, execution: &ExecutionId) -> PathBuf {
        self.path.join(MODELS).join(execution.as_str())
    }

    /// Checks that something can be written, as [`OutputRoot::probe`] does, and removes what executions
    /// that a stopped daemon had begun left half-done.
    ///
    /// # Errors
    ///
    /// [`OutputRootError`] if nothing can be written.
    pub fn prepare(&self) -> Result<(), OutputRootError> {
        self.probe()?;
        let models = self.models_path();
        if !models.exists() {
            // Not for want of room.
            return Ok(());
        }
        let listing = std::fs::read_dir(models).map_err(|error| self.error(error))?;
        for entry in listing.flatten() {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with(PARTIAL_PREFIX)
                && is_abandoned(&entry.path())
            {
                remove(&entry.path());
            }
        }
        Ok(())
    }

    /// Checks that something can be written. A disk that is full is told and nothing to refuse for:
    /// what runs already needs no more room to go on, and there may be some again at any time.
    ///
    /// # Errors
    ///
    /// [`OutputRootError`] if nothing can be written for another reason.
    pub fn probe(&self) -> Result<(), OutputRootError> {
        match self.stage(&ExecutionId::random()) {
            Ok(probe) => drop(probe),
            Err(error) if error.is_full() => {
                warn!(error = %Chain(&error), "there is no room for artifacts: free some space");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Takes back what was published of an execution that was not recorded. Another one's, or
    /// nothing, stays as it is.
    pub fn withdraw(&self, execution: &ExecutionId) {
        let Ok(models) = self.open_models() else {
            return;
        };
        let (name, partial) = (execution.as_str(), format!("{PARTIAL_PREFIX}{execution}"));
        // Out of sight in one step, as it came.
        match renameat_with(&models, name, &models, &partial, RenameFlags::NOREPLACE) {
            Ok(()) => remove(&self.path.join(MODELS).join(&partial)),
            Err(Errno::NOENT) => {}
            Err(error) => {
                warn!(execution.id = %execution, %error, "unrecorded artifacts stay");
            }
        }
    }

    fn open_models(&self) -> io::Result<OwnedFd> {
        std::fs::create_dir_all(self.models_path())?;
        self.find_models()
    }

    pub(super) fn find_models(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(openat(CWD, self.models_path(), flags, Mode::empty())?)
    }

    pub(super) fn models_path(&self) -> PathBuf {
        self.path.join(MODELS)
    }

    fn error(&self, error: io::Error) -> OutputRootError {
        let text = format!("{}: {error}", self.path.join(MODELS).display());
        OutputRootError(io::Error::new(error.kind(), text))
    }
}

/// Artifacts of one execution that nobody sees yet. Dropping it removes them.
#[derive(Debug)]
pub struct Staging {
    models: OwnedFd,
    partial: String,
    name: String,
    directory: OwnedFd,
    open: bool,
}

/// Why one artifact is not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreArtifactError {
    /// Another artifact has the name, or a directory does, or a file stands where a directory of
    /// the name would be.
    #[error("another artifact has this name")]
    NameTaken,
    /// The disk or the file system.
    #[error("an artifact cannot be written")]
    Io(#[from] io::Error),
}

impl Staging {
    /// Makes a directory and those above it.
    ///
    /// # Errors
    ///
    /// [`StoreArtifactError::NameTaken`] if a file stands in the way.
    pub fn make_directory(&self, path: &ArtifactPath) -> Result<(), StoreArtifactError> {
        self.descend(path.components()).map(drop)
    }

    /// Begins a file.
    ///
    /// # Errors
    ///
    /// [`StoreArtifactError`]
    pub fn create(&self, path: &ArtifactPath) -> Result<StagedFile, StoreArtifactError> {
        let parent = self.descend(path.parents())?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&parent, path.name(), flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(StagedFile {
                file: File::from(file),
                parent,
                path: path.clone(),
                hash: Sha256::new(),
                size: 0,
            }),
            Err(Errno::EXIST) => Err(StoreArtifactError::NameTaken),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Makes everything durable and gives it its final name in one step (contract section 2.9).
    ///
    /// # Errors
    ///
    /// The disk's; nothing is published then.
    pub fn publish(mut self) -> Result<(), OutputRootError> {
        let outcome = (|| -> io::Result<()> {
            fchmod(&self.directory, Mode::from_raw_mode(0o755))?;
            // One call for all files: far cheaper than one per file where there are thousands.
            rustix::fs::syncfs(&self.directory)?;
            renameat_with(
                &self.models,
                &self.partial,
                &self.models,
                &self.name,
                RenameFlags::NOREPLACE,
            )?;
            fsync(&self.models)?;
            Ok(())
        })();
        outcome.map_err(OutputRootError)?;
        self.open = false;
        Ok(())
    }

    fn descend(&self, components: &[String]) -> Result<OwnedFd, StoreArtifactError> {
        let mut directory = self.directory.as_fd().try_clone_to_owned()?;
        for name in components {
            match mkdirat(&directory, name.as_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            directory = match open_directory(&directory, name) {
                Ok(opened) => opened,
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(StoreArtifactError::NameTaken),
                Err(error) => return Err(io::Error::from(error).into()),
            };
        }
        Ok(directory)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.open
            && let Ok(path) = std::fs::read_link(format!("/proc/self/fd/{}", raw(&self.models)))
        {
            remove(&path.join(&self.partial));
        }
    }
}

fn raw(descriptor: &OwnedFd) -> i32 {
    use std::os::fd::AsRawFd as _;
    descriptor.as_raw_fd()
}

/// A file being received.
#[derive(Debug)]
pub struct StagedFile {
    file: File,
    parent: OwnedFd,
    path: ArtifactPath,
    hash: Sha256,
    size: u64,
}

/// What is kept of a file besides its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// Whether the owner may execute it; nothing else of its mode is carried over.
    pub executable: bool,
    /// Modification time: seconds and nanoseconds since the epoch.
    pub modified: (i64, u32),
}

impl StagedFile {
    /// Appends the next bytes.
    ///
    /// # Errors
    ///
    /// The disk's.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        self.size += bytes.len() as u64;
        Ok(())
    }

    /// SHA-256 of what was written so far, lower case hexadecimal.
    #[must_use]
    pub fn digest(&self) -> String {
        hex::encode(self.hash.clone().finalize())
    }

    /// Bytes written so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Completes the file.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn finish(self, attributes: Attributes) -> io::Result<Artifact> {
        let mode = if attributes.executable { 0o755 } else { 0o644 };
        fchmod(&self.file, Mode::from_raw_mode(mode))?;
        let (tv_sec, nanoseconds) = attributes.modified;
        let time = Timespec {
            tv_sec,
            tv_nsec: i64::from(nanoseconds.min(999_999_999)),
        };
        // A time that the file system cannot store is no reason to lose the file.
        if let Err(error) = futimens(
            &self.file,
            &Timestamps {
                last_access: time,
                last_modification: time,
            },
        ) {
            warn!(%error, "an artifact's modification time could not be kept");
        }
        Ok(Artifact {
            path: self.path.to_string(),
            size: self.size,
            sha256: hex::encode(self.hash.finalize()),
        })
    }

    /// Removes the file again.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn discard(self) -> io::Result<()> {
        rustix::fs::unlinkat(&self.parent, self.path.name(), AtFlags::empty())?;
        Ok(())
    }
}

fn open_directory(parent: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(parent, name, flags, Mode::empty());
    if opened.is_err()
        && statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|s| !rustix::fs::FileType::from_raw_mode(s.st_mode).is_dir())
    {
        return Err(Errno::NOTDIR);
    }
    opened
}

/// Whether nobody is at work in a staging directory: another process may be.
fn is_abandoned(path: &Path) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(CWD, path, flags, Mode::empty())
        .is_ok_and(|directory| flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok())
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_dir_all(path) {
        warn!(%error, path = %path.display(), "a half-done artifact directory is left");
    }
}

#[cfg(test)]
mod tests;
