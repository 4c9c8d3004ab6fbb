//! A release build obeys no fault bench. All other tests here are of a debug build.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use fumehood::fault_point::FaultPoint;
use fumehood::fault_point::bench::{DIE_AT, DIED_AT};

/// Texts that are in a program that obeys the bench, and in no other.
fn texts() -> BTreeSet<String> {
    let files = [DIE_AT, DIED_AT, "FAULT_BENCH_DIRECTORY"];
    let points = FaultPoint::ALL.map(FaultPoint::name);
    files.into_iter().chain(points).map(str::to_owned).collect()
}

/// Those of the texts that are in a program.
fn found(program: &Path) -> BTreeSet<String> {
    assert!(program.exists(), "{}", program.display());
    // A hundred megabytes, which a test's own build would search for minutes.
    let mut grep = Command::new("grep");
    grep.args(["--text", "--only-matching", "--fixed-strings"]);
    for text in texts() {
        grep.args(["-e", &text]);
    }
    let output = grep.arg(program).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(str::to_owned).collect()
}

fn debug_build() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_fumehood"))
}

#[test]
#[ignore = "needs a release build, which tests/faults/run.sh makes"]
fn a_release_build_has_no_fault_points() {
    let target = debug_build().ancestors().nth(2).unwrap().to_owned();
    let release_build = target.join("release/fumehood");
    assert_eq!(found(&release_build), BTreeSet::new());
}

/// What the other stands on: fault points are found where they are.
#[test]
fn the_fault_points_of_a_debug_build_are_found() {
    assert_eq!(found(&debug_build()), texts());
}
