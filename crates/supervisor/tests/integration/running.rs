//! How programs start and end.

use std::time::{Duration, Instant};

use fumehood_protocol::message::*;
use fumehood_protocol::{FromSupervisor, ToSupervisor};

use crate::harness::{NEVER_STARTED, Sandbox, limits, start};

#[test]
fn a_program_prints_and_its_exit_code_is_told() {
    let mut sandbox = Sandbox::running("echo to out; echo to err >&2; exit 7");
    let finished = sandbox.finish();
    assert_eq!(finished.text(), "to out\n");
    assert_eq!(finished.stderr, b"to err\n");
    let exited = finished.exited();
    assert_eq!(exited.ending, Ending::Code(7));
    assert_eq!(exited.ended_by, EndedBy::Program);
    assert_eq!((exited.stdout.bytes, exited.stdout.forwarded_bytes), (7, 7));
    assert_eq!(exited.stderr.tail, b"to err\n");
    assert_eq!(exited.survivors, 0);
    assert!(exited.wall_microseconds > 0 && exited.wall_microseconds < 5_000_000);
}

#[test]
fn a_signal_is_told_as_a_signal() {
    let finished = Sandbox::running("kill -SEGV $$").finish();
    assert_eq!(finished.exited().ending, Ending::Signal(11));
    assert_eq!(finished.exited().ended_by, EndedBy::Program);
}

#[test]
fn a_program_that_kills_itself_is_not_taken_for_one_that_was_killed() {
    let finished = Sandbox::running("kill -KILL $$").finish();
    assert_eq!(finished.exited().ending, Ending::Signal(9));
    assert_eq!(finished.exited().ended_by, EndedBy::Program);
}

#[test]
fn a_detached_program_that_ignores_signals_is_gone_at_the_deadline() {
    let script = "trap '' TERM INT HUP; echo begun
        (setsid sh -c \"trap '' TERM INT HUP; (while :; do date +%N > /mnt/work/out/beat; done) &
            while :; do sleep 1; done\" &) &
        while :; do sleep 1; done";
    let mut start = start(script);
    start.limits.wall_milliseconds = 700;
    let begun = Instant::now();
    let mut sandbox = Sandbox::started(start);
    let finished = sandbox.finish();
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(finished.text(), "begun\n");
    let exited = finished.exited();
    assert_eq!(
        (exited.ending, exited.ended_by),
        (Ending::Signal(9), EndedBy::Deadline)
    );
    assert!(
        exited.wall_microseconds >= 700_000,
        "{}",
        exited.wall_microseconds
    );
    assert!(
        exited.wall_microseconds < 1_500_000,
        "{}",
        exited.wall_microseconds
    );
    assert_eq!(exited.survivors, 0);
    // Nothing beats any more: the supervisor could not end otherwise.
    sandbox.collect(limits());
    assert_eq!(sandbox.exit_code(), Some(0));
}

#[test]
fn an_orphan_that_holds_the_output_open_does_not_delay_the_end() {
    let begun = Instant::now();
    let finished = Sandbox::running("setsid sh -c 'sleep 100; echo late' & echo main").finish();
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(finished.text(), "main\n");
    assert_eq!(finished.exited().ending, Ending::Code(0));
    assert_eq!(finished.exited().ended_by, EndedBy::Program);
}

#[test]
fn a_flood_on_both_streams_does_not_hold_up_the_deadline() {
    let mut start = start("yes out & yes err >&2");
    start.limits.wall_milliseconds = 1000;
    let finished = Sandbox::started(start).finish();
    let exited = finished.exited();
    assert_eq!(exited.ended_by, EndedBy::Deadline);
    assert!(
        exited.wall_microseconds < 2_000_000,
        "{}",
        exited.wall_microseconds
    );
    assert!(exited.stdout.bytes > 100_000 && exited.stderr.bytes > 100_000);
}

#[test]
fn a_fork_storm_does_not_hold_up_the_deadline() {
    let mut start = start("while :; do (true &) ; done & while :; do (true &) ; done");
    start.limits.wall_milliseconds = 1000;
    let finished = Sandbox::started(start).finish();
    let exited = finished.exited();
    assert_eq!((exited.ended_by, exited.survivors), (EndedBy::Deadline, 0));
    assert!(
        exited.wall_microseconds < 2_500_000,
        "{}",
        exited.wall_microseconds
    );
}

#[test]
fn a_program_that_ends_just_before_its_deadline_is_not_misreported() {
    for _ in 0..10 {
        let mut start = start("sleep 0.3; exit 3");
        start.limits.wall_milliseconds = 301;
        let finished = Sandbox::started(start).finish();
        match finished.exited().ending {
            Ending::Code(3) => assert_eq!(finished.exited().ended_by, EndedBy::Program),
            ending => assert_eq!(
                (ending, finished.exited().ended_by),
                (Ending::Signal(9), EndedBy::Deadline)
            ),
        }
    }
}

#[test]
fn a_cancelled_program_keeps_what_it_printed() {
    let mut sandbox = Sandbox::running("echo first; sleep 100");
    let FromSupervisor::Output(output) = sandbox.next() else {
        panic!("no output")
    };
    assert_eq!(output.bytes, b"first\n");
    sandbox.send(&ToSupervisor::Cancel);
    let finished = sandbox.finish();
    let exited = finished.exited();
    assert_eq!(
        (exited.ending, exited.ended_by),
        (Ending::Signal(9), EndedBy::Cancel)
    );
    assert_eq!(exited.stdout.bytes, 6);
}

#[test]
fn cancel_before_the_start_ends_the_sandbox() {
    let mut sandbox = Sandbox::new();
    sandbox.ready();
    sandbox.send(&ToSupervisor::Cancel);
    assert_eq!(sandbox.exit_code(), Some(NEVER_STARTED));
}

#[test]
fn a_program_that_cannot_be_executed_is_reported_as_failed() {
    let failed = |program: &str| {
        let mut start = start("");
        start.arguments = vec![program.to_owned()];
        let mut sandbox = Sandbox::new();
        sandbox.ready();
        sandbox.send(&ToSupervisor::Start(start));
        let FromSupervisor::Failed(failed) = sandbox.next() else {
            panic!("not failed")
        };
        assert_eq!(
            sandbox.exit_code(),
            Some(0),
            "it leaves when that was acknowledged"
        );
        (failed.step, failed.errno)
    };
    assert_eq!(failed("no-such-program"), ("execve".to_owned(), 2));
    assert_eq!(failed("/mnt/data/table.csv"), ("execve".to_owned(), 13));
    assert_eq!(failed(""), ("start".to_owned(), 22));
}

#[test]
fn what_the_program_used_is_told() {
    let script = "head -c 3000000 /dev/zero > /mnt/work/big; rm /mnt/work/big
        i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; sleep 0.1
        head -c 5000000 /dev/zero > /tmp/big; sleep 0.2; rm /tmp/big";
    let finished = Sandbox::running(script).finish();
    let usage = finished.exited().usage;
    assert!(usage.cpu_microseconds > 10_000, "{usage:?}");
    assert!(usage.peak_resident_bytes > 500_000, "{usage:?}");
    let temporary = usage.temporary_fullest.unwrap();
    assert_eq!(temporary.total_bytes, 16 << 20);
    assert!(temporary.free_bytes <= (16 << 20) - 5_000_000, "{usage:?}");
    assert_eq!(usage.workspace_fullest.unwrap().total_bytes, 64 << 20);
}

#[test]
fn the_result_is_held_for_its_time_and_then_given_up() {
    let mut start = start("echo done");
    start.hold_milliseconds = 600;
    let mut sandbox = Sandbox::started(start);
    sandbox.finish();
    let begun = Instant::now();
    assert_eq!(sandbox.exit_code(), Some(75));
    assert!(begun.elapsed() > Duration::from_millis(400));
    assert!(begun.elapsed() < Duration::from_secs(3));
}

#[test]
fn it_leaves_when_the_last_message_was_acknowledged() {
    let mut sandbox = Sandbox::running("true");
    sandbox.finish();
    sandbox.auto_ack = false;
    sandbox.collect(limits());
    assert!(sandbox.next_within(Duration::from_millis(100)).is_none());
    assert!(sandbox.is_running());
    sandbox.send(&ToSupervisor::Ack(sandbox.last_sequence));
    assert_eq!(sandbox.exit_code(), Some(0));
}
