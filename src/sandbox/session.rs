//! The daemon's end of the conversation with one supervisor.
//!
//! Turns bytes into messages and back, checks that they arrive in order, acknowledges them and
//! bounds every wait. What a message means is for whoever holds the session.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use fumehood_protocol::message::WriteFile;
use fumehood_protocol::resume::TokenScanner;
use fumehood_protocol::{
    Decoder, Frame, FrameError, FromSupervisor, MAX_PAYLOAD_BYTES, ResumeToken, ToSupervisor,
    encode,
};

use super::engine::{Channel, EngineError};

/// How long the supervisor may take to read what is sent to it.
const SEND_BOUND: Duration = Duration::from_secs(30);

/// Bytes received between two acknowledgements: a small part of what the supervisor keeps.
const ACKNOWLEDGE_EVERY_BYTES: usize = fumehood_protocol::WINDOW_BYTES / 8;

/// A conversation.
#[derive(Debug)]
pub struct Session {
    channel: Channel,
    decoder: Decoder,
    received: u64,
    unacknowledged_bytes: usize,
    gap: Gap,
}

/// Whether messages may be missing where a conversation is gone on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gap {
    /// None: what an earlier daemon acknowledged it had put away.
    None,
    /// Some: they were about artifacts, which will be asked for anew.
    Allowed,
}

/// A conversation that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The stream is over.
    #[error("the supervisor's stream ended")]
    Ended,
    /// What arrived is no message.
    #[error("the sandbox sent something that is no message")]
    Frame(#[from] FrameError),
    /// A message is missing or repeated.
    #[error("the sandbox sent message {found} instead of {expected}")]
    OutOfOrder {
        /// Which would have been next.
        expected: u64,
        /// Which came.
        found: u64,
    },
    /// A message that has no place where it came.
    #[error("the sandbox sent {0} where it has no place")]
    OutOfPlace(&'static str),
    /// The supervisor does not read.
    #[error("the supervisor did not take a message within {} s", SEND_BOUND.as_secs())]
    Stuck,
    /// Writing failed.
    #[error("a message could not be sent to the supervisor")]
    Write(#[source] std::io::Error),
    /// The engine's stream failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The stream broke, and there was no other before nobody waits for one any more.
    #[error("the container engine went away, and was not back when the program's time was over")]
    Away,
}

impl SessionError {
    /// Whether what came over the stream cannot have come from a supervisor.
    #[must_use]
    pub fn is_senseless(&self) -> bool {
        match self {
            Self::Frame(_) | Self::OutOfOrder { .. } | Self::OutOfPlace(_) => true,
            Self::Ended | Self::Stuck | Self::Write(_) | Self::Engine(_) | Self::Away => false,
        }
    }

    /// Whether the stream broke, as opposed to what came over it: whoever was at its other end may be
    /// there, and another stream lead to it.
    #[must_use]
    pub fn is_break(&self) -> bool {
        match self {
            Self::Ended | Self::Write(_) | Self::Engine(_) => true,
            Self::Frame(_)
            | Self::OutOfOrder { .. }
            | Self::OutOfPlace(_)
            | Self::Stuck
            | Self::Away => false,
        }
    }
}

impl Session {
    /// A conversation over a channel on which nothing was said yet.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        Self {
            channel,
            decoder: Decoder::default(),
            received: 0,
            unacknowledged_bytes: 0,
            gap: Gap::None,
        }
    }

    /// Goes on with a conversation that an earlier daemon had: everything after message number
    /// `received` is asked for again. Waits without a bound, which the caller has to set.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; whoever is at the other end is not the supervisor of this conversation, or
    /// does not go on with it.
    pub async fn resume(
        channel: Channel,
        token: ResumeToken,
        received: u64,
        gap: Gap,
    ) -> Result<Self, SessionError> {
        let mut session = Self {
            received,
            gap,
            ..Self::new(channel)
        };
        session.write(&token.0).await?;
        session.send(&ToSupervisor::Resume(received)).await?;
        let mut scanner = TokenScanner::new(token);
        loop {
            let next = session.channel.reader.next().await;
            let bytes = next.ok_or(SessionError::Ended)??;
            if let Some(end) = scanner.scan(&bytes) {
                session.decoder.push(&bytes[end..]);
                return Ok(session);
            }
        }
    }

    /// The number of the last message that was received.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Sends a message. Not cancellation safe.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; the conversation is over.
    pub async fn send(&mut self, message: &ToSupervisor) -> Result<(), SessionError> {
        let frame = encode(0, message)?;
        self.write(&frame).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let write = async {
            self.channel.writer.write_all(bytes).await?;
            self.channel.writer.flush().await
        };
        match timeout(SEND_BOUND, write).await {
            Ok(outcome) => outcome.map_err(SessionError::Write),
            Err(_) => Err(SessionError::Stuck),
        }
    }

    /// Writes a file of the workspace, in pieces; before the program is started only.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; the conversation is over.
    pub async fn write_file(&mut self, path: &str, bytes: &[u8]) -> Result<(), SessionError> {
        // An empty file is one message without bytes.
        let mut rest = bytes;
        loop {
            let (chunk, tail) = rest.split_at(rest.len().min(MAX_PAYLOAD_BYTES));
            let message = WriteFile {
                path: path.to_owned(),
                bytes: chunk.to_vec(),
            };
            self.send(&ToSupervisor::Write(message)).await?;
            rest = tail;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// The next message. Cancellation safe; waits without a bound, which the caller has to set.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; the conversation is over.
    pub async fn receive(&mut self) -> Result<FromSupervisor, SessionError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return self.accept(&frame);
            }
            let bytes = self
                .channel
                .reader
                .next()
                .await
                .ok_or(SessionError::Ended)??;
            self.decoder.push(&bytes);
        }
    }

    /// Acknowledges what was received, if it is time to. Call after each message was dealt with.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; the conversation is over.
    pub async fn acknowledge(&mut self) -> Result<(), SessionError> {
        if !self.has_to_acknowledge() {
            return Ok(());
        }
        self.acknowledge_all().await
    }

    /// Whether it is time to. Whoever wants to lose nothing with its own death puts away what it has
    /// received before: what is acknowledged is not sent again.
    #[must_use]
    pub fn has_to_acknowledge(&self) -> bool {
        self.unacknowledged_bytes >= ACKNOWLEDGE_EVERY_BYTES
    }

    /// Acknowledges everything that was received.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; the conversation is over.
    pub async fn acknowledge_all(&mut self) -> Result<(), SessionError> {
        self.unacknowledged_bytes = 0;
        self.send(&ToSupervisor::Ack(self.received)).await
    }

    fn accept(&mut self, frame: &Frame) -> Result<FromSupervisor, SessionError> {
        let expected = self.received + 1;
        let may_skip = self.gap == Gap::Allowed && frame.sequence > expected;
        if frame.sequence != expected && !may_skip {
            return Err(SessionError::OutOfOrder {
                expected,
                found: frame.sequence,
            });
        }
        self.gap = Gap::None;
        self.received = frame.sequence;
        self.unacknowledged_bytes += frame.body.len();
        Ok(frame.message()?)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use fumehood_protocol::message::{Output, Started, Stream};
    use futures_util::stream;

    use super::*;

    fn session(pieces: Vec<Vec<u8>>) -> Session {
        let pieces = pieces.into_iter().map(|piece| Ok(Bytes::from(piece)));
        Session::new(Channel {
            reader: Box::pin(stream::iter(pieces.collect::<Vec<_>>())),
            writer: Box::pin(tokio::io::sink()),
        })
    }

    fn started() -> FromSupervisor {
        FromSupervisor::Started(Started { pid: 2 })
    }

    #[tokio::test]
    async fn messages_arrive_in_order_whatever_their_pieces() {
        let output = FromSupervisor::Output(Output {
            stream: Stream::Stdout,
            bytes: vec![7; 5000],
        });
        let mut wire = encode(1, &started()).unwrap();
        wire.extend(encode(2, &output).unwrap());
        let mut session = session(wire.chunks(11).map(<[u8]>::to_vec).collect());
        assert_eq!(session.receive().await.unwrap(), started());
        assert_eq!(session.receive().await.unwrap(), output);
        assert!(matches!(session.receive().await, Err(SessionError::Ended)));
    }

    #[tokio::test]
    async fn a_missing_or_repeated_message_ends_the_conversation() {
        for sequence in [0, 2] {
            let mut session = session(vec![encode(sequence, &started()).unwrap()]);
            assert!(matches!(
                session.receive().await,
                Err(SessionError::OutOfOrder { .. })
            ));
        }
    }

    const TOKEN: ResumeToken = ResumeToken([7; ResumeToken::BYTES]);

    /// What is sent to a daemon that attaches again: the rest of a frame, the token, the frames.
    fn repeated(sequences: &[u64]) -> Channel {
        let mut wire = b"the rest of a frame".to_vec();
        wire.extend(TOKEN.0);
        for sequence in sequences {
            wire.extend(encode(*sequence, &started()).unwrap());
        }
        let pieces = wire
            .chunks(5)
            .map(|piece| Ok(Bytes::copy_from_slice(piece)));
        Channel {
            reader: Box::pin(stream::iter(pieces.collect::<Vec<_>>())),
            writer: Box::pin(tokio::io::sink()),
        }
    }

    #[tokio::test]
    async fn a_conversation_goes_on_after_the_last_message_that_was_put_away() {
        let channel = repeated(&[3, 4]);
        let mut session = Session::resume(channel, TOKEN, 2, Gap::None).await.unwrap();
        session.receive().await.unwrap();
        session.receive().await.unwrap();
        assert_eq!(session.received(), 4);
        let missing = Session::resume(repeated(&[4]), TOKEN, 2, Gap::None).await;
        let refused = missing.unwrap().receive().await;
        assert!(matches!(refused, Err(SessionError::OutOfOrder { .. })));
    }

    #[tokio::test]
    async fn only_the_first_message_of_a_resumed_conversation_may_follow_a_gap() {
        let channel = repeated(&[9, 11]);
        let resumed = Session::resume(channel, TOKEN, 2, Gap::Allowed).await;
        let mut session = resumed.unwrap();
        session.receive().await.unwrap();
        assert_eq!(session.received(), 9);
        let refused = session.receive().await;
        assert!(matches!(refused, Err(SessionError::OutOfOrder { .. })));
        let back = Session::resume(repeated(&[1]), TOKEN, 2, Gap::Allowed).await;
        assert!(back.unwrap().receive().await.is_err());
    }

    #[tokio::test]
    async fn a_stream_without_the_token_is_not_gone_on_with() {
        let channel = Channel {
            reader: Box::pin(stream::iter([Ok(Bytes::from_static(b"noise"))])),
            writer: Box::pin(tokio::io::sink()),
        };
        let resumed = Session::resume(channel, TOKEN, 0, Gap::None).await;
        assert!(matches!(resumed, Err(SessionError::Ended)));
    }

    #[tokio::test]
    async fn noise_ends_the_conversation() {
        let mut session = session(vec![b"Traceback (most recent call last):\n".to_vec()]);
        assert!(matches!(
            session.receive().await,
            Err(SessionError::Frame(_))
        ));
    }

    #[tokio::test]
    async fn a_supervisor_that_does_not_read_is_given_up() {
        tokio::time::pause();
        let (writer, _held) = tokio::io::duplex(16);
        let mut session = Session::new(Channel {
            reader: Box::pin(stream::pending()),
            writer: Box::pin(writer),
        });
        let big = ToSupervisor::Write(WriteFile {
            path: "a".to_owned(),
            bytes: vec![0; 1000],
        });
        assert!(matches!(session.send(&big).await, Err(SessionError::Stuck)));
    }
}
