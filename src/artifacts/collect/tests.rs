//! Supervisors that keep to the protocol, and ones that do not.

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
