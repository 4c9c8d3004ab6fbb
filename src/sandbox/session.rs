//! The daemon's end of the conversation with one supervisor.
//!
//! Turns bytes into messages and back, checks that they arrive in order, acknowledges them and
//! bounds every wait. What a message means is for whoever holds the session.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use fumehood_protocol::message::WriteFile;
use fumehood_protocol::{
    Decoder, Frame, FrameError, FromSupervisor, MAX_PAYLOAD_BYTES, ToSupervisor, encode,
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
        }
    }

    /// Sends a message. Not cancellation safe.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; the conversation is over.
    pub async fn send(&mut self, message: &ToSupervisor) -> Result<(), SessionError> {
        let frame = encode(0, message)?;
        let write = async {
            self.channel.writer.write_all(&frame).await?;
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
        if self.unacknowledged_bytes < ACKNOWLEDGE_EVERY_BYTES {
            return Ok(());
        }
        self.acknowledge_all().await
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
        if frame.sequence != expected {
            return Err(SessionError::OutOfOrder {
                expected,
                found: frame.sequence,
            });
        }
        self.received = expected;
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
