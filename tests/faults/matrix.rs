//! The fault matrix of security.md 3.3 and 3.4 as one table: each row, its promise and the tests that show
//! it.

mod rows;

use rows::ROWS;

/// A row.
struct Row {
    id: &'static str,
    fault: &'static str,
    promise: &'static str,
    /// All of them show it.
    tests: &'static [&'static str],
}

/// The text of the tests that the rows name.
const SOURCES: [&str; 9] = [
    include_str!("kills.rs"),
    include_str!("soak.rs"),
    include_str!("engine_down.rs"),
    include_str!("engine_odd.rs"),
    include_str!("disks.rs"),
    include_str!("store.rs"),
    include_str!("clock.rs"),
    include_str!("doors.rs"),
    include_str!("model.rs"),
];

/// The attributes above a test: what stands between the end of the item before it and its name.
fn attributes(test: &str) -> Option<&'static str> {
    let name = format!("async fn {test}()");
    let sources = SOURCES.into_iter();
    let mut found = sources.filter_map(|text| text.split_once(&name).map(|(before, _)| before));
    let before = found.next()?;
    assert!(found.next().is_none(), "there are two {test}");
    let start = before.rfind("#[tokio::test")?;
    Some(&before[start..])
}

#[test]
fn every_row_has_its_tests_and_all_of_them_are_run() {
    for Row { id, tests, .. } in &ROWS {
        assert!(!tests.is_empty(), "{id}: nothing shows it");
        for test in *tests {
            let attributes = attributes(test).unwrap_or_else(|| panic!("{id}: no test {test}"));
            // The soak is run by its script.
            let is_run = !attributes.contains("#[ignore") || attributes.contains("soak.sh\"]");
            assert!(is_run, "{id}: {test} is not run");
        }
    }
}

/// Every state of 3.3 and every fault of 3.4 that the issue asks for (F20 is a cluster's).
#[test]
fn no_row_is_missing_and_each_says_what_it_promises() {
    let ids: Vec<&str> = ROWS.iter().map(|row| row.id).collect();
    let states = [
        "R0", "R1", "Q", "P", "C", "S", "S'", "X", "A", "T", "D", "N", "*",
    ];
    let faults = (1..=21).filter(|n| *n != 20).map(|n| format!("F{n}"));
    let expected: Vec<String> = states
        .map(str::to_owned)
        .into_iter()
        .chain(faults)
        .collect();
    assert_eq!(ids, expected);
    for row in &ROWS {
        assert!(
            !row.fault.is_empty() && !row.promise.is_empty(),
            "{}",
            row.id
        );
    }
}

/// The table that people read is this one.
#[test]
fn the_readme_tells_every_row_as_it_is() {
    let readme = include_str!("README.md");
    for row in &ROWS {
        let Row {
            id,
            fault,
            promise,
            tests: _,
        } = row;
        let line = format!("| {id} | {fault} | {promise} | held |");
        assert!(
            readme.lines().any(|one| one == line),
            "in tests/faults/README.md: {line}"
        );
    }
    let rows = readme.lines().filter(|line| line.matches('|').count() == 5);
    assert_eq!(
        rows.count(),
        ROWS.len() + 2,
        "a row too many in tests/faults/README.md"
    );
}

/// A filter that no test fits would leave a test out without a word.
#[test]
fn what_the_quick_part_names_is_there() {
    let (_, rest) = include_str!("run.sh").split_once("quick='").unwrap();
    let (list, _) = rest.split_once('\'').unwrap();
    assert!(list.split_whitespace().count() > 3, "{list}");
    for filter in list.split_whitespace() {
        let (module, test) = filter.split_once("::").unwrap();
        let modules = include_str!("main.rs");
        assert!(modules.contains(&format!("\nmod {module};")), "{filter}");
        let name = format!("fn {test}");
        let is_there = test.is_empty() || SOURCES.iter().any(|text| text.contains(&name));
        assert!(is_there, "{filter}");
    }
}

/// The tests of the states stand on this: each point is in the daemon's code, once.
#[test]
fn every_fault_point_is_reached_at_one_place() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut pending = vec![root];
    let mut text = String::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).unwrap();
            pending.extend(entries.map(|entry| entry.unwrap().path()));
        } else {
            text += &std::fs::read_to_string(path).unwrap();
        }
    }
    for point in fumehood::fault_point::FaultPoint::ALL {
        let call = format!("FaultPoint::{point:?}.reached()");
        assert_eq!(text.matches(&call).count(), 1, "{call}");
    }
}
