//! Reads one file in pieces, exactly as many bytes as were promised.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::os::fd::OwnedFd;

use fumehood_protocol::MAX_PAYLOAD_BYTES;
use fumehood_protocol::message::{Chunk, SkipReason};

/// An open file on its way out.
#[derive(Debug)]
pub(super) struct Content {
    file: File,
    path: Vec<u8>,
    size: u64,
    left: u64,
}

/// What comes next of a file.
#[derive(Debug)]
pub(super) enum Piece {
    /// Bytes.
    Chunk(Chunk),
    /// All promised bytes were given.
    End,
    /// The promise cannot be kept.
    Broken(SkipReason),
}

impl Content {
    pub(super) fn new(file: OwnedFd, path: Vec<u8>, size: u64) -> Self {
        Self {
            file: File::from(file),
            path,
            size,
            left: size,
        }
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn next_piece(&mut self) -> Piece {
        if self.left == 0 {
            return Piece::End;
        }
        let wanted = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(MAX_PAYLOAD_BYTES);
        let mut bytes = vec![0; wanted];
        loop {
            match self.file.read(&mut bytes) {
                Ok(0) => return Piece::Broken(SkipReason::Changed),
                Ok(count) => {
                    bytes.truncate(count);
                    self.left -= count as u64;
                    return Piece::Chunk(Chunk { bytes });
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Piece::Broken(SkipReason::Unreadable),
            }
        }
    }
}
