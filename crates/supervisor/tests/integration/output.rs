//! What of the output is forwarded, kept and counted.

use std::time::Instant;

use fumehood_protocol::message::*;
use fumehood_protocol::{ToSupervisor, WINDOW_BYTES};

use crate::harness::{Sandbox, start};

#[test]
fn a_long_output_is_forwarded_to_its_limit_and_counted_to_its_end() {
    let mut start = start("head -c 300000000 /dev/zero; printf END; printf short >&2");
    start.output.stdout_head_bytes = 1000;
    start.output.tail_bytes = 5;
    let mut sandbox = Sandbox::started(start);
    let begun = Instant::now();
    let finished = sandbox.finish();
    let totals = &finished.exited().stdout;
    eprintln!("300 MB in {:?}", begun.elapsed());
    assert_eq!(finished.stdout, vec![0; 1000]);
    assert_eq!((totals.bytes, totals.forwarded_bytes), (300_000_003, 1000));
    assert_eq!(totals.tail, b"\0\0END");
    assert_eq!(finished.exited().stderr.tail, b"short");
    let peak = sandbox.peak_resident_bytes();
    assert!(peak < 16 << 20, "the supervisor needed {peak} bytes");
}

#[test]
fn output_of_exactly_the_limit_is_forwarded_whole() {
    let mut start = start("printf 0123456789");
    start.output.stdout_head_bytes = 10;
    start.output.tail_bytes = 0;
    let finished = Sandbox::started(start).finish();
    assert_eq!(finished.text(), "0123456789");
    assert_eq!(finished.exited().stdout.forwarded_bytes, 10);
    assert!(finished.exited().stdout.tail.is_empty());
}

#[test]
fn every_byte_of_a_long_head_arrives_in_order() {
    let mut start = start("seq 1 3000000");
    start.output.stdout_head_bytes = u64::MAX;
    let finished = Sandbox::started(start).finish();
    assert_eq!(
        finished.exited().stdout.forwarded_bytes,
        finished.stdout.len() as u64
    );
    let expected: String = (1..=3_000_000)
        .map(|number| format!("{number}\n"))
        .collect();
    assert!(
        finished.text() == expected,
        "{} bytes",
        finished.stdout.len()
    );
}

#[test]
fn the_last_bytes_of_a_program_that_ends_at_once_are_not_lost() {
    for _ in 0..20 {
        let finished =
            Sandbox::running("head -c 70000 /dev/zero; printf TAIL-1; printf TAIL-2 >&2").finish();
        assert_eq!(finished.stdout.len(), 70006);
        assert!(finished.stdout.ends_with(b"TAIL-1"));
        assert_eq!(finished.stderr, b"TAIL-2");
    }
}

#[test]
fn output_beyond_the_window_is_cut_when_nobody_acknowledges_and_the_program_goes_on() {
    let mut start = start("head -c 30000000 /dev/zero; printf END; exit 4");
    start.output.stdout_head_bytes = u64::MAX;
    let mut sandbox = Sandbox::new();
    sandbox.auto_ack = false;
    sandbox.ready();
    sandbox.send(&ToSupervisor::Start(start));
    sandbox.next();
    let finished = sandbox.finish();
    let totals = &finished.exited().stdout;
    assert_eq!(finished.exited().ending, Ending::Code(4));
    assert_eq!(totals.bytes, 30_000_003);
    assert_eq!(totals.forwarded_bytes, finished.stdout.len() as u64);
    assert!(finished.stdout.len() > WINDOW_BYTES / 2 && finished.stdout.len() < WINDOW_BYTES);
    assert!(totals.tail.ends_with(b"END"));
}
