//! Finding the place where a broken stream starts anew.

use serde::{Deserialize, Serialize};

/// A secret of one execution, known to the daemon and its supervisor, that marks where a stream
/// starts anew after a daemon has attached again.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ResumeToken(pub [u8; ResumeToken::BYTES]);

impl ResumeToken {
    /// Length of a token.
    pub const BYTES: usize = 16;

    /// A token of these random bytes, but for the first bit: with that the token is no beginning of a
    /// frame, whose length would be beyond [`crate::MAX_BODY_BYTES`]. A supervisor that does not know the
    /// token takes it for one, and must not wait for the rest.
    #[must_use]
    pub const fn new(mut random: [u8; Self::BYTES]) -> Self {
        random[0] |= 0x80;
        Self(random)
    }
}

impl std::fmt::Debug for ResumeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ResumeToken(***)")
    }
}

/// Looks for a token at any position of a stream that arrives in pieces.
#[derive(Debug)]
pub struct TokenScanner {
    token: ResumeToken,
    /// The last bytes seen, at most one fewer than a token has.
    tail: Vec<u8>,
}

impl TokenScanner {
    /// A scanner at the start of a stream.
    #[must_use]
    pub fn new(token: ResumeToken) -> Self {
        Self {
            token,
            tail: Vec::with_capacity(ResumeToken::BYTES),
        }
    }

    /// Takes the next bytes; if the token ends within them, gives the position after it.
    pub fn scan(&mut self, bytes: &[u8]) -> Option<usize> {
        let before = self.tail.len();
        let joined: Vec<u8> = [self.tail.as_slice(), bytes].concat();
        if let Some(start) = joined
            .windows(ResumeToken::BYTES)
            .position(|window| window == self.token.0)
        {
            self.tail.clear();
            return Some(start + ResumeToken::BYTES - before);
        }
        let keep = joined.len().min(ResumeToken::BYTES - 1);
        self.tail = joined[joined.len() - keep..].to_vec();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TOKEN: ResumeToken = ResumeToken(*b"0123456789abcdef");

    proptest! {
        #[test]
        fn the_token_is_found_however_the_stream_is_split(
            noise in prop::collection::vec(any::<u8>(), 0..200),
            after in prop::collection::vec(any::<u8>(), 0..50),
            piece in 1usize..40,
        ) {
            let stream: Vec<u8> = [&noise[..], &TOKEN.0[..], &after[..]].concat();
            let mut scanner = TokenScanner::new(TOKEN);
            let mut offset = 0;
            let mut found = None;
            for chunk in stream.chunks(piece) {
                if let Some(end) = scanner.scan(chunk) {
                    found = Some(offset + end);
                    break;
                }
                offset += chunk.len();
            }
            prop_assert_eq!(found, Some(noise.len() + TOKEN.0.len()));
        }
    }

    #[test]
    fn a_token_is_never_taken_for_the_beginning_of_a_frame() {
        for bytes in [[0; ResumeToken::BYTES], TOKEN.0, [0xff; ResumeToken::BYTES]] {
            let mut decoder = crate::Decoder::default();
            decoder.push(&ResumeToken::new(bytes).0);
            assert!(decoder.next_frame().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_token_is_not_printed() {
        assert_eq!(format!("{TOKEN:?}"), "ResumeToken(***)");
    }
}
