//! A stream that breaks, to a sandbox that does what a test has written down for it.

use std::sync::{Arc, Mutex};

use fumehood_protocol::FromSupervisor;
use fumehood_protocol::encode;
use fumehood_protocol::message::{Output, Started, Stream};

use super::*;
use crate::artifacts::OutputRoot;
use crate::config::Execution;
use crate::ids::ExecutionId;
use crate::orchestrator::resuming::tests::{Scripted, TOKEN, channel, supervisor};
use crate::sandbox::EngineError;

/// Notes what is put away.
#[derive(Debug, Clone, Default)]
struct Notes(Arc<Mutex<Vec<SoFar>>>);

#[async_trait::async_trait]
impl Keeper for Notes {
    async fn keep(&self, progress: SoFar) {
        self.0.lock().unwrap().push(progress);
    }
}

/// A program that has printed something when its stream breaks.
struct Broken {
    followed: Followed,
    talk: Conversation,
    notes: Notes,
    _outputs: tempfile::TempDir,
}

impl Broken {
    async fn with(sandbox: Scripted) -> Self {
        let outputs = tempfile::tempdir().unwrap();
        let root = OutputRoot::new(outputs.path());
        let staging = root.stage(&ExecutionId::random()).unwrap();
        let started = FromSupervisor::Started(Started { pid: 2 });
        let output = FromSupervisor::Output(Output {
            stream: Stream::Stdout,
            bytes: b"early".to_vec(),
        });
        let frames = [encode(1, &started).unwrap(), encode(2, &output).unwrap()];
        let mut session = Session::new(channel(frames.to_vec()));
        session.receive().await.unwrap();
        session.receive().await.unwrap();
        let notes = Notes::default();
        let followed = Followed {
            sandbox: Box::new(sandbox),
            session,
            token: TOKEN,
            staging: Some(staging),
            keeper: Box::new(notes.clone()),
            first: First::Certainly,
            notes: Vec::new(),
        };
        let mut course = Course::new(&Execution::default().default_limits());
        course.stdout.push(b"early");
        Self {
            followed,
            talk: course.ended(TalkEnd::Lost(SessionError::Ended)),
            notes,
            _outputs: outputs,
        }
    }

    async fn attach_again(&mut self, bound: Duration, cancel: &CancellationToken) -> Again {
        let late_from = Instant::now() + bound;
        let Self { followed, talk, .. } = self;
        followed.attach_again(talk, late_from, cancel).await
    }
}

#[test]
fn only_a_stream_that_broke_is_told_of() {
    assert_eq!(Breaks::default().note(), None);
    let away = Duration::from_millis(2345);
    let note = |count| Breaks { count, away }.note().unwrap();
    assert!(note(1).contains("broke once while"), "{}", note(1));
    assert!(note(3).contains("broke 3 times while"), "{}", note(3));
    assert!(note(3).contains("away for 2.3 s"), "{}", note(3));
}

#[tokio::test(start_paused = true)]
async fn a_talk_goes_on_behind_the_last_message_that_was_heard() {
    let states = [Err(EngineError::Stream("gone".into())), Ok(true)];
    let mut broken = Broken::with(Scripted::new(states, [supervisor()])).await;
    let cancel = CancellationToken::new();
    let again = broken.attach_again(Duration::from_secs(60), &cancel).await;
    let Again::Attached(mut session) = again else {
        panic!("it was not attached to again");
    };
    session.receive().await.unwrap();
    assert_eq!(session.received(), 3);
}

/// Whoever attaches after a message acknowledges it, and what is acknowledged is not sent again, to the
/// next daemon neither.
#[tokio::test(start_paused = true)]
async fn what_was_heard_is_put_away_before_anything_is_asked_for_again() {
    // Found out at the first question.
    let mut broken = Broken::with(Scripted::new([Ok(false)], [])).await;
    let cancel = CancellationToken::new();
    let again = broken.attach_again(Duration::from_secs(60), &cancel).await;
    assert!(matches!(again, Again::Lost));
    let notes = broken.notes.0.lock().unwrap();
    let [put_away] = notes.as_slice() else {
        panic!("once: {notes:?}");
    };
    assert_eq!(put_away.received, 2);
    assert_eq!(put_away.stdout.bytes(), b"early");
    assert_eq!(put_away.exited, None);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_waited_for_once_the_time_is_over_or_the_program_is_to_end() {
    let cancel = CancellationToken::new();
    let begun = Instant::now();
    let mut broken = Broken::with(Scripted::default()).await;
    let again = broken.attach_again(Duration::from_secs(5), &cancel).await;
    assert!(matches!(again, Again::Late));
    assert_eq!(begun.elapsed().as_secs(), 5);
    let cancelling = async {
        sleep(Duration::from_secs(3)).await;
        cancel.cancel();
    };
    let waiting = broken.attach_again(Duration::from_secs(60), &cancel);
    let (again, ()) = tokio::join!(waiting, cancelling);
    assert!(matches!(again, Again::Cancelled));
    assert_eq!(begun.elapsed().as_secs(), 8);
}
