//! From the supervisor's artifact messages to staged files.
//!
//! The order and sizes of messages are checked, every limit is counted here again, whatever the
//! supervisor counted (invariant 1), and each thing left out is listed with its reason. Blocking,
//! like [`super::staging`].

use std::collections::BTreeMap;
use std::io;

use fumehood_protocol::message::{Done, Entry, FromSupervisor, SkipReason, Skipped};

use super::path::{ArtifactPath, BadName, printable};
use super::staging::{Attributes, StagedFile, Staging, StoreArtifactError};
use crate::execution::spec::OUTPUT_DIRECTORY;
use crate::execution::{Artifact, SkippedArtifact};

/// Skipped files listed one by one; more are only counted.
const MAX_SKIPPED_LISTED: usize = 1000;

/// Bounds of one collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Bytes of all files.
    pub total_bytes: u64,
    /// Number of files.
    pub files: u64,
}

/// Takes messages until [`Done`].
#[derive(Debug)]
pub struct Collector {
    staging: Staging,
    caps: Caps,
    /// SHA-256 of the given input files at the top of the workspace, by name: one that is
    /// unchanged is no output (contract section 2.8).
    inputs: BTreeMap<String, String>,
    current: Current,
    output_files: Vec<String>,
    unchanged_inputs: Vec<String>,
    artifacts: Vec<Artifact>,
    skipped: Vec<SkippedArtifact>,
    skipped_unlisted: u64,
    bytes: u64,
}

#[derive(Debug)]
enum Current {
    Nothing,
    /// A directory, which has no bytes.
    Directory,
    /// Receiving a file.
    File {
        file: StagedFile,
        entry: Entry,
    },
    /// Dropping the bytes of a file that was refused.
    Refused {
        path: Vec<u8>,
        reason: String,
        left: u64,
        size: u64,
    },
}

/// Everything that was collected.
#[derive(Debug)]
pub struct Collected {
    /// To be published.
    pub staging: Staging,
    /// The manifest, in order of arrival.
    pub artifacts: Vec<Artifact>,
    /// Names by the rule of contract section 2.8: sorted, without duplicates.
    pub output_files: Vec<String>,
    /// Input files that are still there as they were given: no outputs, but present.
    pub unchanged_inputs: Vec<String>,
    /// What was left out.
    pub skipped: Vec<SkippedArtifact>,
    /// Whether the list is complete.
    pub complete: bool,
}

/// A supervisor that breaks the protocol, or a disk that fails: collecting ends.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// A message that has no place here.
    #[error("the sandbox broke the protocol while artifacts were collected: {0}")]
    Protocol(&'static str),
    /// The output directory failed.
    #[error("artifacts cannot be written to the output directory: check its free space")]
    Disk(#[source] io::Error),
}

/// Whether more messages are to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Go on.
    More,
    /// That was the last one.
    Complete,
}

impl Collector {
    /// A collector into `staging`.
    #[must_use]
    pub fn new(staging: Staging, caps: Caps, inputs: BTreeMap<String, String>) -> Self {
        Self {
            staging,
            caps,
            inputs,
            current: Current::Nothing,
            output_files: Vec::new(),
            unchanged_inputs: Vec::new(),
            artifacts: Vec::new(),
            skipped: Vec::new(),
            skipped_unlisted: 0,
            bytes: 0,
        }
    }

    /// Takes the next message.
    ///
    /// # Errors
    ///
    /// [`CollectError`]; what is complete stays collected.
    pub fn take(&mut self, message: FromSupervisor) -> Result<Progress, CollectError> {
        match message {
            FromSupervisor::Entry(entry) => self.begin(entry)?,
            FromSupervisor::Chunk(chunk) => self.append(&chunk.bytes)?,
            FromSupervisor::EntryEnd => self.end()?,
            FromSupervisor::Skipped(skipped) => self.skip_reported(&skipped)?,
            FromSupervisor::Done(done) => {
                self.close(done)?;
                return Ok(Progress::Complete);
            }
            FromSupervisor::Ready(_)
            | FromSupervisor::Preloaded(_)
            | FromSupervisor::Dataset(_)
            | FromSupervisor::Started(_)
            | FromSupervisor::Output(_)
            | FromSupervisor::Killed
            | FromSupervisor::Exited(_)
            | FromSupervisor::Failed(_)
            | FromSupervisor::Anew(_) => {
                return Err(CollectError::Protocol("a message of another phase"));
            }
        }
        Ok(Progress::More)
    }

    /// What was collected; `complete` tells whether [`Progress::Complete`] was reached.
    #[must_use]
    pub fn finish(mut self, complete: bool) -> Collected {
        self.drop_current("the sandbox ended before it was complete");
        self.output_files.sort_unstable();
        self.output_files.dedup();
        if self.skipped_unlisted > 0 {
            self.skipped.push(SkippedArtifact {
                path: "(more)".to_owned(),
                reason: format!("{} further entries were left out", self.skipped_unlisted),
                size: 0,
            });
        }
        Collected {
            staging: self.staging,
            artifacts: self.artifacts,
            output_files: self.output_files,
            unchanged_inputs: self.unchanged_inputs,
            skipped: self.skipped,
            complete,
        }
    }

    /// Half a file is none.
    fn drop_current(&mut self, reason: &str) {
        let current = std::mem::replace(&mut self.current, Current::Nothing);
        if let Current::File { file, entry } = current {
            if let Err(error) = file.discard() {
                tracing::warn!(%error, "an incomplete artifact could not be removed");
            }
            self.skip(&entry.path, reason, entry.size);
        }
    }

    fn begin(&mut self, entry: Entry) -> Result<(), CollectError> {
        if !matches!(self.current, Current::Nothing) {
            return Err(CollectError::Protocol("an entry within an entry"));
        }
        let refusal = match self.admit(&entry) {
            Ok(Some(file)) => {
                self.current = Current::File { file, entry };
                return Ok(());
            }
            Ok(None) => {
                self.current = Current::Directory;
                return Ok(());
            }
            Err(Refusal::Skip(reason)) => reason,
            Err(Refusal::Fatal(error)) => return Err(error),
        };
        if entry.is_directory {
            self.skip(&entry.path, &refusal, 0);
            self.current = Current::Directory;
        } else {
            let (left, size) = (entry.size, entry.size);
            self.current = Current::Refused {
                path: entry.path,
                reason: refusal,
                left,
                size,
            };
        }
        Ok(())
    }

    /// A file to write to, or nothing for a directory, which is made at once.
    fn admit(&self, entry: &Entry) -> Result<Option<StagedFile>, Refusal> {
        let path = ArtifactPath::from_bytes(artifact_part(&entry.path))?;
        if entry.is_directory {
            self.staging.make_directory(&path)?;
            return Ok(None);
        }
        if self.artifacts.len() as u64 >= self.caps.files {
            return Err(Refusal::Skip(words(SkipReason::FileCount).to_owned()));
        }
        if entry.size > self.caps.total_bytes.saturating_sub(self.bytes) {
            return Err(Refusal::Skip(words(SkipReason::TotalBytes).to_owned()));
        }
        Ok(Some(self.staging.create(&path)?))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), CollectError> {
        let length = bytes.len() as u64;
        match &mut self.current {
            Current::File { file, entry } => {
                if file.size() + length > entry.size {
                    return Err(CollectError::Protocol("more bytes than announced"));
                }
                if let Err(error) = file.write(bytes) {
                    self.drop_current("the output directory had no room for it, or failed");
                    return Err(CollectError::Disk(error));
                }
                self.bytes += length;
                Ok(())
            }
            Current::Refused { left, .. } if length <= *left => {
                *left -= length;
                Ok(())
            }
            Current::Refused { .. } => Err(CollectError::Protocol("more bytes than announced")),
            Current::Nothing | Current::Directory => {
                Err(CollectError::Protocol("bytes without a file"))
            }
        }
    }

    fn end(&mut self) -> Result<(), CollectError> {
        match std::mem::replace(&mut self.current, Current::Nothing) {
            Current::File { file, entry } if file.size() == entry.size => self.keep(file, &entry),
            Current::File { .. } => Err(CollectError::Protocol("fewer bytes than announced")),
            Current::Refused {
                path, reason, size, ..
            } => {
                self.skip(&path, &reason, size);
                Ok(())
            }
            Current::Directory => Ok(()),
            Current::Nothing => Err(CollectError::Protocol("the end of no entry")),
        }
    }

    fn keep(&mut self, file: StagedFile, entry: &Entry) -> Result<(), CollectError> {
        let attributes = Attributes {
            executable: entry.executable,
            modified: (entry.modified_seconds, entry.modified_nanoseconds),
        };
        let top_level = artifact_part(&entry.path) == entry.path.as_slice();
        if top_level && let Some(name) = self.unchanged_input(&entry.path, &file.digest()) {
            self.unchanged_inputs.push(name);
            return file.discard().map_err(CollectError::Disk);
        }
        let artifact = file.finish(attributes).map_err(CollectError::Disk)?;
        self.output_files.push(artifact.path.clone());
        self.artifacts.push(artifact);
        Ok(())
    }

    fn unchanged_input(&self, path: &[u8], digest: &str) -> Option<String> {
        let name = std::str::from_utf8(path).ok()?;
        (self.inputs.get(name)? == digest).then(|| name.to_owned())
    }

    fn skip_reported(&mut self, skipped: &Skipped) -> Result<(), CollectError> {
        match std::mem::replace(&mut self.current, Current::Nothing) {
            Current::Nothing | Current::Directory | Current::Refused { .. } => {}
            Current::File { file, .. } => file.discard().map_err(CollectError::Disk)?,
        }
        self.skip(&skipped.path, words(skipped.reason), skipped.size);
        Ok(())
    }

    fn skip(&mut self, path: &[u8], reason: &str, size: u64) {
        if self.skipped.len() >= MAX_SKIPPED_LISTED {
            self.skipped_unlisted += 1;
            return;
        }
        let path = printable(artifact_part(path)).chars().take(300).collect();
        self.skipped.push(SkippedArtifact {
            path,
            reason: reason.to_owned(),
            size,
        });
    }

    fn close(&mut self, done: Done) -> Result<(), CollectError> {
        if !matches!(self.current, Current::Nothing) {
            return Err(CollectError::Protocol(
                "the end of the list within an entry",
            ));
        }
        self.skipped_unlisted = self.skipped_unlisted.saturating_add(done.skipped_unlisted);
        Ok(())
    }
}

/// Why an entry is not stored: skipped, or the end of collecting.
enum Refusal {
    Skip(String),
    Fatal(CollectError),
}

impl From<BadName> for Refusal {
    fn from(bad: BadName) -> Self {
        Self::Skip(bad.to_string())
    }
}

impl From<StoreArtifactError> for Refusal {
    fn from(error: StoreArtifactError) -> Self {
        match error {
            StoreArtifactError::NameTaken => Self::Skip(error.to_string()),
            StoreArtifactError::Io(error) => Self::Fatal(CollectError::Disk(error)),
        }
    }
}

/// The part of a workspace path that names an artifact: what is below `out`, or a name at the top.
fn artifact_part(path: &[u8]) -> &[u8] {
    path.strip_prefix(OUTPUT_DIRECTORY.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"/"))
        .unwrap_or(path)
}

fn words(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::SymbolicLink => "a symbolic link",
        SkipReason::SpecialFile => "no regular file or directory",
        SkipReason::TotalBytes => "larger than what is left of max_artifact_mb",
        SkipReason::FileCount => "more files than max_artifact_files",
        SkipReason::EntryCount => "more entries than are looked at",
        SkipReason::Depth => "too deep",
        SkipReason::PathLength => "the name is too long",
        SkipReason::Unreadable => "it cannot be read",
        SkipReason::Changed => "it changed while it was read",
    }
}

#[cfg(test)]
mod tests;
