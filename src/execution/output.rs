//! One captured output stream: the head that is kept, and how it becomes text
//! (contract section 2.5).

/// Appended where the head was cut.
pub const TRUNCATED: &str = "\n...[TRUNCATED]";

/// Bytes kept from the end of a stream whose head was cut.
pub const TAIL_BYTES: u32 = 8 << 10;

/// Keeps the first bytes of a stream and counts the rest: memory is bounded by the cap,
/// whatever arrives.
#[derive(Debug)]
pub struct Head {
    cap: usize,
    bytes: Vec<u8>,
    total: u64,
}

impl Head {
    /// An empty head that keeps `cap` bytes.
    #[must_use]
    pub fn new(cap: u64) -> Self {
        let cap = usize::try_from(cap).unwrap_or(usize::MAX);
        Self {
            cap,
            bytes: Vec::new(),
            total: 0,
        }
    }

    /// A head as it was before: what it had kept of `total` bytes.
    #[must_use]
    pub fn restored(cap: u64, mut kept: Vec<u8>, total: u64) -> Self {
        let mut head = Self::new(cap);
        kept.truncate(head.cap);
        head.bytes = kept;
        head.total = total;
        head
    }

    /// The bytes kept so far.
    #[must_use]
    pub fn kept(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the next bytes of the stream; gives the part that was kept.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        self.total += bytes.len() as u64;
        let room = self.cap.saturating_sub(self.bytes.len()).min(bytes.len());
        let (kept, _) = bytes.split_at(room);
        self.bytes.extend_from_slice(kept);
        kept
    }

    /// Bytes seen.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether something is missing from the head of a stream of `written` bytes.
    #[must_use]
    pub fn is_cut(&self, written: u64) -> bool {
        written.max(self.total) > self.bytes.len() as u64
    }

    /// What was kept so far, as text.
    #[must_use]
    pub fn peek(&self) -> String {
        lossy(&self.bytes)
    }

    /// The head as text. `written` is how many bytes the program wrote in all.
    #[must_use]
    pub fn into_text(self, written: u64) -> String {
        if !self.is_cut(written) {
            return lossy(&self.bytes);
        }
        let mut text = lossy(&self.bytes[..character_boundary(&self.bytes)]);
        text.push_str(TRUNCATED);
        text
    }
}

/// The tail of a stream as text, begun at a character boundary.
#[must_use]
pub fn tail_text(bytes: &[u8]) -> String {
    let start = bytes
        .iter()
        .take(3)
        .take_while(|&&b| b & 0xc0 == 0x80)
        .count();
    lossy(&bytes[start..])
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Where to cut so that the last character is whole: a valid start of a character that the cut
/// separated from its end is dropped, anything else stays.
fn character_boundary(bytes: &[u8]) -> usize {
    match std::str::from_utf8(&bytes[bytes.len().saturating_sub(3)..]) {
        Ok(_) => bytes.len(),
        Err(_) => {
            let from = bytes.len().saturating_sub(3);
            for start in from..bytes.len() {
                let rest = &bytes[start..];
                if let Err(error) = std::str::from_utf8(rest)
                    && error.valid_up_to() == 0
                    && error.error_len().is_none()
                {
                    return start;
                }
            }
            bytes.len()
        }
    }
}

/// Head and tail of a stream, at most so many characters; the tail that was kept apart is the true end
/// of a cut one.
#[must_use]
pub fn excerpt(head: &str, tail: Option<&str>, characters: usize) -> String {
    const GAP: &str = "\n...\n";
    if tail.is_none() && head.chars().nth(characters).is_none() {
        return head.to_owned();
    }
    let half = characters.saturating_sub(GAP.len()) / 2;
    let first: String = head.chars().take(half).collect();
    let end = tail.unwrap_or(head);
    let start = end
        .char_indices()
        .rev()
        .take(half)
        .last()
        .map_or(end.len(), |(start, _)| start);
    format!("{first}{GAP}{}", &end[start..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn capture(bytes: &[u8], cap: u64) -> String {
        let mut head = Head::new(cap);
        for chunk in bytes.chunks(7) {
            head.push(chunk);
        }
        let total = head.total();
        head.into_text(total)
    }

    #[test]
    fn exactly_the_cap_is_not_cut() {
        assert_eq!(capture(b"12345", 5), "12345");
        assert_eq!(capture(b"123456", 5), format!("12345{TRUNCATED}"));
        assert_eq!(capture(b"", 0), "");
    }

    #[test]
    fn the_cut_is_at_a_character_boundary_at_or_below_the_cap() {
        for (text, cap, kept) in [
            ("aé", 2, "a"),
            ("a☃", 3, "a"),
            ("a🚀b", 4, "a"),
            ("aé!", 3, "aé"),
        ] {
            assert_eq!(
                capture(format!("{text}zzzz").as_bytes(), cap),
                format!("{kept}{TRUNCATED}")
            );
        }
    }

    #[test]
    fn invalid_bytes_become_the_replacement_character() {
        assert_eq!(capture(b"a\xffb", 10), "a\u{fffd}b");
        assert_eq!(
            capture(b"\xff\xff\xff\xff\xff", 4),
            format!("{}{TRUNCATED}", "\u{fffd}".repeat(4))
        );
    }

    #[test]
    fn what_was_discarded_upstream_still_counts_as_cut() {
        let mut head = Head::new(5);
        head.push(b"12345");
        assert_eq!(head.into_text(3_000_000_000), format!("12345{TRUNCATED}"));
    }

    #[test]
    fn a_tail_starts_at_a_character() {
        assert_eq!(tail_text(&"☃x".as_bytes()[1..]), "x");
        assert_eq!(tail_text(b"plain"), "plain");
    }

    proptest! {
        #[test]
        fn valid_text_is_cut_to_a_prefix_of_itself(text in "\\PC{0,40}", cap in 0u64..60) {
            let got = capture(text.as_bytes(), cap);
            if text.len() as u64 <= cap {
                prop_assert_eq!(got, text);
            } else {
                let kept = got.strip_suffix(TRUNCATED).unwrap();
                prop_assert!(text.starts_with(kept) && kept.len() as u64 <= cap);
                prop_assert!(kept.len() as u64 + 3 >= cap);
            }
        }
    }
}
