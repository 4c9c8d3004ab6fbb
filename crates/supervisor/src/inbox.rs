//! Owns what comes in: cuts the daemon's bytes into messages and finds the place where a daemon
//! that attaches again starts anew. It acts on no message.
//!
//! A stream may break inside a frame, so the token of a later daemon can follow a half frame. Bytes
//! that may be the beginning of a token are therefore held back from the decoder until the next
//! ones have come: else they would complete that half frame to a message that nobody sent. An
//! honest frame can end in such bytes too, so they are held for a moment only.

use std::time::{Duration, Instant};

use fumehood_protocol::{Decoder, FrameError, ResumeToken, ToSupervisor};

/// How long bytes that may begin a token are held back.
const HOLD_BACK: Duration = Duration::from_millis(50);

/// The incoming side of the stream.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    decoder: Decoder,
    /// Known after `Start`.
    token: Option<ResumeToken>,
    /// Bytes not yet known to be or not to be a token; grows by one read at most.
    unjudged: Vec<u8>,
    /// How many of them the decoder has got already, because they were held long enough.
    overdue: usize,
    /// When the last bytes came, while some are held back.
    held_since: Option<Instant>,
}

impl Inbox {
    /// Takes the next bytes. Call [`Inbox::next_message`] until it gives `None` before the next.
    pub(crate) fn receive(&mut self, bytes: &[u8], now: Instant) {
        self.unjudged.extend_from_slice(bytes);
        self.held_since = Some(now);
    }

    /// Looks for this token from now on, beginning with the bytes that came in already.
    pub(crate) fn expect_token(&mut self, token: ResumeToken) {
        let mut bytes = self.decoder.take_rest();
        bytes.append(&mut self.unjudged);
        self.unjudged = bytes;
        self.token = Some(token);
    }

    /// The next complete message.
    pub(crate) fn next_message(
        &mut self,
        now: Instant,
    ) -> Result<Option<ToSupervisor>, FrameError> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return frame.message().map(Some);
            }
            if !self.feed(now) {
                return Ok(None);
            }
        }
    }

    /// When to ask again although nothing has come in.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let held = self.unjudged.len() > self.overdue;
        self.held_since
            .filter(|_| held)
            .map(|since| since + HOLD_BACK)
    }

    /// Gives the decoder what is certainly no token; whether there was anything to do.
    fn feed(&mut self, now: Instant) -> bool {
        if self.unjudged.is_empty() {
            return false;
        }
        let Some(ResumeToken(token)) = self.token else {
            self.decoder.push(&self.unjudged);
            self.unjudged.clear();
            return true;
        };
        let found = self
            .unjudged
            .windows(token.len())
            .position(|window| *window == token);
        let clear = found.unwrap_or_else(|| self.unjudged.len() - held(&self.unjudged, &token));
        if clear > self.overdue {
            // What came before the token still counts; the token itself is judged next time.
            self.decoder.push(&self.unjudged[self.overdue..clear]);
            self.unjudged.drain(..clear);
            self.overdue = 0;
            return true;
        }
        if let Some(start) = found {
            self.decoder.reset();
            self.unjudged.drain(..start + token.len());
            self.overdue = 0;
            return true;
        }
        self.unjudged.drain(..clear);
        self.overdue -= clear;
        let waited = self
            .held_since
            .is_some_and(|since| now >= since + HOLD_BACK);
        if waited && self.overdue < self.unjudged.len() {
            self.decoder.push(&self.unjudged[self.overdue..]);
            self.overdue = self.unjudged.len();
            return true;
        }
        false
    }
}

/// How many bytes at the end of `bytes` may be the beginning of `token`.
fn held(bytes: &[u8], token: &[u8]) -> usize {
    let longest = bytes.len().min(token.len() - 1);
    (1..=longest)
        .rev()
        .find(|&length| bytes.ends_with(&token[..length]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fumehood_protocol::encode;

    const TOKEN: ResumeToken = ResumeToken(*b"l123456789abcdef");

    fn inbox() -> Inbox {
        let mut inbox = Inbox::default();
        inbox.expect_token(TOKEN);
        inbox
    }

    fn read_all(inbox: &mut Inbox, now: Instant) -> Vec<ToSupervisor> {
        std::iter::from_fn(|| inbox.next_message(now).unwrap()).collect()
    }

    #[test]
    fn a_half_frame_before_the_token_is_forgotten_however_the_stream_is_split() {
        let half = encode(0, &ToSupervisor::Ack(70_000)).unwrap();
        for cut in 0..half.len() {
            let mut stream = encode(0, &ToSupervisor::Ack(1)).unwrap();
            stream.extend(&half[..cut]);
            stream.extend(TOKEN.0);
            stream.extend(encode(0, &ToSupervisor::Resume(7)).unwrap());
            for piece in 1..stream.len() {
                let (mut inbox, now) = (inbox(), Instant::now());
                let mut seen = Vec::new();
                for bytes in stream.chunks(piece) {
                    inbox.receive(bytes, now);
                    seen.extend(read_all(&mut inbox, now));
                }
                let expected = [ToSupervisor::Ack(1), ToSupervisor::Resume(7)];
                assert_eq!(seen, expected, "cut {cut}, piece {piece}");
            }
        }
    }

    #[test]
    fn a_frame_that_ends_like_a_token_begins_is_held_for_a_moment_only() {
        let (mut inbox, now) = (inbox(), Instant::now());
        // The last byte of `Cancel` is the first of the token.
        inbox.receive(&encode(0, &ToSupervisor::Cancel).unwrap(), now);
        assert_eq!(read_all(&mut inbox, now), []);
        let later = inbox.wake_at().unwrap();
        assert_eq!(read_all(&mut inbox, later), [ToSupervisor::Cancel]);
        assert_eq!(inbox.wake_at(), None);
        // A token whose first byte was given away is still found.
        inbox.receive(&TOKEN.0[1..], later);
        inbox.receive(&encode(0, &ToSupervisor::Resume(1)).unwrap(), later);
        assert_eq!(read_all(&mut inbox, later), [ToSupervisor::Resume(1)]);
    }

    #[test]
    fn a_token_right_behind_start_is_found() {
        let (mut inbox, now) = (Inbox::default(), Instant::now());
        let mut stream = encode(0, &ToSupervisor::Ack(1)).unwrap();
        stream.extend([0, 0]);
        stream.extend(TOKEN.0);
        stream.extend(encode(0, &ToSupervisor::Resume(1)).unwrap());
        inbox.receive(&stream, now);
        assert_eq!(inbox.next_message(now).unwrap(), Some(ToSupervisor::Ack(1)));
        inbox.expect_token(TOKEN);
        assert_eq!(read_all(&mut inbox, now), [ToSupervisor::Resume(1)]);
    }
}
