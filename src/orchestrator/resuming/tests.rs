//! Attaching again, to a sandbox that does what a test has written down for it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use async_trait::async_trait;
use bytes::Bytes;
use fumehood_protocol::encode;
use fumehood_protocol::message::Started;
use fumehood_protocol::{FromSupervisor, ResumeToken};
use futures_util::stream;

use super::*;
use crate::sandbox::engine::Channel;
use crate::sandbox::slots::Slot;

pub(in crate::orchestrator) const TOKEN: ResumeToken = ResumeToken([7; ResumeToken::BYTES]);

/// What the engine says, in this order; then that it does not answer.
#[derive(Debug, Default)]
pub(in crate::orchestrator) struct Scripted {
    states: Mutex<VecDeque<Result<bool, EngineError>>>,
    channels: Mutex<VecDeque<Channel>>,
    /// What its supervisor says at its end.
    pub(in crate::orchestrator) never_started: bool,
}

impl Scripted {
    pub(in crate::orchestrator) fn new(
        states: impl IntoIterator<Item = Result<bool, EngineError>>,
        channels: impl IntoIterator<Item = Channel>,
    ) -> Self {
        Self {
            states: Mutex::new(states.into_iter().collect()),
            channels: Mutex::new(channels.into_iter().collect()),
            never_started: false,
        }
    }

    fn channels_left(&self) -> usize {
        self.channels.lock().unwrap().len()
    }
}

fn away() -> EngineError {
    EngineError::Resting {
        reason: "it is away".to_owned(),
    }
}

#[async_trait]
impl Sandbox for Scripted {
    fn keep(&mut self, _slot: Slot) {}

    async fn start(&mut self) -> Result<Channel, EngineError> {
        Err(away())
    }

    fn outlive(&mut self) {}

    async fn is_running(&self) -> Result<bool, EngineError> {
        let next = self.states.lock().unwrap().pop_front();
        next.unwrap_or_else(|| Err(away()))
    }

    async fn has_never_started(&self) -> Result<bool, EngineError> {
        Ok(self.never_started)
    }

    async fn attach(&mut self) -> Result<Channel, EngineError> {
        let next = self.channels.lock().unwrap().pop_front();
        next.ok_or_else(away)
    }

    async fn place_dataset(&mut self, _directory: OwnedFd) -> Result<(), EngineError> {
        Err(away())
    }

    async fn unthrottle(&self) -> Result<(), EngineError> {
        Ok(())
    }

    async fn kill(&self) -> Result<(), EngineError> {
        Ok(())
    }

    async fn memory_kill_seen(&self) -> Result<bool, EngineError> {
        Ok(false)
    }

    async fn destroy(self: Box<Self>) -> Result<(), EngineError> {
        Ok(())
    }

    async fn retire(self: Box<Self>) -> Result<(), EngineError> {
        Ok(())
    }

    fn removal_waits(&self) -> bool {
        false
    }

    fn quarantine(self: Box<Self>) {}
}

pub(in crate::orchestrator) fn channel(pieces: Vec<Vec<u8>>) -> Channel {
    let pieces = pieces.into_iter().map(|piece| Ok(Bytes::from(piece)));
    Channel {
        reader: Box::pin(stream::iter(pieces.collect::<Vec<_>>())),
        writer: Box::pin(tokio::io::sink()),
    }
}

/// A supervisor that goes on with message number 3.
pub(in crate::orchestrator) fn supervisor() -> Channel {
    let message = FromSupervisor::Started(Started { pid: 2 });
    channel(vec![TOKEN.0.to_vec(), encode(3, &message).unwrap()])
}

async fn attach(sandbox: &mut Scripted) -> Result<Session, SessionError> {
    let resume = Resume {
        token: TOKEN,
        received: 2,
        gap: Gap::None,
    };
    let until = Instant::now() + Duration::from_secs(60);
    resume.attach(sandbox, until).await
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_away_for_a_while_is_waited_for_and_the_talk_goes_on() {
    let paused = (0..9).map(|_| Err(EngineError::Paused));
    let states = (0..9).map(|_| Err(away())).chain(paused).chain([Ok(true)]);
    let mut sandbox = Scripted::new(states, [supervisor()]);
    let mut session = attach(&mut sandbox).await.unwrap();
    session.receive().await.unwrap();
    assert_eq!(session.received(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_stays_away_is_waited_for_until_then_and_no_longer() {
    let begun = Instant::now();
    let error = attach(&mut Scripted::default()).await.unwrap_err();
    assert!(matches!(
        error,
        SessionError::Engine(EngineError::Resting { .. })
    ));
    assert_eq!(begun.elapsed().as_secs(), 60);
}

/// Its streams can be opened all the same; then nobody would ever answer.
#[tokio::test(start_paused = true)]
async fn a_sandbox_in_which_nothing_runs_any_more_is_not_attached_to() {
    for (state, is_stopped) in [(Ok(false), true), (Err(EngineError::Vanished), false)] {
        let mut sandbox = Scripted::new([Err(away()), state], [supervisor()]);
        let error = attach(&mut sandbox).await.unwrap_err();
        assert_eq!(
            matches!(error, SessionError::Engine(EngineError::Stopped)),
            is_stopped,
            "{error:?}"
        );
        assert_eq!(sandbox.channels_left(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_does_not_go_on_is_given_up_after_a_few_attempts() {
    let running = || (0..9).map(|_| Ok(true));
    let silent = || channel(Vec::new());
    let channels = [silent(), silent(), silent(), supervisor()];
    let mut sandbox = Scripted::new(running(), channels);
    let error = attach(&mut sandbox).await.unwrap_err();
    assert!(matches!(error, SessionError::Ended), "{error:?}");
    assert_eq!(sandbox.channels_left(), 1);
    // One that is slow to come to itself is not.
    let mut sandbox = Scripted::new(running(), [silent(), silent(), supervisor()]);
    attach(&mut sandbox).await.unwrap();
}
