//! The files that belong to a receipt: whether they are those that the execution left.
//!
//! Reads, and blocks. Directory and receipt can both be somebody else's: no name of the receipt is
//! ever opened that was not found in the directory, no link is followed, nothing but a regular file
//! is opened for reading, and of a file no more is read than it may have.

use std::collections::BTreeMap;
use std::fs::{self, File, FileType};
use std::io::{self, Read as _};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use sha2::{Digest as _, Sha256};

use super::evidence::HashedFile;
use super::problem::Problem;
use super::verify::Receipt;

/// Entries of a directory that are looked at beyond those of the receipt: in the directory of an
/// execution there are none.
const MAX_EXTRA_ENTRIES: usize = 100_000;

/// Bytes read at once.
const BUFFER: usize = 1 << 16;

/// What is in a directory and is none itself, by the bytes of its relative path.
type Found = BTreeMap<Vec<u8>, FileType>;

/// What speaks against `directory` holding the artifacts of the receipt's execution, and nothing
/// else; nothing if it does. The script that was sent with the run may lie there or not. Empty
/// directories do not count.
///
/// # Errors
///
/// What keeps the directory or a file in it from being read.
pub fn compare(receipt: &Receipt, directory: &Path) -> io::Result<Vec<Problem>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, directory, flags, Mode::empty())?;
    let most = receipt.artifacts().len().saturating_add(MAX_EXTRA_ENTRIES);
    let Some(mut found) = files(directory, most)? else {
        return Ok(vec![Problem::TooManyFiles(most)]);
    };
    let mut problems = Vec::new();
    // Taken out, so that a file is not there for a second entry with its name.
    for expected in receipt.artifacts() {
        match found.remove(expected.path.as_bytes()) {
            Some(kind) => problems.extend(difference(&root, expected, kind)?),
            None => problems.push(Problem::Missing(expected.path.clone())),
        }
    }
    if let Some(script) = receipt.setup_script()
        && let Some(kind) = found.remove(script.path.as_bytes())
    {
        problems.extend(difference(&root, script, kind)?);
    }
    let shown = |path: Vec<u8>| String::from_utf8_lossy(&path).into_owned();
    problems.extend(found.into_keys().map(shown).map(Problem::Extra));
    Ok(problems)
}

/// `None` if there are more than `most` entries.
fn files(directory: &Path, most: usize) -> io::Result<Option<Found>> {
    let mut found = Found::new();
    let mut pending = vec![PathBuf::new()];
    let mut seen = 0;
    while let Some(below) = pending.pop() {
        let place = directory.join(&below);
        let failed = |error| told(&place, error);
        for entry in fs::read_dir(&place).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            seen += 1;
            if seen > most {
                return Ok(None);
            }
            let kind = entry.file_type().map_err(failed)?;
            let path = below.join(entry.file_name());
            if kind.is_dir() {
                pending.push(path);
            } else {
                found.insert(path.into_os_string().into_vec(), kind);
            }
        }
    }
    Ok(Some(found))
}

fn difference(
    root: impl AsFd,
    expected: &HashedFile,
    listed: FileType,
) -> io::Result<Option<Problem>> {
    let HashedFile { path, sha256, size } = expected;
    let kind = || Ok(Some(Problem::Kind(path.clone())));
    if !listed.is_file() {
        return kind();
    }
    let failed = |error| told(Path::new(path), error);
    let file = open(root, path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return kind();
    }
    let of_size = |found| {
        Ok(Some(Problem::Size {
            path: path.clone(),
            expected: *size,
            found,
        }))
    };
    if metadata.len() != *size {
        return of_size(metadata.len());
    }
    // It may grow meanwhile.
    let (found, read) = hash(file.take(size.saturating_add(1))).map_err(failed)?;
    if read != *size {
        return of_size(read);
    }
    Ok((found != *sha256).then(|| Problem::Content {
        path: path.clone(),
        expected: sha256.clone(),
        found,
    }))
}

/// Opens what was found a moment ago, and what may be something else by now.
fn open(root: impl AsFd, path: &str) -> io::Result<File> {
    // A FIFO would be waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let opened = openat2(root, path, flags, Mode::empty(), resolve)?;
    Ok(File::from(opened))
}

/// The hash of everything that is read, and how much that was.
fn hash(mut reader: impl io::Read) -> io::Result<(String, u64)> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    let mut read = 0;
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok((hex::encode(hash.finalize()), read)),
            Ok(count) => {
                hash.update(&buffer[..count]);
                read += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Which of the many files it is about.
fn told(path: &Path, error: io::Error) -> io::Error {
    let path = path.to_string_lossy();
    io::Error::new(error.kind(), format!("{}: {error}", path.escape_debug()))
}

#[cfg(test)]
mod tests;
