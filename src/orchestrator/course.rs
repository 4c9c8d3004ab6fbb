//! What is known of a program when it begins to be followed: how much of its time is left, and what was
//! heard of it before. No I/O.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::conversation::{Conversation, SUPERVISOR_GRACE, TalkEnd};
use super::handoff::Handoff;
use crate::clock;
use crate::execution::output::Head;
use crate::execution::spec::Limits;

/// For everything that a supervisor repeats to whoever has attached again.
const CATCH_UP_GRACE: Duration = Duration::from_secs(5);

/// What is followed.
#[derive(Debug)]
pub(super) struct Course {
    pub(super) started_at: Timestamp,
    /// Wall clock that has passed before it is followed.
    pub(super) passed: Duration,
    /// Wall clock that it has left.
    pub(super) left: Duration,
    /// What its supervisor has after that.
    pub(super) grace: Duration,
    pub(super) stdout: Head,
    pub(super) stderr: Head,
}

impl Course {
    /// Of a program that has just been started.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            started_at: clock::now(),
            passed: Duration::ZERO,
            left: wall(limits),
            grace: SUPERVISOR_GRACE,
            stdout: Head::new(limits.max_stdout_size_bytes),
            stderr: Head::new(limits.max_stderr_size_bytes),
        }
    }

    /// Of one that an earlier daemon started.
    pub(super) fn resumed(limits: &Limits, handoff: &Handoff) -> Self {
        let wall = wall(limits);
        let left = wall.saturating_sub(handoff.passed());
        let progress = &handoff.progress;
        Self {
            started_at: handoff.starting_at,
            passed: wall.saturating_sub(left),
            left,
            grace: SUPERVISOR_GRACE + CATCH_UP_GRACE,
            stdout: progress.stdout.head(limits.max_stdout_size_bytes),
            stderr: progress.stderr.head(limits.max_stderr_size_bytes),
        }
    }

    /// Of one that was followed until its stream broke, which is there again. The time of the talk is
    /// all that has passed since the program was started.
    pub(super) fn regained(limits: &Limits, talk: Conversation) -> Self {
        Self {
            started_at: talk.started_at,
            passed: talk.wall,
            left: wall(limits).saturating_sub(talk.wall),
            grace: SUPERVISOR_GRACE + CATCH_UP_GRACE,
            stdout: talk.stdout,
            stderr: talk.stderr,
        }
    }

    /// From when on its supervisor is late, if it is followed from `now` on.
    pub(super) fn late_from(&self, now: Instant) -> Instant {
        // Far beyond any ceiling a limit cannot be added to a clock; then the ceiling is a year.
        let far = now + Duration::from_secs(86_400 * 365);
        let whole = self.left.saturating_add(self.grace);
        now.checked_add(whole).unwrap_or(far)
    }

    /// The talk about it, if that is over already.
    pub(super) fn ended(self, end: TalkEnd) -> Conversation {
        Conversation {
            started_at: self.started_at,
            wall: self.passed,
            stdout: self.stdout,
            stderr: self.stderr,
            end,
        }
    }
}

/// The limit of a program's wall clock.
pub(super) fn wall(limits: &Limits) -> Duration {
    Duration::try_from_secs_f64(limits.timeout_seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::session::SessionError;

    fn limits() -> Limits {
        Limits {
            timeout_seconds: 60.0,
            max_stdout_size_bytes: 4,
            ..crate::config::Execution::default().default_limits()
        }
    }

    fn talk(limits: &Limits, wall: Duration) -> Conversation {
        let mut stdout = Head::new(limits.max_stdout_size_bytes);
        stdout.push(b"abcdef");
        let course = Course {
            passed: wall,
            stdout,
            ..Course::new(limits)
        };
        course.ended(TalkEnd::Lost(SessionError::Ended))
    }

    #[test]
    fn a_stream_that_is_there_again_goes_on_where_it_broke_and_gives_no_time() {
        let limits = limits();
        let broken = talk(&limits, Duration::from_secs(20));
        let started_at = broken.started_at;
        let course = Course::regained(&limits, broken);
        assert_eq!(course.started_at, started_at);
        assert_eq!(course.passed, Duration::from_secs(20));
        assert_eq!(course.left, Duration::from_secs(40));
        assert_eq!(
            (course.stdout.kept(), course.stdout.total()),
            (&b"abcd"[..], 6)
        );
        let over = Course::regained(&limits, talk(&limits, Duration::from_secs(99)));
        assert_eq!(over.left, Duration::ZERO);
    }

    #[tokio::test]
    async fn a_limit_that_cannot_be_added_to_a_clock_is_a_ceiling_all_the_same() {
        let now = Instant::now();
        let course = Course {
            left: Duration::MAX,
            ..Course::new(&limits())
        };
        assert!(course.late_from(now) > now);
    }
}
