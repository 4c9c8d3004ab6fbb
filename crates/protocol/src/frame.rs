//! Length-prefixed frames: the only place that knows their layout.
//!
//! ```text
//! 0..4   length of the body, unsigned, big endian, 1 ..= MAX_BODY_BYTES
//! 4..12  sequence number, unsigned, big endian; 0 on frames of the daemon
//! 12..   body: one message in MessagePack
//! ```
//!
//! The length is checked before anything is allocated for it: what arrives is hostile.

use serde::{Serialize, de::DeserializeOwned};

/// The largest body of a frame, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// Bytes before the body.
pub const HEADER_BYTES: usize = 12;

/// A complete frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The sender's sequence number, 0 when the sender does not number its frames.
    pub sequence: u64,
    /// One encoded message.
    pub body: Vec<u8>,
}

impl Frame {
    /// Decodes the message in the frame.
    ///
    /// # Errors
    ///
    /// [`FrameError::Malformed`] if the body is no such message or has bytes after it.
    pub fn message<M: DeserializeOwned>(&self) -> Result<M, FrameError> {
        let mut rest = self.body.as_slice();
        let message = rmp_serde::from_read(&mut rest).map_err(FrameError::Malformed)?;
        if rest.is_empty() {
            Ok(message)
        } else {
            Err(FrameError::Trailing(rest.len()))
        }
    }
}

/// Why bytes are not a frame, or a frame is not a message. Fatal for the stream that carried it.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length prefix is 0 or above the cap.
    #[error("a frame announces {0} bytes, allowed are 1 to {MAX_BODY_BYTES}")]
    Length(usize),
    /// The body does not decode.
    #[error("the body of a frame is no known message")]
    Malformed(#[source] rmp_serde::decode::Error),
    /// The body goes on after its message.
    #[error("the body of a frame has {0} bytes after its message")]
    Trailing(usize),
    /// The message cannot be encoded.
    #[error("a message could not be encoded")]
    Encode(#[source] rmp_serde::encode::Error),
}

/// Encodes `message` as one frame.
///
/// # Errors
///
/// [`FrameError::Length`] if the message is larger than [`MAX_BODY_BYTES`].
pub fn encode<M: Serialize>(sequence: u64, message: &M) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0; HEADER_BYTES];
    rmp_serde::encode::write_named(&mut bytes, message).map_err(FrameError::Encode)?;
    let length = bytes.len() - HEADER_BYTES;
    let prefix = u32::try_from(length)
        .ok()
        .filter(|_| (1..=MAX_BODY_BYTES).contains(&length))
        .ok_or(FrameError::Length(length))?;
    bytes[..4].copy_from_slice(&prefix.to_be_bytes());
    bytes[4..HEADER_BYTES].copy_from_slice(&sequence.to_be_bytes());
    Ok(bytes)
}

/// Cuts a byte stream into frames, however it was split in transit.
///
/// Holds at most one incomplete frame and the bytes of the last [`Decoder::push`].
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// How much of `buffer` was handed out already.
    consumed: usize,
}

impl Decoder {
    /// Takes the next bytes of the stream. Call [`Decoder::next_frame`] until it gives `None`
    /// before pushing more.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.consumed);
        self.consumed = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// [`FrameError::Length`]; the stream has no meaning from there on and the same error is
    /// given again.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let pending = &self.buffer[self.consumed..];
        let Some((header, rest)) = pending.split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let [a, b, c, d, sequence @ ..] = *header;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if !(1..=MAX_BODY_BYTES).contains(&length) {
            return Err(FrameError::Length(length));
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = Frame {
            sequence: u64::from_be_bytes(sequence),
            body: body.to_vec(),
        };
        self.consumed += HEADER_BYTES + length;
        Ok(Some(frame))
    }

    /// Whether the stream may end here without cutting a frame.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        self.consumed == self.buffer.len()
    }

    /// Takes back everything that was pushed and not handed out yet, for a caller that has
    /// learnt meanwhile that it must look at the bytes in another way.
    #[must_use]
    pub fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.buffer.split_off(self.consumed);
        self.reset();
        rest
    }

    /// Drops everything that was not handed out: the stream starts anew.
    pub fn reset(&mut self) {
        self.buffer.clear();
        self.consumed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{FromSupervisor, Output, Stream};
    use proptest::prelude::*;

    fn output(bytes: Vec<u8>) -> FromSupervisor {
        FromSupervisor::Output(Output {
            stream: Stream::Stdout,
            bytes,
        })
    }

    proptest! {
        #[test]
        fn frames_survive_any_split_of_the_stream(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..20),
            cuts in prop::collection::vec(1usize..97, 1..50),
        ) {
            let mut wire = Vec::new();
            for (sequence, payload) in (1..).zip(&payloads) {
                wire.extend(encode(sequence, &output(payload.clone())).unwrap());
            }
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            let mut cuts = cuts.iter().cycle();
            let mut rest = wire.as_slice();
            while !rest.is_empty() {
                let (chunk, tail) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                rest = tail;
                decoder.push(chunk);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    prop_assert_eq!(frame.sequence, seen.len() as u64 + 1);
                    seen.push(frame.message::<FromSupervisor>().unwrap());
                }
            }
            prop_assert!(decoder.is_at_boundary());
            prop_assert_eq!(seen, payloads.into_iter().map(output).collect::<Vec<_>>());
        }

        #[test]
        fn hostile_bytes_never_panic_and_never_grow_the_buffer(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..2000), 0..20),
        ) {
            let mut decoder = Decoder::default();
            let mut pushed = 0;
            for chunk in &chunks {
                decoder.push(chunk);
                pushed += chunk.len();
                loop {
                    match decoder.next_frame() {
                        Ok(Some(frame)) => {
                            prop_assert!(frame.body.len() <= MAX_BODY_BYTES);
                            let _ = frame.message::<FromSupervisor>();
                        }
                        Ok(None) => break,
                        Err(_) => return Ok(()),
                    }
                }
                prop_assert!(decoder.buffer.capacity() <= 2 * (pushed + HEADER_BYTES));
            }
        }
    }

    #[test]
    fn a_length_above_the_cap_is_refused_before_its_body_arrives() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_be_bytes());
        decoder.push(&[0; 8]);
        assert!(matches!(decoder.next_frame(), Err(FrameError::Length(_))));
        assert!(decoder.buffer.capacity() < 1024);
    }

    #[test]
    fn a_message_above_the_cap_is_not_encoded() {
        let result = encode(1, &output(vec![0; MAX_BODY_BYTES]));
        assert!(matches!(result, Err(FrameError::Length(_))));
    }

    #[test]
    fn bytes_after_a_message_are_refused() {
        let mut wire = encode(1, &output(vec![1])).unwrap();
        wire.push(0xc0);
        let length = u32::try_from(wire.len() - HEADER_BYTES).unwrap();
        wire[..4].copy_from_slice(&length.to_be_bytes());
        let mut decoder = Decoder::default();
        decoder.push(&wire);
        let frame = decoder.next_frame().unwrap().unwrap();
        assert!(matches!(
            frame.message::<FromSupervisor>(),
            Err(FrameError::Trailing(1))
        ));
    }
}
