//! A program cannot tell whether it was started plainly or by an interpreter that waited: every
//! program of `tests/programs` is run both ways and compared.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use fumehood_protocol::message::{EndedBy, Ending, Start};

use crate::harness::{Sandbox, limits};
use crate::interpreter::{MODULES, environment, preload, start_script};

/// Everything that a program shows of itself.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    ending: Ending,
    ended_by: EndedBy,
    stdout: String,
    stderr: String,
    /// Whether it is executable, and its content; a directory has none.
    files: BTreeMap<String, (bool, Option<Vec<u8>>)>,
}

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// The names of all programs.
fn names() -> Vec<String> {
    let paths = std::fs::read_dir(programs()).unwrap();
    let paths = paths.map(|entry| entry.unwrap().path());
    let scripts = paths.filter(|path| path.extension().is_some_and(|ending| ending == "py"));
    let mut names: Vec<_> = scripts
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// The files of a program, by their paths in the workspace.
fn files(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = programs().join(name);
    let mut pending = vec![folder.clone()];
    let mut files = Vec::new();
    while let Some(path) = pending.pop() {
        if let Ok(entries) = std::fs::read_dir(&path) {
            pending.extend(entries.map(|entry| entry.unwrap().path()));
        } else if path.is_file() {
            let inside = path.strip_prefix(&folder).unwrap().to_str().unwrap();
            files.push((inside.to_owned(), std::fs::read(&path).unwrap()));
        }
    }
    files.sort();
    let script = std::fs::read(programs().join(format!("{name}.py"))).unwrap();
    files.push(("script.py".to_owned(), script));
    files
}

/// Runs a program: plainly, or by an interpreter that waits with these modules loaded.
fn show(name: &str, environment: &[(String, String)], modules: Option<&[&str]>) -> Shown {
    show_in(Sandbox::new(), name, environment, modules)
}

fn show_in(
    mut sandbox: Sandbox,
    name: &str,
    environment: &[(String, String)],
    modules: Option<&[&str]>,
) -> Shown {
    let mut start = start_script();
    start.environment = environment.to_vec();
    start.output.stdout_head_bytes = 10 << 20;
    sandbox.ready();
    if let Some(modules) = modules {
        let preloaded = sandbox.preload(preload(&start, modules));
        assert!(preloaded.waiting, "{name}: {preloaded:?}");
    }
    shown(sandbox, start, files(name))
}

fn shown(mut sandbox: Sandbox, start: Start, files: Vec<(String, Vec<u8>)>) -> Shown {
    for (path, bytes) in &files {
        sandbox.write(path, bytes);
    }
    sandbox.send(&fumehood_protocol::ToSupervisor::Start(start));
    assert!(matches!(
        sandbox.next(),
        fumehood_protocol::FromSupervisor::Started(_)
    ));
    let finished = sandbox.finish();
    let collected = sandbox.collect(limits());
    let files = collected.entries.into_iter().map(|(entry, bytes)| {
        let path = String::from_utf8(entry.path).unwrap();
        // The compiled form of a file holds the time at which the file was written.
        let content = (!entry.is_directory && !path.ends_with(".pyc")).then_some(bytes);
        (path, (entry.executable, content))
    });
    Shown {
        ending: finished.exited().ending,
        ended_by: finished.exited().ended_by,
        files: files.collect(),
        stdout: without_addresses(&finished.stdout),
        stderr: without_addresses(&finished.stderr),
    }
}

/// The kernel places every process elsewhere: two plain runs show different addresses, too.
fn without_addresses(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let mut parts = text.split("0x");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(|digit: char| digit.is_ascii_hexdigit());
        let is_address = part.len() - rest.len() >= 12;
        kept.push_str("0x");
        kept.push_str(if is_address { rest } else { part });
    }
    kept
}

/// Compares every program in this environment; a few at a time, since each waits most of the time.
/// Gives what the plain runs have shown.
fn compare_all(environment: &[(String, String)]) -> BTreeMap<String, Shown> {
    let names = Mutex::new(VecDeque::from(names()));
    let different = Mutex::new(Vec::new());
    let all = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let Some(name) = names.lock().unwrap().pop_front() else {
                        break;
                    };
                    // With libraries loaded, the list of what is loaded is another.
                    let modules: &[_] = if name == "start_state" { &[] } else { &MODULES };
                    let plain = show(&name, environment, None);
                    let waited = show(&name, environment, Some(modules));
                    if plain != waited {
                        let report = format!("{name}\nplain:  {plain:#?}\nwaited: {waited:#?}");
                        different.lock().unwrap().push(report);
                    }
                    all.lock().unwrap().insert(name, plain);
                }
            });
        }
    });
    let different = different.into_inner().unwrap();
    assert!(different.is_empty(), "{}", different.join("\n\n"));
    all.into_inner().unwrap()
}

/// The programs whose plain run is meant to fail: two equal failures would compare equal.
const FAILING: [&str; 15] = [
    "c_library",
    "crash",
    "exit_at_once",
    "exit_number",
    "exit_text",
    "input_ended",
    "interrupted",
    "left_in_libraries",
    "memory_error",
    "missing_module",
    "neighbours",
    "recursion",
    "syntax_error",
    "terminated",
    "uncaught_exception",
];

#[test]
fn a_program_cannot_tell_that_its_interpreter_has_waited() {
    let all = compare_all(&environment());
    assert!(all.len() >= 50);
    for (name, plain) in all {
        let fails = FAILING.contains(&name.as_str());
        assert_eq!(plain.ending != Ending::Code(0), fails, "{name}: {plain:#?}");
        let shows = !(plain.stdout.is_empty() && plain.stderr.is_empty());
        assert!(shows || fails || name == "exit_none", "{name}");
    }
}

#[test]
fn nor_in_an_environment_with_nothing_but_a_path() {
    compare_all(&[("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
}

#[test]
fn a_sitecustomize_of_the_images_own_is_imported_as_in_a_plain_start() {
    let own = [
        "WHOSE = 'image'\nprint('own', __name__, __file__)",
        "raise ValueError('broken')",
        "raise ImportError('of something else', name='something')",
        "import sys\nsys.path.insert(0, '/mnt/work/library')\nimport json",
    ];
    for text in own {
        let sandbox = || {
            let script = format!(
                "cd /usr/lib/python3/dist-packages; mount -t tmpfs none .
                 cat > /usr/lib/python3/dist-packages/sitecustomize.py <<'END'\n{text}\nEND"
            );
            Sandbox::customized(&script, &[])
        };
        for (name, modules) in [
            ("start_state", &[][..]),
            ("environment", &MODULES),
            ("descriptors", &MODULES),
            ("no_sitecustomize", &MODULES),
        ] {
            let plain = show_in(sandbox(), name, &environment(), None);
            let waited = show_in(sandbox(), name, &environment(), Some(modules));
            assert_eq!(plain, waited, "{name} with {text}");
        }
    }
}

#[test]
fn limits_that_come_with_the_start_leave_no_trace() {
    let mut start = start_script();
    let request = preload(&start, &[]);
    start.limits.open_files = 100;
    start.limits.cpu_seconds = Some(50);
    for name in ["start_state", "no_sitecustomize", "descriptors"] {
        let (mut plain, mut waited) = (Sandbox::new(), Sandbox::new());
        plain.ready();
        waited.ready();
        assert!(waited.preload(request.clone()).waiting);
        let plain = shown(plain, start.clone(), files(name));
        assert_eq!(plain, shown(waited, start.clone(), files(name)), "{name}");
    }
}
