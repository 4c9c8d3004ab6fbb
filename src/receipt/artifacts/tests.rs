//! What is told apart, and what a hostile directory or receipt cannot do.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;

use rustix::fs::{FileType as Kind, mknodat};

use super::*;
use crate::receipt::testing::{notary, receipt, receipt_with};

fn published() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    fs::create_dir(directory.path().join("models")).unwrap();
    write("models/model.pkl", "a model");
    write("predictions.csv", "id,value\n");
    directory
}

fn compared(directory: &tempfile::TempDir) -> Vec<Problem> {
    let sealed = receipt(&notary(), 1, None);
    let opened = Receipt::open(sealed.text.as_bytes()).unwrap();
    compare(&opened, directory.path()).unwrap()
}

#[test]
fn the_files_of_an_execution_are_recognised_with_its_script_and_without() {
    let directory = published();
    assert_eq!(compared(&directory), []);
    fs::write(directory.path().join("setup.sh"), "true\n").unwrap();
    assert_eq!(compared(&directory), []);
    fs::create_dir_all(directory.path().join("empty/directory")).unwrap();
    assert_eq!(compared(&directory), []);
}

#[test]
fn each_difference_is_named() {
    let directory = published();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("models/model.pkl"), "a modem").unwrap();
    fs::write(path("predictions.csv"), "id,value").unwrap();
    fs::write(path("models/more.pkl"), "").unwrap();
    fs::write(path("setup.sh"), "false").unwrap();
    let problems = compared(&directory);
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert!(
        texts[0].starts_with("artifact models/model.pkl: its SHA-256 is "),
        "{texts:?}"
    );
    assert_eq!(texts[1], "artifact predictions.csv: it has 8 bytes, not 9");
    assert!(texts[2].starts_with("artifact setup.sh: "), "{texts:?}");
    assert_eq!(
        texts[3],
        "artifact models/more.pkl: the receipt has no such file"
    );
    assert_eq!(texts.len(), 4);
}

#[test]
fn what_is_missing_or_no_file_is_named_and_no_link_is_followed() {
    let directory = published();
    let path = |name: &str| directory.path().join(name);
    fs::remove_dir_all(path("models")).unwrap();
    fs::rename(path("predictions.csv"), path("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", path("predictions.csv")).unwrap();
    std::os::unix::fs::symlink("/", path("root")).unwrap();
    let problems = compared(&directory);
    let expected = [
        Problem::Missing("models/model.pkl".to_owned()),
        Problem::Kind("predictions.csv".to_owned()),
        Problem::Extra("elsewhere".to_owned()),
        Problem::Extra("root".to_owned()),
    ];
    assert_eq!(problems, expected);
}

#[test]
fn a_directory_that_is_not_there_is_no_difference_but_an_error() {
    let sealed = receipt(&notary(), 1, None);
    let opened = Receipt::open(sealed.text.as_bytes()).unwrap();
    assert!(compare(&opened, Path::new("/nowhere")).is_err());
}

/// The receipt of an execution that left files with these names and this content.
fn receipt_of(files: &[(&str, &str)]) -> Receipt {
    let sealed = receipt_with(&notary(), files);
    Receipt::open(sealed.text.as_bytes()).unwrap()
}

fn fifo(path: &Path) {
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, path, Kind::Fifo, mode, 0).unwrap();
}

#[test]
fn names_that_lead_out_of_the_directory_are_missing_and_nothing_outside_is_read() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("artifacts");
    fs::create_dir(&directory).unwrap();
    fs::write(place.path().join("outside"), "content").unwrap();
    fs::write(directory.join("inside"), "content").unwrap();
    let absolute = place.path().join("outside");
    let absolute = absolute.to_str().unwrap();
    for name in [
        "../outside",
        absolute,
        "./inside",
        "a/../inside",
        "/inside",
        "inside/",
        "inside/.",
        "",
        ".",
        "..",
        "inside\0",
    ] {
        let receipt = receipt_of(&[(name, "content")]);
        let problems = compare(&receipt, &directory).unwrap();
        let missing = Problem::Missing(name.to_owned());
        assert_eq!(problems, [missing, Problem::Extra("inside".to_owned())]);
    }
    let receipt = receipt_of(&[("inside", "content")]);
    assert_eq!(compare(&receipt, &directory).unwrap(), []);
}

#[test]
fn links_to_the_very_content_do_not_count_neither_as_files_nor_as_directories() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("artifacts");
    fs::create_dir_all(place.path().join("outside")).unwrap();
    fs::create_dir(&directory).unwrap();
    fs::write(place.path().join("outside/model"), "content").unwrap();
    std::os::unix::fs::symlink("../outside", directory.join("models")).unwrap();
    std::os::unix::fs::symlink("../outside/model", directory.join("model")).unwrap();
    let receipt = receipt_of(&[("model", "content"), ("models/model", "content")]);
    let problems = compare(&receipt, &directory).unwrap();
    let expected = [
        Problem::Kind("model".to_owned()),
        Problem::Missing("models/model".to_owned()),
        Problem::Extra("models".to_owned()),
    ];
    assert_eq!(problems, expected);
    // What was a file or a directory when it was listed, and is a link when it is opened.
    let root = File::open(&directory).unwrap();
    for path in ["model", "models/model", "../outside/model"] {
        assert!(open(&root, path).is_err(), "{path}");
    }
}

#[test]
fn what_would_be_waited_for_or_never_ends_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fifo(&path("fifo"));
    fifo(&path("other"));
    let _listener = UnixListener::bind(path("socket")).unwrap();
    let receipt = receipt_of(&[("fifo", ""), ("socket", "")]);
    let problems = compare(&receipt, directory.path()).unwrap();
    let expected = [
        Problem::Kind("fifo".to_owned()),
        Problem::Kind("socket".to_owned()),
        Problem::Extra("other".to_owned()),
    ];
    assert_eq!(problems, expected);
    // Put there after the directory was listed.
    fs::write(path("file"), "content").unwrap();
    let listed = fs::symlink_metadata(path("file")).unwrap().file_type();
    fs::remove_file(path("file")).unwrap();
    fifo(&path("file"));
    let expected = HashedFile::of("file", b"content");
    let root = File::open(directory.path()).unwrap();
    let problem = difference(&root, &expected, listed).unwrap();
    assert_eq!(problem, Some(Problem::Kind("file".to_owned())));
}

#[test]
fn of_a_huge_file_only_the_size_is_looked_at_and_no_more_is_read_than_it_may_have() {
    let directory = tempfile::tempdir().unwrap();
    let file = File::create(directory.path().join("huge")).unwrap();
    file.set_len(1 << 40).unwrap();
    let receipt = receipt_of(&[("huge", "content")]);
    let size = Problem::Size {
        path: "huge".to_owned(),
        expected: 7,
        found: 1 << 40,
    };
    assert_eq!(compare(&receipt, directory.path()).unwrap(), [size]);
    let (_, read) = hash(io::repeat(0).take(3 * BUFFER as u64 + 1)).unwrap();
    assert_eq!(read, 3 * BUFFER as u64 + 1);
}

#[test]
fn names_that_look_the_same_are_different_files() {
    let directory = tempfile::tempdir().unwrap();
    let composed = "caf\u{e9}.csv";
    let decomposed = "cafe\u{301}.csv";
    fs::write(directory.path().join(decomposed), "content").unwrap();
    let receipt = receipt_of(&[(composed, "content")]);
    let problems = compare(&receipt, directory.path()).unwrap();
    let expected = [
        Problem::Missing(composed.to_owned()),
        Problem::Extra(decomposed.to_owned()),
    ];
    assert_eq!(problems, expected);
    // Shown alike, since a terminal has no bytes: neither hides the other.
    let shown = "a\u{fffd}";
    fs::remove_file(directory.path().join(decomposed)).unwrap();
    let raw = std::ffi::OsStr::from_bytes(b"a\xff");
    fs::write(directory.path().join(raw), "another").unwrap();
    let receipt = receipt_of(&[(shown, "content")]);
    let problems = compare(&receipt, directory.path()).unwrap();
    let (missing, extra) = (
        Problem::Missing(shown.to_owned()),
        Problem::Extra(shown.to_owned()),
    );
    assert_eq!(problems, [missing, extra.clone()]);
    fs::write(directory.path().join(shown), "content").unwrap();
    assert_eq!(compare(&receipt, directory.path()).unwrap(), [extra]);
}

#[test]
fn a_file_that_a_receipt_names_twice_is_there_once() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a"), "content").unwrap();
    let receipt = receipt_of(&[("a", "content"), ("a", "content")]);
    let problems = compare(&receipt, directory.path()).unwrap();
    assert_eq!(problems, [Problem::Missing("a".to_owned())]);
}

#[test]
fn a_directory_with_too_much_in_it_is_not_gone_through() {
    let directory = tempfile::tempdir().unwrap();
    for name in 0..5 {
        fs::create_dir(directory.path().join(name.to_string())).unwrap();
    }
    assert!(files(directory.path(), 5).unwrap().is_some());
    assert!(files(directory.path(), 4).unwrap().is_none());
}
