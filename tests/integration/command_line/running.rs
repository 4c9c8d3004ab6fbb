//! `fumehood run`

use std::io::{BufRead as _, BufReader, Read as _};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Bench, Called};
use crate::support::engine::{block_on, containers_of};

#[test]
fn the_exit_code_is_the_programs_own_or_says_what_ended_it() {
    let bench = Bench::new();
    for (code, arguments, expected) in [
        ("print('fine')", &[][..], 0),
        ("raise SystemExit(3)", &[], 3),
        ("import os; os._exit(255)", &[], 255),
        ("1/0", &[], 1),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            &[],
            137,
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
            &[],
            143,
        ),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGHUP)",
            &[],
            129,
        ),
        ("while True: pass", &["--timeout", "1"], 124),
        ("print('no file')", &["--expect", "a.csv"], 65),
        (
            "open('out/a.csv', 'w').write('1')",
            &["--expect", "a.csv"],
            0,
        ),
    ] {
        let script = bench.write("script.py", code);
        let mut all = vec!["run", script.to_str().unwrap()];
        all.extend(arguments);
        let called = bench.call(&all);
        assert_eq!(called.code, expected, "{code}: {called:?}");
    }
}

#[test]
fn output_is_passed_on_as_it_is_and_the_summary_goes_to_standard_error() {
    let bench = Bench::new();
    let code = "import os, sys\n\
        os.write(1, bytes(range(256)))\n\
        sys.stderr.write('its own error\\n')\n\
        os.makedirs('out/deep')\n\
        open('out/deep/result.csv', 'w').write('a,b\\n')\n";
    bench.write("script.py", code);
    let output = bench.command(&["run", "script.py"]).output().unwrap();
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(output.stdout, all, "standard output is the program's alone");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("its own error\n"), "{stderr}");
    for part in ["SUCCESS", "outputs/models/exec_", "deep/result.csv"] {
        assert!(stderr.contains(part), "{part} is missing in {stderr}");
    }
    assert!(!stderr.contains('\u{1b}'), "no colours in a pipe: {stderr}");
    let names = bench.artifacts();
    assert_eq!(names.len(), 1);
    let kept = bench.path().join("outputs/models").join(&names[0]);
    let text = std::fs::read_to_string(kept.join("deep/result.csv"));
    assert_eq!(text.unwrap(), "a,b\n");
}

#[test]
fn output_is_shown_while_the_program_runs() {
    let bench = Bench::new();
    let set = bench.path().join("set");
    std::fs::create_dir(&set).unwrap();
    let code = "import os, time\n\
        print('waiting')\n\
        while not os.path.exists('/data/go'): time.sleep(0.05)\n\
        print('gone')\n";
    bench.write("script.py", code);
    let mut command = bench.command(&["run", "script.py", "--dataset", "set"]);
    let mut child = command.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "waiting\n");
    assert!(child.try_wait().unwrap().is_none(), "it still runs");
    std::fs::write(set.join("go"), "").unwrap();
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "gone\n");
    assert!(child.wait().unwrap().success());
}

#[test]
fn json_is_the_one_thing_on_standard_output() {
    let bench = Bench::new();
    let given = bench.write("given.txt", "Grüße\r\n");
    std::fs::create_dir(bench.path().join("set")).unwrap();
    std::fs::write(bench.path().join("set/x.csv"), "1").unwrap();
    let code = "import os\n\
        print(open('given.txt', newline='').read(), os.listdir('/data'))\n\
        open('out/a.csv', 'w').write('1')\n";
    bench.write("script.py", code);
    let called = bench.call(&[
        "run",
        "script.py",
        "--json",
        "--dataset",
        "set",
        "--input",
        given.to_str().unwrap(),
        "--expect",
        "a.csv",
        "--expect",
        "b.csv",
        "--output",
        "elsewhere",
    ]);
    assert_eq!(called.code, 65, "{called:?}");
    let result: Value = serde_json::from_str(&called.stdout).unwrap();
    assert_eq!(result["status"], "INVALID_OUTPUT");
    assert_eq!(
        (&result["success"], &result["return_code"]),
        (&json!(false), &json!(0))
    );
    assert_eq!(result["stdout"], "Grüße\r\n ['x.csv']\n");
    assert_eq!(result["missing_expected_files"], json!(["b.csv"]));
    assert_eq!(result["error_info"], "Missing expected output files: b.csv");
    assert_eq!(result["output_files"], json!(["a.csv"]));
    let id = result["execution_id"].as_str().unwrap();
    let kept = bench.path().join("elsewhere/models").join(id).join("a.csv");
    assert!(kept.exists());
    assert_eq!(bench.artifacts(), Vec::<String>::new());
}

#[test]
fn an_interrupt_ends_the_program_and_keeps_what_there_is() {
    let bench = Bench::new();
    let code = "import signal, time\n\
        signal.signal(signal.SIGINT, signal.SIG_IGN)\n\
        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
        open('out/half.txt', 'w').write('kept')\n\
        print('up')\n\
        time.sleep(3600)\n";
    bench.write("script.py", code);
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = bench.command(&["run", "script.py"]).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let called = Called::from(child.wait_with_output().unwrap());
        assert_eq!(called.code, 130, "{called:?}");
        assert!(called.stderr.contains("CANCELLED"), "{called:?}");
        assert!(called.stderr.contains("half.txt"), "{called:?}");
    }
    assert_eq!(bench.artifacts().len(), 2);
}

#[test]
fn a_reader_that_goes_away_does_not_end_the_program() {
    let bench = Bench::new();
    let code = "print('up')\nfor _ in range(100): print('x' * 10000)\n\
        open('out/end.txt', 'w').write('reached')\n";
    bench.write("script.py", code);
    let mut child = bench.command(&["run", "script.py"]).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    drop(stdout);
    let called = Called::from(child.wait_with_output().unwrap());
    assert_eq!(called.code, 0, "{called:?}");
    assert!(called.stderr.contains("end.txt"), "{called:?}");
}

#[test]
fn arguments_that_cannot_be_used_are_78_or_2_and_name_the_thing() {
    let bench = Bench::new();
    bench.write("good.py", "print()");
    std::fs::write(bench.path().join("latin.py"), b"# \xe9").unwrap();
    std::fs::create_dir(bench.path().join("directory")).unwrap();
    for (arguments, code, name) in [
        (&["missing.py"][..], 78, "missing.py"),
        (&["directory"], 78, "directory"),
        (&["latin.py"], 78, "latin.py"),
        (&["good.py", "--dataset", "nowhere"], 78, "nowhere"),
        (&["good.py", "--dataset", "good.py"], 78, "good.py"),
        (&["good.py", "--input", "nowhere.csv"], 78, "nowhere.csv"),
        (
            &["good.py", "--timeout", "0"],
            78,
            "execution.timeout_seconds",
        ),
        (
            &["good.py", "--timeout", "nan"],
            78,
            "execution.timeout_seconds",
        ),
        (&["good.py", "--memory", "1"], 78, "execution.memory_mb"),
        (&["good.py", "--cpus=-1"], 78, "execution.cpus"),
        (&["good.py", "--cpus", "many"], 2, "--cpus"),
        (&["good.py", "--nonsense"], 2, "--nonsense"),
        (&[], 2, "SCRIPT"),
    ] {
        let all: Vec<_> = ["run"].iter().chain(arguments).copied().collect();
        let called = bench.call(&all);
        assert_eq!(called.code, code, "{arguments:?}: {called:?}");
        assert!(called.stderr.contains(name), "{arguments:?}: {called:?}");
        assert_eq!(called.stdout, "", "{arguments:?}");
    }
    assert_eq!(bench.artifacts(), Vec::<String>::new());
}

#[test]
fn calls_at_the_same_time_do_not_disturb_each_other() {
    let bench = Bench::new();
    let code = "print('mine')\nopen('out/mine.txt', 'w').write('kept')";
    bench.write("script.py", code);
    let calls = || -> Vec<Called> { (0..4).map(|_| bench.call(&["run", "script.py"])).collect() };
    let all: Vec<Called> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(calls)).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.flatten().collect()
    });
    for called in &all {
        assert_eq!(
            (called.code, called.stdout.as_str()),
            (0, "mine\n"),
            "{called:?}"
        );
    }
    let names = bench.artifacts();
    assert_eq!((all.len(), names.len()), (16, 16));
    for name in names {
        let kept = bench.path().join("outputs/models").join(name);
        assert!(kept.join("mine.txt").exists());
    }
}

#[test]
fn what_a_killed_call_left_is_removed_by_the_next_call_and_the_next_daemon() {
    let bench = Bench::new();
    bench.write(
        "endless.py",
        "print('up')\nwhile True: __import__('time').sleep(1)",
    );
    bench.write("script.py", "print('next')");
    let mut child = bench.command(&["run", "endless.py"]).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut String::new()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let called = bench.call(&["run", "script.py"]);
    assert_eq!(called.code, 0, "{called:?}");
    let identity = bench.path().join(".fumehood/cli-instance");
    let instance = std::fs::read_to_string(identity).unwrap();
    let left = block_on(async move { containers_of(&instance).await });
    assert_eq!(left, Vec::<String>::new());

    let mut command = bench.command(&["serve", "--listen", "127.0.0.1:0"]);
    let mut daemon = command.spawn().unwrap();
    let lines = BufReader::new(daemon.stderr.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.contains("listens on")));
    kill_process(Pid::from_child(&daemon), Signal::TERM).unwrap();
    lines.for_each(drop);
    assert!(daemon.wait().unwrap().success());
    // The end of the test checks that half-done artifacts are gone as well.
}
