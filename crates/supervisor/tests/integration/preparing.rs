//! Input files, and what is refused before the start.

use std::process::Command;

use fumehood_protocol::message::*;
use fumehood_protocol::{FromSupervisor, ToSupervisor};

use crate::harness::{NEVER_STARTED, Sandbox, start};

fn write(path: &str, bytes: &[u8]) -> ToSupervisor {
    ToSupervisor::Write(WriteFile {
        path: path.to_owned(),
        bytes: bytes.to_vec(),
    })
}

#[test]
fn input_files_are_written_whole_with_their_parents() {
    let mut sandbox = Sandbox::new();
    sandbox.ready();
    sandbox.send(&write("a/b/c.txt", b"first "));
    sandbox.send(&write("a/b/c.txt", b"second\n"));
    sandbox.send(&write("empty", b""));
    let big = vec![b'x'; 200_000];
    for _ in 0..20 {
        sandbox.send(&write("big", &big));
    }
    let script = "cat a/b/c.txt; stat -c '%n %a %s' a a/b/c.txt empty big out .home; ls -A; pwd";
    sandbox.send(&ToSupervisor::Start(start(script)));
    sandbox.next();
    let finished = sandbox.finish();
    assert_eq!(
        finished.text(),
        "first second\na 755 60\na/b/c.txt 644 13\nempty 644 0\nbig 644 4000000\nout 755 40\n\
         .home 755 40\n.cache\n.home\na\nbig\nempty\nout\n/mnt/work\n"
    );
}

#[test]
fn a_path_that_could_leave_the_workspace_is_refused_and_nothing_starts() {
    for path in [
        "",
        ".",
        "..",
        "../x",
        "/mnt/work/x",
        "a/../../x",
        "a//x",
        "a\0b",
        "a/",
        "./a",
    ] {
        let mut sandbox = Sandbox::new();
        sandbox.ready();
        sandbox.send(&write(path, b"x"));
        sandbox.send(&ToSupervisor::Start(start("echo ran")));
        let FromSupervisor::Failed(failed) = sandbox.next() else {
            panic!("{path:?} was taken")
        };
        assert_eq!(
            (failed.step.as_str(), failed.errno),
            ("write input file", 22),
            "{path:?}"
        );
        assert_eq!(sandbox.exit_code(), Some(0));
    }
}

#[test]
fn an_input_file_that_does_not_fit_is_a_failure_and_not_the_programs() {
    let mut sandbox = Sandbox::new();
    sandbox.auto_ack = false;
    sandbox.ready();
    let bytes = vec![1; 1 << 18];
    for _ in 0..300 {
        sandbox.send(&write("big", &bytes));
    }
    sandbox.send(&ToSupervisor::Start(start("echo ran")));
    let FromSupervisor::Failed(failed) = sandbox.next() else {
        panic!("75 MiB fit into 64")
    };
    assert_eq!(failed.errno, 28);
}

#[test]
fn the_facts_are_those_of_the_sandbox() {
    let ready = Sandbox::new().ready();
    assert_eq!(ready.protocol, fumehood_protocol::VERSION);
    assert_eq!((ready.uid, ready.gid), (50000, 50000));
    assert_eq!((ready.groups, ready.capabilities), (vec![], 0));
    assert_eq!(ready.no_new_privileges, Some(true));
    assert!(!ready.root_read_only);
    assert!(ready.network_interfaces.contains(&"lo".to_owned()));
    let dataset = ready.dataset.unwrap();
    assert!(dataset.read_only && dataset.readable);
    assert_eq!(ready.workspace.total_bytes, 64 << 20);
    assert_eq!(
        Sandbox::customized("data=/mnt/none", &[]).ready().dataset,
        None
    );
}

#[test]
fn malformed_input_ends_the_sandbox_at_once() {
    let mut sandbox = Sandbox::running("sleep 100");
    sandbox.send_raw(&[0xff; 64]);
    assert_eq!(sandbox.exit_code(), Some(65));
}

#[test]
fn a_second_start_is_a_protocol_error() {
    let mut sandbox = Sandbox::running("sleep 100");
    sandbox.send(&ToSupervisor::Start(start("true")));
    assert_eq!(sandbox.exit_code(), Some(65));
}

#[test]
fn an_input_that_ends_before_the_start_leaves_no_sandbox_behind() {
    let mut sandbox = Sandbox::new();
    sandbox.ready();
    sandbox.detach_input();
    assert_eq!(sandbox.exit_code(), Some(NEVER_STARTED));
}

#[test]
fn it_refuses_to_be_anything_but_pid_1() {
    let output = Command::new(env!("CARGO_BIN_EXE_fumehood-supervisor"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(70));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8(output.stderr).unwrap().contains("PID 1"));
}
