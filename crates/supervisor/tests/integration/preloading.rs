//! An interpreter on its way to waiting: what its modules may do, and what happens when it fails.

use fumehood_protocol::ToSupervisor;

use crate::harness::{NEVER_STARTED, Sandbox, limits};
use crate::interpreter::{is_waiting, preload, start_script, with_modules};

#[test]
fn modules_that_cannot_be_imported_are_told_and_are_no_failure() {
    let modules = [
        ("broken", "import json\nraise SystemExit(3)"),
        ("syntax", "def broken("),
    ];
    let mut sandbox = with_modules(&modules, &[]);
    let start = start_script();
    let names = ["no_such", "broken", "json.no_such", "syntax", "decimal"];
    let preloaded = sandbox.preload(preload(&start, &names));
    let problems = [
        "no_such: ModuleNotFoundError",
        "broken: SystemExit",
        "json.no_such: ModuleNotFoundError",
        "syntax: SyntaxError",
    ];
    assert!(preloaded.waiting);
    assert_eq!(preloaded.problems, problems);
    sandbox.run(start, "import sys; print('decimal' in sys.modules)");
    assert_eq!(sandbox.finish().text(), "True\n");
}

#[test]
fn what_a_module_prints_at_import_is_not_the_programs() {
    let noisy = "import os, sys\nprint('noise', end='')\nprint('noise', file=sys.stderr)\n\
        os.write(1, b'noise')\nos.system('echo noise; echo noise >&2')\nsys.stdout.write('noise')";
    let mut sandbox = with_modules(&[("noisy", noisy)], &[]);
    let mut start = start_script();
    // Buffered, so that something of it is left when the import is over.
    start
        .environment
        .retain(|(name, _)| name != "PYTHONUNBUFFERED");
    assert!(is_waiting(
        &sandbox.preload(preload(&start, &["noisy", "this"]))
    ));
    sandbox.run(
        start,
        "import noisy, sys; print('text'); print('error', file=sys.stderr)",
    );
    let finished = sandbox.finish();
    assert_eq!(
        (finished.text(), &finished.stderr[..]),
        ("text\n", &b"error\n"[..])
    );
}

#[test]
fn what_a_module_starts_at_import_is_a_plain_child() {
    let starting =
        "import os; os.system('ls /proc/self/fd > out/descriptors; env > out/variables')";
    let start = start_script();
    let mut sandbox = with_modules(&[("starting", starting)], &[]);
    assert!(is_waiting(&sandbox.preload(preload(&start, &["starting"]))));
    sandbox.run(start, "print('over')");
    sandbox.finish();
    let collected = sandbox.collect(limits());
    let content = |path| String::from_utf8_lossy(collected.content(path)).into_owned();
    // The last one is the list itself.
    assert_eq!(content("out/descriptors"), "0\n1\n2\n3\n");
    assert!(content("out/variables").contains("LANG=C.UTF-8\n"));
    assert!(!content("out/variables").contains("PYTHONPATH"));
}

/// The libraries are used before the wait: whatever version they are, that shows nowhere.
#[test]
fn a_warning_that_the_warm_up_has_met_and_an_error_in_it_cost_the_program_nothing() {
    let pandas = "import warnings\ndef read_csv(source):\n    warnings.warn('old', FutureWarning)";
    let mut sandbox = with_modules(&[("pandas", pandas)], &[]);
    let start = start_script();
    let preloaded = sandbox.preload(preload(&start, &["pandas"]));
    assert!(preloaded.waiting, "{preloaded:?}");
    assert_eq!(preloaded.problems, ["warm-up: AttributeError"]);
    assert_eq!(preloaded.imported, 1, "a program has what it was to have");
    sandbox.run(start, "import pandas\nprint(pandas.read_csv('x'))");
    let finished = sandbox.finish();
    assert_eq!(finished.text(), "None\n");
    let shown = String::from_utf8_lossy(&finished.stderr);
    assert!(shown.contains("FutureWarning: old"), "{shown}");
}

#[test]
fn without_an_interpreter_the_program_is_started_anew() {
    let mut sandbox = Sandbox::new();
    sandbox.ready();
    let mut request = preload(&start_script(), &["json"]);
    request.arguments[0] = "no-such-python".to_owned();
    let preloaded = sandbox.preload(request);
    assert!(!preloaded.waiting);
    assert!(
        preloaded.problems[0].starts_with("execve: "),
        "{preloaded:?}"
    );
    sandbox.run(start_script(), "print('plain')");
    assert_eq!(sandbox.finish().text(), "plain\n");
}

#[test]
fn without_our_file_the_program_is_started_anew() {
    let mut sandbox = Sandbox::customized("", &["--preload", "/mnt/nowhere"]);
    sandbox.ready();
    let preloaded = sandbox.preload(preload(&start_script(), &["json"]));
    assert!(!preloaded.waiting);
    assert!(
        preloaded.problems[0].contains("/mnt/nowhere/sitecustomize.py"),
        "{preloaded:?}"
    );
    sandbox.run(start_script(), "import sys; print('json' in sys.modules)");
    assert_eq!(sandbox.finish().text(), "False\n");
}

#[test]
fn an_interpreter_that_dies_or_hangs_while_importing_is_given_up() {
    let child = "import subprocess; subprocess.Popen(['sleep', '1000'])";
    let modules = [
        (
            "dying",
            &*format!("{child}\nimport os; os.kill(os.getpid(), 11)"),
        ),
        (
            "hanging",
            &*format!("{child}\nimport time; time.sleep(1000)"),
        ),
        ("closing", "import os, time; os.close(3); time.sleep(1000)"),
    ];
    let reasons = [
        "the interpreter ended by signal 11",
        "the interpreter was not ready in time",
        "the interpreter has closed its link",
    ];
    for ((module, _), reason) in modules.iter().zip(reasons) {
        let mut sandbox = with_modules(&modules, &["--importing-seconds", "2"]);
        let preloaded = sandbox.preload(preload(&start_script(), &["no_such", module]));
        assert!(!preloaded.waiting);
        assert_eq!(preloaded.problems, ["no_such: ModuleNotFoundError", reason]);
        assert_eq!(sandbox.programs(), [], "what it has started is gone, too");
        sandbox.run(start_script(), "print('anew')");
        assert_eq!(sandbox.finish().text(), "anew\n");
    }
}

#[test]
fn something_else_than_our_interpreter_is_no_reason_to_run_a_script_twice() {
    let mut other = start_script();
    other.arguments[0] = "sh".to_owned();
    // Nothing was there that it could have run.
    let mut sandbox = Sandbox::new();
    sandbox.ready();
    let preloaded = sandbox.preload(preload(&other, &[]));
    assert!(!preloaded.waiting);
    assert!(preloaded.problems[0].contains("script.py"), "{preloaded:?}");
    // Here was something.
    let mut sandbox = Sandbox::new();
    sandbox.ready();
    sandbox.write("script.py", b"echo ran");
    sandbox.send(&ToSupervisor::Preload(preload(&other, &[])));
    assert_eq!(sandbox.exit_code(), Some(70));
    assert!(sandbox.last_words().contains("the interpreter is lost"));
}

#[test]
fn children_that_imports_have_left_end_with_the_program() {
    let leaving = "import os, subprocess\nif os.fork() == 0:\n    os.closerange(0, 100)\n    \
        os.execvp('sleep', ['sleep', '1000'])\nsubprocess.run(['sh', '-c', 'true &'])";
    let mut sandbox = with_modules(&[("leaving", leaving)], &[]);
    let start = start_script();
    assert!(is_waiting(&sandbox.preload(preload(&start, &["leaving"]))));
    sandbox.run(start, "print('main')");
    let finished = sandbox.finish();
    assert_eq!(
        (finished.text(), finished.exited().survivors),
        ("main\n", 0)
    );
    assert_eq!(sandbox.programs(), []);
}

#[test]
fn a_sandbox_that_is_not_wanted_ends_whatever_its_interpreter_does() {
    for module in ["json", "hanging"] {
        for cancel in [true, false] {
            let mut sandbox = with_modules(&[("hanging", "import time; time.sleep(1000)")], &[]);
            sandbox.send(&ToSupervisor::Preload(preload(&start_script(), &[module])));
            if module == "json" {
                sandbox.next();
            }
            if cancel {
                sandbox.send(&ToSupervisor::Cancel);
            } else {
                sandbox.detach_input();
            }
            assert_eq!(sandbox.exit_code(), Some(NEVER_STARTED));
        }
    }
}
