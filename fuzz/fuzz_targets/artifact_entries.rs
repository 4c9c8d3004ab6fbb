//! A sandbox that was taken over says what it likes about its artifacts: whatever comes, nothing is
//! written outside the execution's own directory, no limit is exceeded, and everything that is
//! published is a plain file or directory with a mode that we chose.
//!
//! Input: the stream of a supervisor.

#![no_main]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fumehood::artifacts::collect::{Caps, Progress};
use fumehood::artifacts::{Collector, OutputRoot};
use fumehood::ids::ExecutionId;
use fumehood_protocol::{Decoder, FromSupervisor};
use libfuzzer_sys::fuzz_target;

const CAPS: Caps = Caps {
    total_bytes: 4096,
    files: 8,
};

fuzz_target!(|data: &[u8]| {
    let place = tempfile::tempdir().expect("a temporary directory");
    let root = place.path().join("outputs");
    let outputs = OutputRoot::new(&root);
    let execution = ExecutionId::random();
    let mut collector = Collector::new(
        outputs.stage(&execution).expect("a fresh directory"),
        CAPS,
        BTreeMap::new(),
    );
    let complete = feed(&mut collector, data);
    let collected = collector.finish(complete);
    let (artifacts, listed) = (collected.artifacts, collected.output_files);
    collected
        .staging
        .publish()
        .expect("a directory that can be renamed");

    let published = outputs.published(&execution);
    let mut seen = Seen::default();
    look(&published, &mut seen);
    assert_eq!(seen.files, artifacts.len(), "the manifest is what is there");
    assert!(seen.files as u64 <= CAPS.files && seen.bytes <= CAPS.total_bytes);
    assert!(listed.len() <= artifacts.len());
    // Beside the directory of this execution there is nothing.
    let beside = |path: &Path| fs::read_dir(path).expect("readable").count();
    assert_eq!(beside(place.path()), 1);
    assert_eq!(beside(published.parent().expect("has one")), 1);
});

fn feed(collector: &mut Collector, data: &[u8]) -> bool {
    let mut decoder = Decoder::default();
    decoder.push(data);
    while let Ok(Some(frame)) = decoder.next_frame() {
        let Ok(message) = frame.message::<FromSupervisor>() else {
            return false;
        };
        match collector.take(message) {
            Ok(Progress::More) => {}
            Ok(Progress::Complete) => return true,
            Err(_) => return false,
        }
    }
    false
}

#[derive(Default)]
struct Seen {
    files: usize,
    bytes: u64,
}

fn look(directory: &Path, seen: &mut Seen) {
    for entry in fs::read_dir(directory).expect("a published directory") {
        let path = entry.expect("an entry").path();
        let metadata = fs::symlink_metadata(&path).expect("it is there");
        let mode = metadata.permissions().mode() & 0o7777;
        if metadata.is_dir() {
            look(&path, seen);
        } else {
            assert!(metadata.is_file(), "neither file nor directory: {path:?}");
            assert!(mode == 0o644 || mode == 0o755, "{mode:o}");
            seen.files += 1;
            seen.bytes += metadata.len();
        }
    }
}
