//! Output in whole characters: programs write in pieces that may end within one.
//!
//! The begin of a character is kept for the next piece of its stream. So an event has the same text for
//! every reader, also for one that comes back after it.

use fumehood_protocol::message::Stream;

/// The begin of a character of each stream.
#[derive(Debug, Default)]
pub(super) struct Begun {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Begun {
    fn of(&mut self, stream: Stream) -> &mut Vec<u8> {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// What there is to tell of a stream after this piece; empty if that is nothing yet.
    pub(super) fn completed(&mut self, stream: Stream, piece: Vec<u8>) -> Vec<u8> {
        let kept = self.of(stream);
        let mut all = std::mem::take(kept);
        if all.is_empty() {
            all = piece;
        } else {
            all.extend_from_slice(&piece);
        }
        *kept = all.split_off(all.len() - begun_bytes(&all));
        all
    }

    /// Characters that were begun and never completed.
    pub(super) fn rest(&mut self) -> impl Iterator<Item = (Stream, Vec<u8>)> + use<> {
        [Stream::Stdout, Stream::Stderr]
            .map(|stream| (stream, std::mem::take(self.of(stream))))
            .into_iter()
            .filter(|(_, bytes)| !bytes.is_empty())
    }
}

/// Pieces of at most `most` bytes, at least four, none of which ends within a character.
pub(super) fn pieces(mut bytes: &[u8], most: usize) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while bytes.len() > most {
        let end = most - begun_bytes(&bytes[..most]);
        let (piece, rest) = bytes.split_at(end);
        pieces.push(piece.to_vec());
        bytes = rest;
    }
    if !bytes.is_empty() {
        pieces.push(bytes.to_vec());
    }
    pieces
}

/// How many of the last bytes are the begin of a character.
fn begun_bytes(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|&count| {
            let end = &bytes[bytes.len() - count..];
            std::str::from_utf8(end)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn characters_cut_between_pieces_come_out_whole_and_streams_do_not_mix() {
        let mut begun = Begun::default();
        let mut told = |stream, bytes: &[u8]| {
            let bytes = begun.completed(stream, bytes.to_vec());
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let rocket = "🚀".as_bytes();
        assert_eq!(told(Stream::Stdout, &rocket[..1]), "");
        assert_eq!(told(Stream::Stderr, b"other"), "other");
        assert_eq!(told(Stream::Stdout, &rocket[1..3]), "");
        assert_eq!(told(Stream::Stdout, &rocket[3..]), "🚀");
        assert_eq!(told(Stream::Stdout, b"\xff\xfe"), "\u{fffd}\u{fffd}");
        assert_eq!(told(Stream::Stdout, b"\xe2\x98"), "");
        let rest: Vec<_> = begun.rest().collect();
        assert_eq!(rest, [(Stream::Stdout, b"\xe2\x98".to_vec())]);
        assert_eq!(begun.rest().count(), 0);
    }

    proptest! {
        #[test]
        fn text_is_the_same_however_it_is_cut(text in "\\PC{0,40}", most in 4usize..20) {
            let whole = pieces(text.as_bytes(), most);
            prop_assert!(whole.iter().all(|piece| (1..=most).contains(&piece.len())));
            prop_assert!(whole.iter().all(|piece| std::str::from_utf8(piece).is_ok()));
            prop_assert_eq!(whole.concat(), text.as_bytes());
        }

        #[test]
        fn no_byte_is_lost_whatever_is_written(bytes: Vec<u8>, cut in 1usize..5) {
            let mut begun = Begun::default();
            let mut told = Vec::new();
            for piece in bytes.chunks(cut) {
                told.extend(begun.completed(Stream::Stdout, piece.to_vec()));
            }
            told.extend(begun.rest().flat_map(|(_, rest)| rest));
            prop_assert_eq!(told, bytes);
        }
    }
}
