//! Bytes from a sandbox are hostile: whatever they are and however they are split, cutting them
//! into frames and messages neither panics nor depends on the split, and what was decoded
//! survives being encoded again.
//!
//! Input: one byte with the number of piece lengths, those lengths, then the stream.

#![no_main]

use std::fmt::Debug;

use fumehood_protocol::frame::HEADER_BYTES;
use fumehood_protocol::resume::TokenScanner;
use fumehood_protocol::{
    Decoder, Frame, FromSupervisor, MAX_BODY_BYTES, ResumeToken, ToSupervisor, encode,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&count, rest)) = data.split_first() else {
        return;
    };
    let (lengths, stream) = rest.split_at(usize::from(count % 16).min(rest.len()));

    let whole = decode([stream]);
    let pieces = decode(pieces(stream, lengths));
    assert_eq!(whole, pieces, "the split changes what is decoded");

    let framed: usize = whole
        .frames
        .iter()
        .map(|frame| HEADER_BYTES + frame.body.len())
        .sum();
    assert!(framed <= stream.len(), "more was decoded than there was");
    assert_eq!(stream.len() - framed, whole.rest, "bytes were lost");
    for frame in &whole.frames {
        assert!((1..=MAX_BODY_BYTES).contains(&frame.body.len()));
        again::<FromSupervisor>(frame);
        again::<ToSupervisor>(frame);
    }
    scan(stream, lengths);
});

/// What came out of a stream.
#[derive(Debug, PartialEq, Eq)]
struct Decoded {
    frames: Vec<Frame>,
    /// Bytes left over.
    rest: usize,
    malformed: bool,
}

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Decoded {
    let mut decoder = Decoder::default();
    let mut decoded = Decoded {
        frames: Vec::new(),
        rest: 0,
        malformed: false,
    };
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => decoded.frames.push(frame),
                Ok(None) => break,
                Err(_) => {
                    assert!(decoder.next_frame().is_err(), "an error is given again");
                    decoded.malformed = true;
                    break;
                }
            }
        }
    }
    let boundary = decoder.is_at_boundary();
    decoded.rest = decoder.take_rest().len();
    assert_eq!(boundary, decoded.rest == 0);
    assert!(decoder.is_at_boundary());
    decoded
}

/// Cuts a stream into pieces of these lengths, over and over.
fn pieces<'a>(mut stream: &'a [u8], lengths: &[u8]) -> Vec<&'a [u8]> {
    let mut lengths = lengths
        .iter()
        .map(|&length| usize::from(length).max(1))
        .cycle();
    let mut pieces = Vec::new();
    while !stream.is_empty() {
        let length = lengths.next().unwrap_or(1).min(stream.len());
        let (piece, rest) = stream.split_at(length);
        pieces.push(piece);
        stream = rest;
    }
    pieces
}

/// A message that decodes is one that can be said again and understood as the same.
fn again<M>(frame: &Frame)
where
    M: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug,
{
    let Ok(message) = frame.message::<M>() else {
        return;
    };
    // Named fields may take more bytes than a terser encoding of the same message.
    let Ok(bytes) = encode(frame.sequence, &message) else {
        return;
    };
    let second = decode([bytes.as_slice()]);
    assert_eq!(second.frames.len(), 1);
    assert_eq!(second.frames[0].sequence, frame.sequence);
    assert_eq!(
        second.frames[0].message::<M>().expect("our own encoding"),
        message
    );
}

/// The first place of a token does not depend on the split either.
fn scan(stream: &[u8], lengths: &[u8]) {
    let Some(token) = stream.last_chunk::<{ ResumeToken::BYTES }>() else {
        return;
    };
    let first = stream
        .windows(token.len())
        .position(|window| window == token);
    let mut scanner = TokenScanner::new(ResumeToken(*token));
    let mut offset = 0;
    let mut found = None;
    for piece in pieces(stream, lengths) {
        if let Some(end) = scanner.scan(piece) {
            found = Some(offset + end);
            break;
        }
        offset += piece.len();
    }
    assert_eq!(found, first.map(|start| start + token.len()));
}
