//! Streams that break and start anew.

use std::time::{Duration, Instant};

use fumehood_protocol::message::*;
use fumehood_protocol::resume::TokenScanner;
use fumehood_protocol::{FromSupervisor, ResumeToken, ToSupervisor, WINDOW_BYTES, encode};

use crate::harness::{NEVER_STARTED, Sandbox, TOKEN, limits, start};

/// Attaches like a daemon that has everything up to `after`, dropping what comes before the token.
fn attach(sandbox: &mut Sandbox, after: u64) {
    sandbox.send_raw(&TOKEN.0);
    sandbox.send(&ToSupervisor::Resume(after));
    let mut scanner = TokenScanner::new(TOKEN);
    loop {
        let bytes = sandbox
            .raw_within(Duration::from_secs(10))
            .expect("no token came");
        if let Some(end) = scanner.scan(&bytes) {
            sandbox.decode_from(&bytes[end..], after);
            return;
        }
    }
}

#[test]
fn a_stream_that_broke_within_frames_gives_the_same_bytes_again() {
    let mut start = start("seq 1 200000; sleep 0.5; seq 1 1000 >&2");
    start.output.stdout_head_bytes = u64::MAX;
    let mut sandbox = Sandbox::new();
    sandbox.auto_ack = false;
    sandbox.ready();
    sandbox.send(&ToSupervisor::Start(start));
    sandbox.next();
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    // Some pieces are read and thrown away, and the daemon's own last frame is half written.
    for broken in [1, 5, 11] {
        sandbox.raw_within(Duration::from_secs(5)).unwrap();
        let cancel = encode(0, &ToSupervisor::Cancel).unwrap();
        sandbox.send_raw(&cancel[..broken]);
        attach(&mut sandbox, 2);
    }
    let finished = sandbox.finish();
    assert!(finished.text() == expected);
    assert_eq!(
        finished.exited().stdout.forwarded_bytes,
        expected.len() as u64
    );
    assert_eq!(finished.exited().ended_by, EndedBy::Program);
    // Even after the end everything that was not acknowledged is there.
    attach(&mut sandbox, 2);
    assert!(sandbox.finish().text() == expected);
}

#[test]
fn the_artifacts_can_be_resumed_and_asked_for_twice() {
    let mut sandbox =
        Sandbox::running("head -c 3000000 /dev/urandom > out/r; sha256sum < out/r; echo x > out/s");
    let first = sandbox.finish();
    sandbox.auto_ack = false;
    let end = sandbox.last_sequence;
    sandbox.send(&ToSupervisor::Collect(limits()));
    sandbox.raw_within(Duration::from_secs(5)).unwrap();
    attach(&mut sandbox, end);
    let collected = sandbox.collect(limits());
    assert_eq!(collected.paths(), ["out/r", "out/s"]);
    // The reference is what a second, unbroken reading gives.
    attach(&mut sandbox, end);
    assert_eq!(
        sandbox.collected().content("out/r"),
        collected.content("out/r")
    );
    assert!(first.text().len() > 64);
    sandbox.send(&ToSupervisor::Ack(sandbox.last_sequence));
    assert_eq!(sandbox.exit_code(), Some(0));
}

/// A daemon that died while it gathered the artifacts has lost what it had acknowledged.
#[test]
fn the_artifacts_begin_anew_for_whoever_asks_for_that() {
    let mut sandbox =
        Sandbox::running("head -c 20000000 /dev/zero > out/r; echo x > out/s; echo y > t");
    sandbox.finish();
    sandbox.send(&ToSupervisor::Collect(limits()));
    for _ in 0..20 {
        sandbox.next();
    }
    let taken = sandbox.last_sequence;
    attach(&mut sandbox, taken);
    // One that died, too, and one that gets to its end.
    for mark in [1, 2] {
        let limits = limits();
        sandbox.send(&ToSupervisor::CollectAnew(CollectAnew { limits, mark }));
    }
    while sandbox.next() != FromSupervisor::Anew(1) {}
    while sandbox.next() != FromSupervisor::Anew(2) {}
    let collected = sandbox.collected();
    assert_eq!(collected.paths(), ["out/r", "out/s", "t"]);
    assert_eq!(collected.content("out/r").len(), 20_000_000);
    assert_eq!(sandbox.exit_code(), Some(0));
}

#[test]
fn no_more_than_the_window_is_sent_without_acknowledgement() {
    let mut sandbox = Sandbox::running("head -c 30000000 /dev/urandom > out/r");
    sandbox.finish();
    sandbox.auto_ack = false;
    sandbox.send(&ToSupervisor::Collect(limits()));
    let mut stream = Vec::new();
    while let Some(bytes) = sandbox.raw_within(Duration::from_millis(700)) {
        stream.extend(bytes);
    }
    assert!(
        stream.len() <= WINDOW_BYTES,
        "{} bytes without acknowledgement",
        stream.len()
    );
    assert!(stream.len() > WINDOW_BYTES / 2);
    let last = sandbox.last_sequence;
    sandbox.decode_from(&stream, last);
    sandbox.auto_ack = true;
    let collected = sandbox.collected();
    assert_eq!(collected.content("out/r").len(), 30_000_000);
    assert_eq!(collected.done.unwrap().bytes, 30_000_000);
}

#[test]
fn a_program_whose_daemon_is_gone_still_ends_at_its_deadline() {
    let mut start = start("while :; do echo line; done");
    start.limits.wall_milliseconds = 1500;
    start.hold_milliseconds = 500;
    let begun = Instant::now();
    let mut sandbox = Sandbox::started(start);
    sandbox.auto_ack = false;
    sandbox.detach_input();
    assert_eq!(sandbox.exit_code(), Some(75));
    assert!(begun.elapsed() < Duration::from_secs(6));
}

#[test]
fn a_wrong_token_is_malformed_input() {
    let mut sandbox = Sandbox::running("sleep 100");
    sandbox.send_raw(&ResumeToken([0xAA; 16]).0);
    assert_eq!(sandbox.exit_code(), Some(65));
}

/// The next daemon, after one that died before it could tell to start: it has to see that nothing ran.
#[test]
fn a_resumption_before_the_start_says_that_nothing_was_started() {
    let resume = encode(0, &ToSupervisor::Resume(0)).unwrap();
    for repeated in [
        [&TOKEN.0[..], &resume].concat(),
        resume.clone(),
        vec![0xff; 16],
    ] {
        let mut sandbox = Sandbox::new();
        sandbox.ready();
        sandbox.send_raw(&repeated);
        assert_eq!(sandbox.exit_code(), Some(NEVER_STARTED));
        assert!(sandbox.last_words().contains("no program was started"));
    }
}

/// Whatever came of it: from `Start` on nobody may take it for one that ran nothing.
#[test]
fn one_that_was_told_to_start_never_says_that_nothing_was_started() {
    for arguments in [&["no-such-program"][..], &["sleep", "100"]] {
        for rest in [
            &[0xff; 16][..],
            &encode(0, &ToSupervisor::Resume(9)).unwrap(),
        ] {
            let mut start = start("");
            start.arguments = arguments.iter().map(ToString::to_string).collect();
            let mut sandbox = Sandbox::new();
            sandbox.auto_ack = false;
            let told = encode(0, &ToSupervisor::Start(start)).unwrap();
            sandbox.send_raw(&[&told[..], rest].concat());
            assert_eq!(sandbox.exit_code(), Some(65), "{arguments:?}");
        }
    }
    // A request to end that crosses the failure of a start.
    let mut start = start("");
    start.arguments = vec!["no-such-program".to_owned()];
    let mut sandbox = Sandbox::new();
    sandbox.auto_ack = false;
    sandbox.send(&ToSupervisor::Start(start));
    sandbox.send(&ToSupervisor::Cancel);
    assert_eq!(sandbox.exit_code(), Some(0));
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_a_protocol_error() {
    let mut sandbox = Sandbox::running("sleep 100");
    sandbox.send(&ToSupervisor::Ack(1000));
    assert!(sandbox.exit_code() == Some(65));
    assert!(!matches!(
        sandbox.next_within(Duration::ZERO),
        Some(FromSupervisor::Exited(_))
    ));
}
