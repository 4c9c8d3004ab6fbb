//! What a program gets, and what it does not get at.

use fumehood_protocol::message::*;

use crate::harness::{Sandbox, start};

#[test]
fn the_environment_is_exactly_what_was_asked_for() {
    let mut start = start("");
    start.arguments = vec!["env".to_owned()];
    start
        .environment
        .push(("ODD".to_owned(), "a=b\nc".to_owned()));
    assert_eq!(
        Sandbox::started(start).finish().text(),
        "PATH=/usr/bin:/bin\nODD=a=b\nc\n"
    );
}

#[test]
fn arguments_arrive_unchanged() {
    let mut start = start("");
    start.arguments = ["/usr/bin/printf", "%s|", "a b", "$HOME", "", "é\n"]
        .map(String::from)
        .into();
    assert_eq!(Sandbox::started(start).finish().text(), "a b|$HOME||é\n|");
}

#[test]
fn limits_are_in_effect() {
    let mut start = start("ulimit -c; ulimit -n; ulimit -f; ulimit -t; ulimit -H -t; umask");
    start.limits.open_files = 77;
    start.limits.file_size_bytes = 512 * 1000;
    start.limits.cpu_seconds = Some(9);
    assert_eq!(
        Sandbox::started(start).finish().text(),
        "0\n77\n1000\n9\n10\n0022\n"
    );
}

#[test]
fn a_file_above_the_limit_ends_the_program_by_its_signal() {
    let mut start = start("exec head -c 5000 /dev/zero > big");
    start.limits.file_size_bytes = 4096;
    assert_eq!(
        Sandbox::started(start).finish().exited().ending,
        Ending::Signal(25)
    );
}

#[test]
fn cpu_time_has_a_limit_of_its_own() {
    let mut start = start("while :; do :; done");
    start.limits.cpu_seconds = Some(1);
    let finished = Sandbox::started(start).finish();
    assert_eq!(finished.exited().ending, Ending::Signal(24));
    assert_eq!(finished.exited().ended_by, EndedBy::Program);
    assert!(finished.exited().usage.cpu_microseconds > 900_000);
}

#[test]
fn signals_are_as_a_program_expects_them_and_it_dies_before_its_supervisor() {
    let script =
        "cat /proc/self/status | grep -E '^Sig(Blk|Ign|Cgt)'; cat /proc/self/oom_score_adj";
    let expected = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n\
        SigCgt:\t0000000000000000\n1000\n";
    assert_eq!(Sandbox::running(script).finish().text(), expected);
}

#[test]
fn the_program_cannot_reach_its_supervisor() {
    let script = "ls -l /proc/1/fd && echo reached
        cat /proc/1/environ && echo reached
        cat /proc/1/mem && echo reached
        echo forged > /proc/1/fd/1 && echo reached
        echo 1000 > /proc/1/oom_score_adj && echo reached
        kill -KILL 1; kill -STOP 1; kill -TERM 1; kill -CHLD 1
        ls /proc/self/fd | wc -l; cat; echo end";
    let finished = Sandbox::running(script).finish();
    // 0, 1, 2 and the directory that ls has open itself; an empty standard input.
    assert_eq!(finished.text(), "4\nend\n");
    assert_eq!(finished.exited().ending, Ending::Code(0));
}
