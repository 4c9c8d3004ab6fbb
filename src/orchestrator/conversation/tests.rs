//! Supervisors that send and do not read: whoever waits for them is bounded all the same.

use bytes::Bytes;
use fumehood_protocol::message::{EndedBy, Ending, Output, StreamTotals, Usage};
use fumehood_protocol::{MAX_PAYLOAD_BYTES, encode};
use futures_util::{StreamExt as _, stream};
use tokio::io::DuplexStream;
use tokio_util::task::TaskTracker;

use super::*;
use crate::config::longest_ending;
use crate::runs::service::STOP_GRACE;
use crate::sandbox::engine::Channel;

const LIMIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn observe(&self, _event: RunEvent) {}
}

fn limits() -> Limits {
    Limits {
        timeout_seconds: LIMIT.as_secs_f64(),
        memory_mb: 256,
        cpus: 1.0,
        max_processes: 64,
        workspace_mb: 32,
        shm_mb: 16,
        max_stdout_size_bytes: 100,
        max_stderr_size_bytes: 100,
        max_artifact_mb: 1,
        max_artifact_files: 10,
    }
}

/// A supervisor that sends output for as long as somebody listens and takes no more than a byte of
/// what is sent to it. It must be held for as long as the conversation goes on.
fn deaf_supervisor() -> (Session, DuplexStream) {
    let output = |sequence: u64| {
        let message = FromSupervisor::Output(Output {
            stream: Stream::Stdout,
            bytes: vec![b'x'; MAX_PAYLOAD_BYTES],
        });
        Bytes::from(encode(sequence, &message).unwrap())
    };
    let frames = stream::iter((1..).map(move |sequence| Ok(output(sequence))));
    let (writer, held) = tokio::io::duplex(1);
    let session = Session::new(Channel {
        reader: Box::pin(frames),
        writer: Box::pin(writer),
    });
    (session, held)
}

/// The same in silence: nothing has to be acknowledged.
fn deaf_and_silent_supervisor() -> (Session, DuplexStream) {
    let (writer, held) = tokio::io::duplex(1);
    let session = Session::new(Channel {
        reader: Box::pin(stream::pending()),
        writer: Box::pin(writer),
    });
    (session, held)
}

/// Cancels after a while that is measured by the paused clock.
fn cancelled_after(delay: Duration) -> CancellationToken {
    let cancel = CancellationToken::new();
    let cancelling = cancel.clone();
    TaskTracker::new().spawn(async move {
        tokio::time::sleep(delay).await;
        cancelling.cancel();
    });
    cancel
}

#[track_caller]
fn assert_took(talk: &Conversation, expected: Duration) {
    // The clock is paused: what it shows is what was waited for, to its own resolution.
    let slack = Duration::from_millis(5);
    assert!(
        talk.wall >= expected && talk.wall < expected + slack,
        "{:?} instead of {expected:?}",
        talk.wall
    );
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_nobody_reads_does_not_outlast_the_deadline() {
    let (mut session, _held) = deaf_supervisor();
    let cancel = CancellationToken::new();
    let talk = follow(&mut session, &limits(), &cancel, &Nobody).await;
    assert!(matches!(talk.end, TalkEnd::LateAtDeadline(_)), "{talk:?}");
    assert_took(&talk, LIMIT + SUPERVISOR_GRACE);
    assert!(talk.stdout.total() > 0);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_nobody_reads_does_not_hold_up_a_cancellation() {
    let (mut session, _held) = deaf_supervisor();
    let cancel = cancelled_after(Duration::from_secs(1));
    let talk = follow(&mut session, &limits(), &cancel, &Nobody).await;
    assert!(matches!(talk.end, TalkEnd::LateOnCancel), "{talk:?}");
    assert_took(&talk, Duration::from_secs(1) + SUPERVISOR_GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_that_nobody_reads_ends_with_the_grace() {
    let (mut session, _held) = deaf_and_silent_supervisor();
    let cancel = cancelled_after(Duration::from_secs(1));
    let talk = follow(&mut session, &limits(), &cancel, &Nobody).await;
    assert!(matches!(talk.end, TalkEnd::LateOnCancel), "{talk:?}");
    assert_took(&talk, Duration::from_secs(1) + SUPERVISOR_GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_just_before_the_deadline_does_not_put_it_off() {
    for supervisor in [deaf_supervisor, deaf_and_silent_supervisor] {
        let (mut session, _held) = supervisor();
        let cancel = cancelled_after(LIMIT + SUPERVISOR_GRACE / 2);
        let talk = follow(&mut session, &limits(), &cancel, &Nobody).await;
        assert!(matches!(talk.end, TalkEnd::LateAtDeadline(_)), "{talk:?}");
        assert_took(&talk, LIMIT + SUPERVISOR_GRACE);
    }
}

/// A supervisor that says these things, each so long after the one before, then nothing.
fn supervisor_that_says<const N: usize>(messages: [(Duration, FromSupervisor); N]) -> Session {
    let frames =
        stream::iter((1..).zip(messages)).then(|(sequence, (pause, message))| async move {
            tokio::time::sleep(pause).await;
            Ok(Bytes::from(encode(sequence, &message).unwrap()))
        });
    Session::new(Channel {
        reader: Box::pin(frames.chain(stream::pending())),
        writer: Box::pin(tokio::io::sink()),
    })
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_has_killed_everything_has_its_time_to_reap_and_no_more() {
    let killed = || (Duration::ZERO, FromSupervisor::Killed);
    let cancel = CancellationToken::new();
    let mut session = supervisor_that_says([killed()]);
    let talk = follow(&mut session, &limits(), &cancel, &Nobody).await;
    assert!(matches!(talk.end, TalkEnd::LateAtDeadline(_)), "{talk:?}");
    assert_took(&talk, REAPING_GRACE);
    let mut session = supervisor_that_says([killed(), killed()]);
    let talk = follow(&mut session, &limits(), &cancel, &Nobody).await;
    assert!(matches!(talk.end, TalkEnd::Lost(_)), "{talk:?}");
}

/// The program is over; only what it left behind is still taken apart when its time would be up.
#[tokio::test(start_paused = true)]
async fn a_program_that_ended_before_its_deadline_is_not_late_because_its_children_are() {
    let exited = Exited {
        ending: Ending::Code(0),
        ended_by: EndedBy::Program,
        wall_microseconds: 4_900_000,
        stdout: nothing_written(),
        stderr: nothing_written(),
        usage: Usage::default(),
        survivors: 0,
    };
    let mut session = supervisor_that_says([
        (LIMIT - SUPERVISOR_GRACE, FromSupervisor::Killed),
        (REAPING_LIMIT, FromSupervisor::Exited(Box::new(exited))),
    ]);
    let cancel = CancellationToken::new();
    let talk = follow(&mut session, &limits(), &cancel, &Nobody).await;
    assert!(matches!(talk.end, TalkEnd::Reported(_)), "{talk:?}");
}

fn nothing_written() -> StreamTotals {
    StreamTotals {
        bytes: 0,
        forwarded_bytes: 0,
        tail: Vec::new(),
    }
}

/// Or the result would be given up while it is on its way.
#[test]
fn a_run_that_is_told_to_end_has_longer_than_all_that_its_end_waits_for() {
    assert!(SUPERVISOR_GRACE + REAPING_GRACE + longest_ending() < STOP_GRACE);
}

/// Whoever gets these must not start the program in another sandbox.
#[tokio::test(start_paused = true)]
async fn a_start_without_an_answer_is_no_start_that_failed() {
    let mut silent = supervisor_that_says([]);
    let outcome = start(&mut silent, &limits()).await;
    assert!(
        matches!(outcome, Err(Trouble::SilentAtStart { .. })),
        "{outcome:?}"
    );
    let mut gone = Session::new(Channel {
        reader: Box::pin(stream::empty()),
        writer: Box::pin(tokio::io::sink()),
    });
    let outcome = start(&mut gone, &limits()).await;
    assert!(
        matches!(outcome, Err(Trouble::LostAtStart(_))),
        "{outcome:?}"
    );
    let (mut deaf, _held) = deaf_and_silent_supervisor();
    let outcome = start(&mut deaf, &limits()).await;
    assert!(
        matches!(outcome, Err(Trouble::LostAtStart(_))),
        "{outcome:?}"
    );
}
