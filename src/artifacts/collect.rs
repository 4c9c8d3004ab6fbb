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
            | FromSupervisor::Started(_)
            | FromSupervisor::Output(_)
            | FromSupervisor::Exited(_)
            | FromSupervisor::Failed(_) => {
                return Err(CollectError::Protocol("a message of another phase"));
            }
        }
        Ok(Progress::More)
    }

    /// What was collected; `complete` tells whether [`Progress::Complete`] was reached.
    #[must_use]
    pub fn finish(mut self, complete: bool) -> Collected {
        if let Current::File { file, entry } =
            std::mem::replace(&mut self.current, Current::Nothing)
        {
            // Half a file is none.
            if let Err(error) = file.discard() {
                tracing::warn!(%error, "an incomplete artifact could not be removed");
            }
            self.skip(
                &entry.path,
                "the sandbox ended before it was complete",
                entry.size,
            );
        }
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
                file.write(bytes).map_err(CollectError::Disk)?;
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
mod tests {
    use fumehood_protocol::message::Chunk;

    use super::*;
    use crate::artifacts::OutputRoot;
    use crate::ids::ExecutionId;

    const CAPS: Caps = Caps {
        total_bytes: 100,
        files: 3,
    };

    fn collector(directory: &std::path::Path, inputs: &[(&str, &str)]) -> Collector {
        let staging = OutputRoot::new(directory)
            .stage(&ExecutionId::random())
            .unwrap();
        let inputs = inputs
            .iter()
            .map(|&(name, sum)| (name.to_owned(), sum.to_owned()))
            .collect();
        Collector::new(staging, CAPS, inputs)
    }

    fn entry(path: &str, size: u64) -> FromSupervisor {
        FromSupervisor::Entry(Entry {
            path: path.as_bytes().to_vec(),
            is_directory: false,
            size,
            executable: false,
            modified_seconds: 0,
            modified_nanoseconds: 0,
        })
    }

    fn chunk(bytes: &[u8]) -> FromSupervisor {
        FromSupervisor::Chunk(Chunk {
            bytes: bytes.to_vec(),
        })
    }

    fn file(collector: &mut Collector, path: &str, bytes: &[u8]) -> Result<(), CollectError> {
        collector.take(entry(path, bytes.len() as u64))?;
        collector.take(chunk(bytes))?;
        collector.take(FromSupervisor::EntryEnd).map(drop)
    }

    fn done() -> FromSupervisor {
        FromSupervisor::Done(Done {
            files: 0,
            bytes: 0,
            skipped_unlisted: 0,
        })
    }

    #[test]
    fn out_is_the_root_of_artifacts_and_top_level_files_join_it() {
        let directory = tempfile::tempdir().unwrap();
        let mut collector = collector(directory.path(), &[]);
        file(&mut collector, "out/models/m", b"1").unwrap();
        file(&mut collector, "out/b", b"2").unwrap();
        file(&mut collector, "a", b"3").unwrap();
        file(&mut collector, "b", b"4").unwrap();
        assert_eq!(collector.take(done()).unwrap(), Progress::Complete);
        let collected = collector.finish(true);
        assert_eq!(collected.output_files, ["a", "b", "models/m"]);
        assert_eq!(collected.skipped.len(), 1);
        assert_eq!(collected.skipped[0].path, "b");
    }

    #[test]
    fn a_directory_is_an_entry_without_bytes() {
        let directory = tempfile::tempdir().unwrap();
        let mut collector = collector(directory.path(), &[]);
        let mut folder = entry("out/models", 0);
        if let FromSupervisor::Entry(entry) = &mut folder {
            entry.is_directory = true;
        }
        collector.take(folder.clone()).unwrap();
        collector.take(FromSupervisor::EntryEnd).unwrap();
        file(&mut collector, "out/models/m", b"1").unwrap();
        collector.take(folder).unwrap();
        assert!(collector.take(chunk(b"x")).is_err());
        assert_eq!(collector.finish(true).output_files, ["models/m"]);
    }

    #[test]
    fn an_unchanged_input_at_the_top_is_no_output() {
        let directory = tempfile::tempdir().unwrap();
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let mut collector = collector(directory.path(), &[("in.csv", sum), ("other.csv", sum)]);
        file(&mut collector, "in.csv", b"abc").unwrap();
        file(&mut collector, "other.csv", b"abd").unwrap();
        assert_eq!(collector.finish(true).output_files, ["other.csv"]);
    }

    #[test]
    fn limits_are_counted_whatever_the_supervisor_counted() {
        let directory = tempfile::tempdir().unwrap();
        let mut collector = collector(directory.path(), &[]);
        file(&mut collector, "out/large", &[0; 101]).unwrap();
        for name in ["out/1", "out/2", "out/3", "out/4"] {
            file(&mut collector, name, b"x").unwrap();
        }
        let collected = collector.finish(true);
        assert_eq!(collected.output_files, ["1", "2", "3"]);
        let skipped: Vec<&str> = collected.skipped.iter().map(|s| s.path.as_str()).collect();
        assert_eq!(skipped, ["large", "4"]);
    }

    #[test]
    fn a_supervisor_that_breaks_the_protocol_is_stopped() {
        let broken: [&[FromSupervisor]; 6] = [
            &[chunk(b"x")],
            &[entry("out/a", 1), entry("out/b", 1)],
            &[entry("out/a", 1), chunk(b"xx")],
            &[entry("out/a", 2), chunk(b"x"), FromSupervisor::EntryEnd],
            &[entry("out/a", 1), done()],
            &[FromSupervisor::EntryEnd],
        ];
        for messages in broken {
            let directory = tempfile::tempdir().unwrap();
            let mut collector = collector(directory.path(), &[]);
            let outcome: Result<Vec<_>, _> = messages
                .iter()
                .map(|message| collector.take(message.clone()))
                .collect();
            assert!(
                matches!(outcome, Err(CollectError::Protocol(_))),
                "{messages:?}"
            );
        }
    }

    #[test]
    fn half_a_file_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let mut collector = collector(directory.path(), &[]);
        collector.take(entry("out/a", 5)).unwrap();
        collector.take(chunk(b"ab")).unwrap();
        let collected = collector.finish(false);
        assert_eq!(collected.artifacts, []);
        assert_eq!(collected.skipped[0].path, "a");
    }

    #[test]
    fn traversal_never_leaves_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let mut collector = collector(directory.path(), &[]);
        for name in ["out/../../evil", "/abs", "../evil", "out//x"] {
            file(&mut collector, name, b"x").unwrap();
        }
        let collected = collector.finish(true);
        assert_eq!((collected.artifacts.len(), collected.skipped.len()), (0, 4));
    }
}
