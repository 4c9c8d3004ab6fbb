//! Supervisors that send and do not read: whoever waits for them is bounded all the same.

use bytes::Bytes;
use fumehood_protocol::message::{EndedBy, Ending, Output, StreamTotals, Usage};
use fumehood_protocol::{MAX_PAYLOAD_BYTES, encode};
use futures_util::{StreamExt as _, stream};
use tokio::io::DuplexStream;
use tokio_util::task::TaskTracker;

use super::*;
use crate::config::longest_ending;
use crate::orchestrator::handoff::Unkept;
use crate::orchestrator::handoff::tests::handoff;
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

async fn followed(session: &mut Session, cancel: &CancellationToken) -> Conversation {
    follow(session, Course::new(&limits()), cancel, &Nobody, &Unkept).await
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
    let talk = followed(&mut session, &cancel).await;
    assert!(matches!(talk.end, TalkEnd::LateAtDeadline(_)), "{talk:?}");
    assert_took(&talk, LIMIT + SUPERVISOR_GRACE);
    assert!(talk.stdout.total() > 0);
}

#[tokio::test(start_paused = true)]
async fn an_acknowledgement_that_nobody_reads_does_not_hold_up_a_cancellation() {
    let (mut session, _held) = deaf_supervisor();
    let cancel = cancelled_after(Duration::from_secs(1));
    let talk = followed(&mut session, &cancel).await;
    assert!(matches!(talk.end, TalkEnd::LateOnCancel), "{talk:?}");
    assert_took(&talk, Duration::from_secs(1) + SUPERVISOR_GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_that_nobody_reads_ends_with_the_grace() {
    let (mut session, _held) = deaf_and_silent_supervisor();
    let cancel = cancelled_after(Duration::from_secs(1));
    let talk = followed(&mut session, &cancel).await;
    assert!(matches!(talk.end, TalkEnd::LateOnCancel), "{talk:?}");
    assert_took(&talk, Duration::from_secs(1) + SUPERVISOR_GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_just_before_the_deadline_does_not_put_it_off() {
    for supervisor in [deaf_supervisor, deaf_and_silent_supervisor] {
        let (mut session, _held) = supervisor();
        let cancel = cancelled_after(LIMIT + SUPERVISOR_GRACE / 2);
        let talk = followed(&mut session, &cancel).await;
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
    let talk = followed(&mut session, &cancel).await;
    assert!(matches!(talk.end, TalkEnd::LateAtDeadline(_)), "{talk:?}");
    assert_took(&talk, REAPING_GRACE);
    let mut session = supervisor_that_says([killed(), killed()]);
    let talk = followed(&mut session, &cancel).await;
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
    let talk = followed(&mut session, &cancel).await;
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
    let outcome = start(&mut silent, &limits(), new_token()).await;
    assert!(
        matches!(outcome, Err(Trouble::SilentAtStart { .. })),
        "{outcome:?}"
    );
    let mut gone = Session::new(Channel {
        reader: Box::pin(stream::empty()),
        writer: Box::pin(tokio::io::sink()),
    });
    let outcome = start(&mut gone, &limits(), new_token()).await;
    assert!(
        matches!(outcome, Err(Trouble::LostAtStart(_))),
        "{outcome:?}"
    );
    let (mut deaf, _held) = deaf_and_silent_supervisor();
    let outcome = start(&mut deaf, &limits(), new_token()).await;
    assert!(
        matches!(outcome, Err(Trouble::LostAtStart(_))),
        "{outcome:?}"
    );
}

/// Notes what is put away, and how much had been sent to the supervisor by then.
#[derive(Debug, Default)]
struct Notes(std::sync::Mutex<Vec<SoFar>>);

#[async_trait::async_trait]
impl Keeper for Notes {
    async fn keep(&self, progress: SoFar) {
        self.0.lock().unwrap().push(progress);
    }
}

fn output(stream: Stream, byte: u8) -> (Duration, FromSupervisor) {
    let bytes = vec![byte; MAX_PAYLOAD_BYTES];
    let message = FromSupervisor::Output(Output { stream, bytes });
    (Duration::ZERO, message)
}

/// What is acknowledged is not sent again, so the next daemon must have it from this one.
#[tokio::test(start_paused = true)]
async fn what_is_acknowledged_was_put_away_before() {
    let says = [
        output(Stream::Stdout, b'a'),
        output(Stream::Stderr, b'b'),
        output(Stream::Stdout, b'c'),
        output(Stream::Stdout, b'd'),
        output(Stream::Stdout, b'e'),
    ];
    let mut session = supervisor_that_says(says);
    let (notes, cancel) = (Notes::default(), CancellationToken::new());
    let course = Course::new(&limits());
    follow(&mut session, course, &cancel, &Nobody, &notes).await;
    let notes = notes.0.into_inner().unwrap();
    let [put_away] = notes.as_slice() else {
        panic!("once for each MiB: {notes:?}");
    };
    assert_eq!(put_away.received, 4);
    assert_eq!(put_away.stdout.bytes(), [b'a'; 100]);
    assert_eq!(put_away.stderr.bytes(), [b'b'; 100]);
    assert_eq!(put_away.exited, None);
}

/// A program that prints little has nothing acknowledged: all of it is sent again.
#[tokio::test(start_paused = true)]
async fn little_output_is_neither_put_away_nor_acknowledged() {
    let mut session = supervisor_that_says([output(Stream::Stdout, b'a')]);
    let (notes, cancel) = (Notes::default(), CancellationToken::new());
    let course = Course::new(&limits());
    follow(&mut session, course, &cancel, &Nobody, &notes).await;
    assert_eq!(notes.0.into_inner().unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_is_taken_over_has_what_is_left_of_its_time() {
    let mut handoff = handoff();
    let mut early = Head::new(100);
    early.push(b"early ");
    handoff.progress.stdout = Kept::of(&early);
    handoff.started.up -= i64::try_from(LIMIT.as_micros() / 2).unwrap();
    let course = Course::resumed(&limits(), &handoff);
    let left = course.left;
    assert!(left <= LIMIT / 2, "{left:?}");
    let mut session = supervisor_that_says([output(Stream::Stdout, b'x')]);
    let cancel = CancellationToken::new();
    let talk = follow(&mut session, course, &cancel, &Nobody, &Unkept).await;
    assert!(matches!(talk.end, TalkEnd::LateAtDeadline(_)), "{talk:?}");
    assert!(talk.stdout.kept().starts_with(b"early xx"));
    assert_eq!(talk.started_at, handoff.starting_at);
    assert!(talk.wall >= LIMIT, "{:?}", talk.wall);
}

#[tokio::test(start_paused = true)]
async fn what_was_said_before_the_start_is_skipped_and_a_failed_start_is_no_start() {
    use fumehood_protocol::message::{Failed, Preloaded, Started};
    let now = Duration::ZERO;
    let preloaded = || {
        let preloaded = Preloaded {
            waiting: true,
            imported: 1,
            problems: Vec::new(),
            peak_memory_bytes: None,
        };
        (now, FromSupervisor::Preloaded(preloaded))
    };
    let dataset = || (now, FromSupervisor::Dataset(None));
    let started = (now, FromSupervisor::Started(Started { pid: 2 }));
    let mut session = supervisor_that_says([preloaded(), dataset(), started]);
    catch_up(&mut session).await.unwrap();
    let failed = Failed {
        step: "execve".to_owned(),
        errno: 2,
        message: "none".to_owned(),
    };
    let mut session = supervisor_that_says([preloaded(), (now, FromSupervisor::Failed(failed))]);
    let refused = catch_up(&mut session).await;
    assert!(matches!(refused, Err(Trouble::NotStarted { .. })));
    let mut silent = supervisor_that_says([dataset()]);
    let late = catch_up(&mut silent).await;
    assert!(matches!(late, Err(Trouble::SilentAtStart { .. })));
}
