//! Counts against the limits of one walk.

use fumehood_protocol::message::{CollectLimits, Done, SkipReason};

/// The most things listed as skipped; more are counted.
const LISTED_SKIPS: u64 = 1000;

/// Open directories at once, whatever the limits say: each costs a descriptor.
const MOST_DEPTH: u32 = 128;

/// Bytes of a path, whatever the limits say: a message has to fit into a frame.
const MOST_PATH_BYTES: u32 = 64 << 10;

/// What is left of the limits, and what was done within them.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: u64,
    files: u64,
    entries: u64,
    depth: usize,
    path_bytes: usize,
    skips: u64,
    done: Done,
}

impl Budget {
    pub(super) fn new(limits: &CollectLimits) -> Self {
        Self {
            bytes: limits.total_bytes,
            files: limits.files,
            entries: limits.entries,
            depth: limits.depth.min(MOST_DEPTH) as usize,
            path_bytes: limits.path_bytes.min(MOST_PATH_BYTES) as usize,
            skips: 0,
            done: Done {
                files: 0,
                bytes: 0,
                skipped_unlisted: 0,
            },
        }
    }

    /// Directories allowed below `out`.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Bytes allowed in a path.
    pub(super) fn path_bytes(&self) -> usize {
        self.path_bytes
    }

    /// Names that may still be read.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    pub(super) fn take_entries(&mut self, count: usize) {
        self.entries = self.entries.saturating_sub(count as u64);
    }

    /// Whether a file of this size may be sent. A smaller one may be when this one may not.
    pub(super) fn admits(&self, size: u64) -> Result<(), SkipReason> {
        if self.files == 0 {
            return Err(SkipReason::FileCount);
        }
        if size > self.bytes {
            return Err(SkipReason::TotalBytes);
        }
        Ok(())
    }

    /// A file that was admitted is going to be sent.
    pub(super) fn take_file(&mut self, size: u64) {
        self.files = self.files.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(size);
    }

    /// A file has been sent.
    pub(super) fn complete(&mut self, size: u64) {
        self.done.files += 1;
        self.done.bytes += size;
    }

    /// Whether one more skipped thing is listed; if not it is counted.
    pub(super) fn lists_another_skip(&mut self) -> bool {
        self.skips += 1;
        let listed = self.skips <= LISTED_SKIPS;
        self.done.skipped_unlisted += u64::from(!listed);
        listed
    }

    pub(super) fn done(&self) -> Done {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget::new(&CollectLimits {
            total_bytes: 10,
            files: 2,
            entries: 5,
            depth: u32::MAX,
            path_bytes: u32::MAX,
            ignore: Vec::new(),
        })
    }

    #[test]
    fn a_smaller_file_fits_where_a_larger_one_did_not() {
        let mut budget = budget();
        assert_eq!(budget.admits(11), Err(SkipReason::TotalBytes));
        assert_eq!(budget.admits(10), Ok(()));
        budget.take_file(8);
        assert_eq!(budget.admits(3), Err(SkipReason::TotalBytes));
        assert_eq!(budget.admits(2), Ok(()));
        budget.take_file(2);
        assert_eq!(budget.admits(0), Err(SkipReason::FileCount));
    }

    #[test]
    fn depth_and_path_have_a_bound_of_their_own() {
        assert_eq!(budget().depth(), 128);
        assert_eq!(budget().path_bytes(), 65536);
    }

    #[test]
    fn skips_beyond_the_list_are_counted() {
        let mut budget = budget();
        let listed = (0..1003).filter(|_| budget.lists_another_skip()).count();
        assert_eq!((listed, budget.done().skipped_unlisted), (1000, 3));
    }
}
