//! Reads the names of one directory: bounded in number, sorted as bytes.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::BorrowedFd;

use crate::sys::files;

/// Bytes read from a directory at once.
const BUFFER_BYTES: usize = 32 << 10;

/// Offset of the name in a record of `getdents64`: inode, offset, length, type.
const NAME_OFFSET: usize = 8 + 8 + 2 + 1;

/// The names in a directory.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) names: Vec<CString>,
    /// Whether these are all.
    pub(super) complete: bool,
}

/// Reads at most `limit` names.
pub(super) fn list(directory: BorrowedFd<'_>, limit: u64) -> io::Result<Listing> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut listing = Listing {
        names: Vec::new(),
        complete: true,
    };
    'reading: loop {
        let filled = files::read_directory(directory, &mut buffer)?;
        if filled == 0 {
            break;
        }
        let mut records = &buffer[..filled];
        while let Some((name, rest)) = split_record(records) {
            records = rest;
            if name == c"." || name == c".." {
                continue;
            }
            if listing.names.len() as u64 >= limit {
                listing.complete = false;
                break 'reading;
            }
            listing.names.push(name.to_owned());
        }
    }
    listing.names.sort_unstable();
    Ok(listing)
}

/// The name in the first record, and the records after it.
fn split_record(records: &[u8]) -> Option<(&CStr, &[u8])> {
    let length = records.get(16..18)?.try_into().ok()?;
    let (record, rest) = records.split_at_checked(usize::from(u16::from_ne_bytes(length)))?;
    let name = CStr::from_bytes_until_nul(record.get(NAME_OFFSET..)?).ok()?;
    Some((name, rest))
}
