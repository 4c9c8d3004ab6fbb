//! The walk over the workspace.

use fumehood_protocol::message::*;

use crate::harness::{Collected, Sandbox, limits};

fn collect(script: &str, limits: CollectLimits) -> Collected {
    let mut sandbox = Sandbox::running(script);
    let finished = sandbox.finish();
    let error = String::from_utf8_lossy(&finished.stderr).into_owned();
    assert_eq!(finished.exited().ending, Ending::Code(0), "{error}");
    sandbox.collect(limits)
}

#[test]
fn results_come_first_then_the_files_at_the_top_each_sorted() {
    let script = "mkdir -p out/b/c out/empty private; echo 1 > out/b/c/x; echo 2 > out/a
        echo 3 > out/z; echo 4 > top; echo 5 > given; echo 6 > private/x
        printf '#!/bin/sh' > out/b/run; chmod 755 out/b/run; touch -d @1000000000.5 out/a";
    let collected = collect(
        script,
        CollectLimits {
            ignore: vec!["given".to_owned()],
            ..limits()
        },
    );
    let paths = [
        "out/a",
        "out/b",
        "out/b/c",
        "out/b/c/x",
        "out/b/run",
        "out/empty",
        "out/z",
        "top",
    ];
    assert_eq!(collected.paths(), paths);
    assert_eq!(collected.content("out/b/c/x"), b"1\n");
    let (a, _) = &collected.entries[0];
    assert_eq!(
        (a.modified_seconds, a.modified_nanoseconds),
        (1_000_000_000, 500_000_000)
    );
    let executable: Vec<_> = collected
        .entries
        .iter()
        .filter(|(e, _)| e.executable)
        .collect();
    assert_eq!(executable.len(), 1);
    assert_eq!(executable[0].0.path, b"out/b/run");
    assert!(collected.entries[1].0.is_directory && collected.entries[1].0.size == 0);
    assert!(collected.skipped.is_empty());
    assert_eq!(
        collected.done.unwrap(),
        Done {
            files: 5,
            bytes: 17,
            skipped_unlisted: 0
        }
    );
}

#[test]
fn links_and_special_files_are_skipped_and_never_opened() {
    let script = "cd out; ln -s /etc/passwd passwd; ln -s loop loop; ln -s / root; mkfifo pipe
        ln -s ../../../etc/hostname ../up; echo good > good; ln good hard; mkdir d; ln -s /etc d/e";
    let collected = collect(script, limits());
    assert_eq!(collected.paths(), ["out/d", "out/good", "out/hard"]);
    assert_eq!(collected.content("out/hard"), b"good\n");
    for link in ["out/passwd", "out/loop", "out/root", "up", "out/d/e"] {
        assert_eq!(
            collected.reason(link),
            Some(SkipReason::SymbolicLink),
            "{link}"
        );
    }
    assert_eq!(collected.reason("out/pipe"), Some(SkipReason::SpecialFile));
}

#[test]
fn a_results_directory_that_is_a_link_is_not_followed() {
    let collected = collect("rmdir out; ln -s /etc out; echo 1 > top", limits());
    assert_eq!(collected.paths(), ["top"]);
    assert_eq!(collected.reason("out"), Some(SkipReason::SymbolicLink));
    assert_eq!(collected.skipped.len(), 1);
}

#[test]
fn results_without_a_directory_are_no_error() {
    let collected = collect("rmdir out; echo 1 > top", limits());
    assert_eq!(collected.paths(), ["top"]);
    assert!(collected.skipped.is_empty());
    let collected = collect("rmdir out; echo 1 > out", limits());
    assert_eq!(collected.paths(), ["out"]);
}

#[test]
fn permissions_that_the_program_took_away_from_itself_do_not_hide_anything() {
    let script = "mkdir -p out/ro/deep; echo x > out/ro/deep/x; chmod 000 out/ro/deep/x
        chmod 000 out/ro/deep; chmod 555 out/ro; echo y > out/sticky; chmod 4000 out/sticky
        chmod 444 out; chmod 000 .";
    let collected = collect(script, limits());
    assert_eq!(
        collected.paths(),
        ["out/ro", "out/ro/deep", "out/ro/deep/x", "out/sticky"]
    );
    assert_eq!(collected.content("out/ro/deep/x"), b"x\n");
    assert!(collected.skipped.is_empty());
}

#[test]
fn names_are_bytes_and_none_is_lost() {
    let script = r#"cd out; for n in "$(printf '\377\376.bin')" "$(printf 'a\nb\rc')" -rf '..\..\x' \
        ' lead ' '%2e%2e%2fx' .hidden "$(printf 'n%.0s' $(seq 255))"; do echo 1 > "./$n"; done"#;
    let collected = collect(script, limits());
    let mut names: Vec<_> = collected
        .entries
        .iter()
        .map(|(entry, _)| &entry.path[4..])
        .collect();
    let long = [b'n'; 255];
    let mut expected: Vec<&[u8]> = vec![
        b"\xff\xfe.bin",
        b"a\nb\rc",
        b"-rf",
        b"..\\..\\x",
        b" lead ",
        b"%2e%2e%2fx",
        b".hidden",
    ];
    expected.push(&long);
    expected.sort_unstable();
    assert_eq!(names, expected, "sorted as bytes");
    names.dedup();
    assert_eq!(names.len(), 8);
}

/// 60 levels of 250 bytes: far above `PATH_MAX`.
const DEEP: &str = "cd out; n=$(printf 'n%.0s' $(seq 250)); i=0
    while [ $i -lt 60 ]; do mkdir $n; cd -P $n 2>/dev/null || cd ./$n; i=$((i+1)); done; echo x > bottom";

#[test]
fn a_path_longer_than_the_kernel_takes_is_walked() {
    let generous = CollectLimits {
        depth: 100,
        path_bytes: 20_000,
        ..limits()
    };
    let collected = collect(DEEP, generous);
    assert_eq!(collected.entries.len(), 61);
    let (bottom, content) = collected.entries.last().unwrap();
    assert_eq!(bottom.path.len(), 3 + 60 * 251 + 7);
    assert_eq!(content, b"x\n");
}

#[test]
fn a_path_or_depth_above_its_limit_is_skipped_and_said() {
    let collected = collect(
        DEEP,
        CollectLimits {
            depth: 100,
            ..limits()
        },
    );
    assert_eq!(collected.entries.len(), 16);
    assert_eq!(collected.skipped.len(), 1);
    assert_eq!(collected.skipped[0].reason, SkipReason::PathLength);
    assert_eq!(collected.skipped[0].path.len(), 4096, "cut");
    let collected = collect(
        "mkdir -p out/1/2/3; echo x > out/1/2/x; echo y > out/1/2/3/y",
        CollectLimits {
            depth: 2,
            ..limits()
        },
    );
    assert_eq!(collected.paths(), ["out/1", "out/1/2", "out/1/2/x"]);
    assert_eq!(collected.reason("out/1/2/3"), Some(SkipReason::Depth));
}

#[test]
fn bytes_are_limited_by_apparent_size_and_smaller_files_still_come() {
    let script = "truncate -s 1T out/a_sparse; echo keep > out/b; head -c 90 /dev/zero > out/c
        head -c 90 /dev/zero > out/d; echo me > out/e";
    let collected = collect(
        script,
        CollectLimits {
            total_bytes: 100,
            ..limits()
        },
    );
    assert_eq!(collected.paths(), ["out/b", "out/c", "out/e"]);
    assert_eq!(
        collected.reason("out/a_sparse"),
        Some(SkipReason::TotalBytes)
    );
    assert_eq!(collected.skipped[0].size, 1 << 40);
    assert_eq!(collected.reason("out/d"), Some(SkipReason::TotalBytes));
    assert_eq!(collected.done.unwrap().bytes, 98);
}

#[test]
fn files_are_limited_in_number() {
    let script = "cd out; for i in 1 2 3 4; do echo $i > f$i; done; mkdir g";
    let collected = collect(
        script,
        CollectLimits {
            files: 2,
            ..limits()
        },
    );
    assert_eq!(collected.paths(), ["out/f1", "out/f2", "out/g"]);
    assert_eq!(collected.reason("out/f3"), Some(SkipReason::FileCount));
    assert_eq!(collected.done.unwrap().files, 2);
}

#[test]
fn entries_are_limited_and_what_was_not_seen_is_said() {
    let script = "cd out; for i in 1 2 3 4 5 6 7 8; do echo $i > f$i; done; echo x > ../top";
    let collected = collect(
        script,
        CollectLimits {
            entries: 5,
            ..limits()
        },
    );
    assert_eq!(collected.done.unwrap().files, 5);
    assert_eq!(collected.reason("out"), Some(SkipReason::EntryCount));
    assert_eq!(collected.reason("."), Some(SkipReason::EntryCount));
}

#[test]
fn endless_skips_are_counted_and_not_listed() {
    let script = "cd out; seq 1 3000 | xargs -I{} ln -s x {}";
    let collected = collect(script, limits());
    assert_eq!(collected.skipped.len(), 1000);
    assert_eq!(collected.done.unwrap().skipped_unlisted, 2000);
}
