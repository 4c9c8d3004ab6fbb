//! An interpreter that waits: how it goes on at the start, and what happens when it cannot.

use std::process::Command;
use std::time::{Duration, Instant};

use fumehood_protocol::message::*;
use fumehood_protocol::{FromSupervisor, ToSupervisor};

use crate::harness::{NEVER_STARTED, Sandbox, start};
use crate::interpreter::{is_waiting, preload, start_script, with_modules};

/// Waits until a process is gone, or is only waited for.
fn assert_ends(pid: u32) {
    let until = Instant::now() + Duration::from_secs(10);
    let stat = format!("/proc/{pid}/stat");
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(Instant::now() < until, "the interpreter goes on");
        std::thread::yield_now();
    }
}

fn signal(pid: u32, signal: &str) {
    let pid = pid.to_string();
    let status = Command::new("kill").args([signal, &pid]).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_waiting_interpreter_runs_the_script_with_its_modules_loaded() {
    let start = start_script();
    let mut sandbox = Sandbox::waiting(&start, &["json", "sqlite3"]);
    let waiting = sandbox.programs();
    // It stays until it is looked at.
    let script = "import signal, sys
print({'json', 'sqlite3'} <= set(sys.modules), __name__, __file__, flush=True)
signal.pause()";
    sandbox.run(start, script);
    assert_eq!(sandbox.programs(), waiting);
    assert!(matches!(sandbox.next(), FromSupervisor::Output(_)));
    sandbox.send(&ToSupervisor::Cancel);
    assert_eq!(sandbox.finish().exited().ended_by, EndedBy::Cancel);
}

#[test]
fn a_script_that_has_waited_is_run_by_the_name_and_from_the_place_of_a_plain_one() {
    let start = start_script();
    let mut sandbox = Sandbox::waiting(&start, &["json", "sqlite3"]);
    let script = "import sys; print({'json', 'sqlite3'} <= set(sys.modules), __name__, __file__)";
    sandbox.run(start, script);
    let finished = sandbox.finish();
    assert_eq!(finished.text(), "True __main__ /mnt/work/script.py\n");
    assert_eq!(finished.exited().ending, Ending::Code(0));
}

#[test]
fn files_that_are_no_modules_do_not_cost_the_loaded_libraries() {
    let start = start_script();
    let mut sandbox = Sandbox::waiting(&start, &["json"]);
    sandbox.write("json.csv", b"");
    sandbox.write("json/data.csv", b"");
    sandbox.write("helpers.py", b"");
    sandbox.run(start, "import sys; print('json' in sys.modules)");
    assert_eq!(sandbox.finish().text(), "True\n");
}

#[test]
fn a_script_that_is_there_already_waits_like_any_other() {
    let start = start_script();
    let mut sandbox = Sandbox::new();
    sandbox.ready();
    sandbox.write(
        "script.py",
        b"print('ran'); open('out/ran', 'a').write('x')\n",
    );
    assert!(is_waiting(&sandbox.preload(preload(&start, &["json"]))));
    sandbox.run(start, "print('appended')");
    let finished = sandbox.finish();
    assert_eq!(finished.text(), "ran\nappended\n");
    assert_eq!(
        sandbox.collect(crate::harness::limits()).content("out/ran"),
        b"x"
    );
}

#[test]
fn only_the_program_that_was_waited_for_is_run() {
    type Change = fn(&mut Start);
    let changes: [(&str, Change); 4] = [
        ("other arguments", |start| {
            start.arguments.push("more".to_owned())
        }),
        ("another environment", |start| start.environment.swap(0, 1)),
        ("lower limits", |start| start.limits.open_files += 1),
        ("lower limits", |start| start.limits.file_size_bytes += 1),
    ];
    for (reason, change) in changes {
        let mut start = start_script();
        let mut sandbox = Sandbox::waiting(&start, &[]);
        sandbox.auto_ack = false;
        let interpreter = sandbox.programs()[0];
        change(&mut start);
        sandbox.write("script.py", b"open('out/ran', 'w')");
        sandbox.send(&ToSupervisor::Start(start));
        let failed = sandbox.failure();
        assert_eq!(failed.step, "start");
        assert!(failed.message.contains(reason), "{failed:?}");
        // The end of the stream tells it that nobody needs it.
        assert_ends(interpreter);
        let ran = format!("/proc/{}/root/mnt/work/out", sandbox.supervisor());
        assert_eq!(std::fs::read_dir(ran).unwrap().count(), 0, "the script ran");
    }
}

#[test]
fn limits_are_lowered_at_the_start() {
    let mut start = start_script();
    let mut sandbox = Sandbox::waiting(&start, &["resource"]);
    start.limits.open_files = 77;
    start.limits.file_size_bytes = 512;
    let script =
        "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_FSIZE))";
    sandbox.run(start, script);
    assert_eq!(sandbox.finish().text(), "(77, 77) (512, 512)\n");
}

#[test]
fn clocks_and_counters_begin_at_the_start() {
    let burning = "import time\nwhile time.process_time() < 1.2: pass\n\
        import subprocess\nsubprocess.run(['sleep', '0'])";
    let mut sandbox = with_modules(&[("burning", burning)], &[]);
    let mut start = start_script();
    start.limits.wall_milliseconds = 15_000;
    start.limits.cpu_seconds = Some(2);
    assert!(is_waiting(
        &sandbox.preload(preload(&start, &["burning", "resource"]))
    ));
    assert!(sandbox.next_within(Duration::from_millis(500)).is_none());
    let script = "import resource, time
print(resource.getrlimit(resource.RLIMIT_CPU), flush=True)
end = time.process_time() + 1.5
while time.process_time() < end: pass
print('within')
while True: pass";
    sandbox.run(start, script);
    let finished = sandbox.finish();
    let text = finished.text();
    // At least two more than it had used, and the part of a second that is rounded up.
    assert!(
        text == "(4, 5)\nwithin\n" || text == "(5, 6)\nwithin\n",
        "{text}"
    );
    let exited = finished.exited();
    assert_eq!(exited.ending, Ending::Signal(24));
    let used = exited.usage.cpu_microseconds;
    assert!((1_900_000..3_100_000).contains(&used), "{used}");
    assert!(exited.wall_microseconds >= 1_900_000);
}

#[test]
fn the_time_of_waiting_is_not_the_programs() {
    let mut start = start_script();
    start.limits.wall_milliseconds = 1000;
    let mut sandbox = Sandbox::waiting(&start, &["time"]);
    assert!(sandbox.next_within(Duration::from_millis(1200)).is_none());
    let begun = Instant::now();
    sandbox.run(
        start,
        "import time; print('begun', flush=True); time.sleep(100)",
    );
    let finished = sandbox.finish();
    assert!(begun.elapsed() >= Duration::from_millis(1000));
    assert_eq!(finished.text(), "begun\n");
    let exited = finished.exited();
    assert_eq!(exited.ended_by, EndedBy::Deadline);
    let wall = exited.wall_microseconds;
    assert!((1_000_000..2_000_000).contains(&wall), "{wall}");
}

#[test]
fn modules_count_their_time_from_the_start() {
    let start = start_script();
    let mut sandbox = Sandbox::waiting(&start, &["logging"]);
    assert!(sandbox.next_within(Duration::from_secs(3)).is_none());
    let script = "import logging
print(0 <= logging.makeLogRecord({}).relativeCreated < 2500)";
    sandbox.run(start, script);
    assert_eq!(sandbox.finish().text(), "True\n");
}

#[test]
fn a_waiting_interpreter_that_dies_is_not_handed_out() {
    let start = start_script();
    let mut sandbox = Sandbox::waiting(&start, &[]);
    signal(sandbox.programs()[0], "-KILL");
    assert_eq!(sandbox.exit_code(), Some(70));
    let words = sandbox.last_words();
    assert!(
        words.contains("the interpreter is lost: the interpreter ended by signal 9"),
        "{words}"
    );
}

#[test]
fn a_waiting_interpreter_that_is_found_dead_at_the_start_is_a_failure() {
    let start = start_script();
    let mut sandbox = Sandbox::waiting(&start, &[]);
    // The supervisor is to find both at once.
    let (supervisor, interpreter) = (sandbox.supervisor(), sandbox.programs()[0]);
    signal(supervisor, "-STOP");
    signal(interpreter, "-KILL");
    assert_ends(interpreter);
    sandbox.send(&ToSupervisor::Start(start));
    signal(supervisor, "-CONT");
    let failed = sandbox.failure();
    assert_eq!(
        (failed.step.as_str(), failed.errno),
        ("start", 3),
        "{failed:?}"
    );
    assert_eq!(sandbox.exit_code(), Some(0));
}

#[test]
fn a_data_set_that_is_mounted_later_is_seen() {
    let start = start_script();
    let mut sandbox = Sandbox::customized("data=/mnt/later", &[]);
    assert_eq!(sandbox.ready().dataset, None);
    sandbox.send(&ToSupervisor::Look);
    assert_eq!(sandbox.next(), FromSupervisor::Dataset(None));
    assert!(is_waiting(&sandbox.preload(preload(&start, &["json"]))));
    let target = sandbox.supervisor().to_string();
    let mount = "mkdir /mnt/later && mount -t tmpfs later /mnt/later && echo 7 > /mnt/later/x && \
        mount -o remount,ro /mnt/later";
    let entered = Command::new("nsenter")
        .args(["--mount", "--target", &target, "sh", "-c", mount])
        .status();
    assert!(entered.unwrap().success());
    sandbox.send(&ToSupervisor::Look);
    let FromSupervisor::Dataset(Some(dataset)) = sandbox.next() else {
        panic!("not seen")
    };
    assert!(dataset.read_only && dataset.readable);
    sandbox.run(start, "print(open('/mnt/later/x').read())");
    assert_eq!(sandbox.finish().text(), "7\n\n");
}

#[test]
fn messages_of_another_state_are_protocol_errors() {
    let start = start_script();
    let request = || ToSupervisor::Preload(preload(&start_script(), &["json"]));
    let mut sandbox = Sandbox::waiting(&start, &[]);
    sandbox.send(&request());
    assert_eq!(sandbox.exit_code(), Some(NEVER_STARTED));
    for message in [request(), ToSupervisor::Look] {
        let mut sandbox = Sandbox::running("sleep 100");
        sandbox.send(&message);
        assert_eq!(sandbox.exit_code(), Some(65));
    }
    let mut sandbox = with_modules(&[("hanging", "import time; time.sleep(1000)")], &[]);
    sandbox.send(&ToSupervisor::Preload(preload(&start, &["hanging"])));
    sandbox.send(&ToSupervisor::Start(start));
    assert_eq!(sandbox.exit_code(), Some(65));
    assert!(sandbox.last_words().contains("Start before Preloaded"));
}

#[test]
fn a_sandbox_that_nobody_talks_to_ends_before_the_start_only() {
    let mut sandbox = Sandbox::customized("", &["--preparing-seconds", "2"]);
    sandbox.ready();
    assert!(is_waiting(&sandbox.preload(preload(&start_script(), &[]))));
    // Every word counts anew.
    for _ in 0..3 {
        assert!(sandbox.next_within(Duration::from_millis(1200)).is_none());
        sandbox.send(&ToSupervisor::Look);
        assert!(matches!(sandbox.next(), FromSupervisor::Dataset(_)));
    }
    let begun = Instant::now();
    assert_eq!(sandbox.exit_code(), Some(NEVER_STARTED));
    let silence = begun.elapsed();
    assert!(silence > Duration::from_millis(1500) && silence < Duration::from_secs(4));

    let mut sandbox = Sandbox::customized("", &["--preparing-seconds", "1"]);
    sandbox.ready();
    sandbox.send(&ToSupervisor::Start(start("sleep 2; echo late")));
    sandbox.next();
    assert_eq!(sandbox.finish().text(), "late\n");
}

#[test]
fn randomness_is_the_interpreters_own() {
    let script = "import random, uuid, os, multiprocessing
print(random.random(), hash('text'), uuid.uuid4(), os.urandom(8), multiprocessing.current_process().authkey)";
    let run = || {
        let start = start_script();
        let mut sandbox = Sandbox::waiting(&start, &["random", "uuid", "multiprocessing"]);
        sandbox.run(start, script);
        sandbox.finish().text().to_owned()
    };
    let (first, second) = (run(), run());
    for (one, other) in first.split(' ').zip(second.split(' ')) {
        assert_ne!(one, other);
    }
}

#[test]
fn libraries_of_the_programs_own_are_found_as_in_a_plain_start() {
    let version = Command::new("/usr/bin/python3")
        .args([
            "-c",
            "import sys; print('python%d.%d' % sys.version_info[:2])",
        ])
        .output();
    let version = String::from_utf8(version.unwrap().stdout).unwrap();
    let place = format!(".home/.local/lib/{}/site-packages", version.trim());
    let start = start_script();
    let mut sandbox = Sandbox::waiting(&start, &["json"]);
    sandbox.write(&format!("{place}/mine.py"), b"VALUE = 5");
    sandbox.write(&format!("{place}/usercustomize.py"), b"print('customized')");
    sandbox.run(
        start,
        "import mine, sys; print(mine.VALUE, sys.path[-1] == mine.__file__)",
    );
    assert_eq!(sandbox.finish().text(), "customized\n5 False\n");
}
