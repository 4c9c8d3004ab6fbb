//! How long a model is waited for and when it is asked again (contract section 3): no I/O.

use std::time::Duration;

/// Times that a question is asked, whatever goes wrong.
pub(super) const ATTEMPTS: u32 = 3;

/// A server may ask for a longer pause than ours, but not for more seconds than this.
const MAX_RETRY_AFTER: u64 = 30;

/// How fast the clock goes: tests have shorter seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The whole of one attempt, from connecting to the last byte of the answer.
    pub attempt: Duration,
    /// The unit of pauses.
    pub second: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            attempt: Duration::from_secs(30),
            second: Duration::from_secs(1),
        }
    }
}

impl Pace {
    /// The pause after attempt number `attempt`, from 0: 2^attempt seconds, or what the server asked
    /// for if that is more, within its bound.
    pub(super) fn pause(self, attempt: u32, retry_after: Option<u64>) -> Duration {
        let own = 1_u64 << attempt.min(10);
        let asked = retry_after.unwrap_or(0).min(MAX_RETRY_AFTER);
        let seconds = u32::try_from(own.max(asked)).unwrap_or(u32::MAX);
        self.second.saturating_mul(seconds)
    }
}

/// Whether a server that answered with this status may answer better in a moment.
pub(super) fn is_passing(status: u16) -> bool {
    matches!(status, 429 | 500 | 502 | 503 | 504)
}

/// `Retry-After` in seconds; a date is not understood, and our own pause has to do.
pub(super) fn retry_after(header: Option<&str>) -> Option<u64> {
    let text = header?.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // More digits than fit are simply a very long time.
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_a_server_can_ask_for_longer_ones_within_a_bound() {
        let seconds = |attempt, asked| Pace::default().pause(attempt, asked).as_secs();
        assert_eq!([0, 1, 2].map(|attempt| seconds(attempt, None)), [1, 2, 4]);
        assert_eq!(seconds(0, Some(7)), 7);
        assert_eq!(seconds(2, Some(1)), 4);
        assert_eq!(seconds(0, Some(86_400)), 30);
        assert_eq!(seconds(u32::MAX, None), 1024);
    }

    #[test]
    fn only_these_statuses_pass() {
        let passing: Vec<u16> = (100..=599).filter(|status| is_passing(*status)).collect();
        assert_eq!(passing, [429, 500, 502, 503, 504]);
    }

    #[test]
    fn retry_after_is_a_number_of_seconds() {
        let cases = [
            (Some("2"), Some(2)),
            (Some(" 0 "), Some(0)),
            (Some("99999999999999999999999"), Some(u64::MAX)),
            (Some("-1"), None),
            (Some("1.5"), None),
            (Some(""), None),
            (Some("Fri, 31 Dec 1999 23:59:59 GMT"), None),
            (None, None),
        ];
        for (header, expected) in cases {
            assert_eq!(retry_after(header), expected, "{header:?}");
        }
    }
}
