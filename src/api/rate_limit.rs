//! How much of a quota is left, and how a client is told: `RateLimit`, `RateLimit-Policy` and
//! `Retry-After` (draft-ietf-httpapi-ratelimit-headers).
//!
//! Counts and formats; what is counted and when is others' affair. Bounded in size by the quota.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Seconds of a day.
const DAY: u64 = 86_400;

/// When to come back to a queue that is full: a place may be free in a moment.
const QUEUE_RETRY: u64 = 5;

/// When to come back where only an operator can make room.
const STORAGE_RETRY: u64 = 3600;

/// At most so many events in any time as long as the window.
///
/// Whether something is an event may turn out later only: until then it takes a place like one.
#[derive(Debug)]
pub(super) struct Window {
    quota: usize,
    length: Duration,
    /// The events that still count, oldest first; never more than the quota.
    taken: VecDeque<Event>,
    /// How many of these may turn out to be none.
    uncertain: usize,
    /// How many there have been.
    count: u64,
}

#[derive(Debug)]
struct Event {
    number: u64,
    at: Instant,
    is_certain: bool,
}

/// What comes of asking for a place in a window.
#[derive(Debug)]
pub(super) enum Take {
    /// There was one. It has this number, until it is known whether it was an event.
    Granted(u64, Standing),
    /// The quota is used up; nothing was counted.
    Refused(Standing),
    /// No place is free, but some may be given back.
    Unknown,
}

impl Window {
    pub(super) fn new(quota: usize, length: Duration) -> Self {
        Self {
            quota,
            length,
            taken: VecDeque::new(),
            uncertain: 0,
            count: 0,
        }
    }

    /// Counts what may be an event.
    pub(super) fn take(&mut self, now: Instant) -> Take {
        while let Some(oldest) = self.taken.front()
            && now.saturating_duration_since(oldest.at) >= self.length
        {
            self.uncertain -= usize::from(!oldest.is_certain);
            self.taken.pop_front();
        }
        if self.taken.len() >= self.quota {
            return if self.uncertain == 0 {
                Take::Refused(self.standing(now))
            } else {
                Take::Unknown
            };
        }
        self.count += 1;
        self.uncertain += 1;
        self.taken.push_back(Event {
            number: self.count,
            at: now,
            is_certain: false,
        });
        Take::Granted(self.count, self.standing(now))
    }

    /// It was an event, or it was none and counts no more.
    pub(super) fn settle(&mut self, number: u64, was_event: bool) {
        let events = &mut self.taken;
        // It may be too old to matter.
        let Ok(place) = events.binary_search_by_key(&number, |event| event.number) else {
            return;
        };
        self.uncertain -= usize::from(!events[place].is_certain);
        if was_event {
            events[place].is_certain = true;
        } else {
            events.remove(place);
        }
    }

    fn standing(&self, now: Instant) -> Standing {
        let free_in = self.taken.front().map_or(Duration::ZERO, |oldest| {
            let passed = now.saturating_duration_since(oldest.at);
            self.length.saturating_sub(passed)
        });
        // Rounded up: who comes back by then is not sent away again.
        let seconds = free_in.as_secs() + u64::from(free_in.subsec_nanos() > 0);
        Standing {
            policy: "default",
            quota: self.quota as u64,
            window: Some(self.length.as_secs()),
            remaining: (self.quota - self.taken.len()) as u64,
            reset: Some(seconds),
            retry: seconds.max(1),
        }
    }
}

/// Where a client stands with a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    policy: &'static str,
    quota: u64,
    /// In seconds; `None` if the quota is not one by time.
    window: Option<u64>,
    remaining: u64,
    /// Seconds until there is more; `None` if nobody knows.
    reset: Option<u64>,
    /// Seconds until another try makes sense.
    retry: u64,
}

impl Standing {
    /// As many runs wait as may wait.
    pub(super) fn queued_runs(quota: u32) -> Self {
        Self {
            policy: "queued-runs",
            quota: u64::from(quota),
            window: None,
            remaining: 0,
            reset: None,
            retry: QUEUE_RETRY,
        }
    }

    /// The CPU time of the day (UTC) is used up.
    pub(super) fn cpu_seconds(quota: u64, now: Timestamp) -> Self {
        let passed = now.as_second().rem_euclid(86_400);
        let left = DAY - u64::try_from(passed).unwrap_or(0);
        Self {
            policy: "cpu-seconds",
            quota,
            window: Some(DAY),
            remaining: 0,
            reset: Some(left),
            retry: left,
        }
    }

    /// The CPU time of the day is what the unfinished runs may still use: some is free again when
    /// one of them ends.
    pub(super) fn cpu_reserved(quota: u64) -> Self {
        Self {
            policy: "cpu-seconds",
            quota,
            window: Some(DAY),
            remaining: 0,
            reset: None,
            retry: QUEUE_RETRY,
        }
    }

    /// As many requests are being answered as may be.
    pub(super) fn requests(quota: usize) -> Self {
        Self {
            policy: "requests",
            quota: quota as u64,
            window: None,
            remaining: 0,
            reset: None,
            retry: 1,
        }
    }

    /// There is no room for more.
    pub(super) fn stored_bytes(quota: u64) -> Self {
        Self {
            policy: "stored-bytes",
            quota,
            window: None,
            remaining: 0,
            reset: None,
            retry: STORAGE_RETRY,
        }
    }

    /// `RateLimit-Policy` and `RateLimit`.
    pub(super) fn headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let parameter = |name: &str, value: Option<u64>| {
            value.map_or_else(String::new, |value| format!(";{name}={value}"))
        };
        let policy = format!(
            "\"{}\";q={}{}",
            self.policy,
            self.quota,
            parameter("w", self.window)
        );
        let standing = format!(
            "\"{}\";r={}{}",
            self.policy,
            self.remaining,
            parameter("t", self.reset)
        );
        let named = [(RATE_LIMIT_POLICY, policy), (RATE_LIMIT, standing)];
        named
            .into_iter()
            .filter_map(|(name, text)| Some((name, HeaderValue::from_str(&text).ok()?)))
            .collect()
    }

    /// The same with `Retry-After`, for one that was sent away.
    pub(super) fn refusal_headers(&self) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = self.headers();
        headers.push((RETRY_AFTER, HeaderValue::from(self.retry)));
        headers
    }

    /// Adds the headers to those of an answer.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in self.headers() {
            headers.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(headers: &[(HeaderName, HeaderValue)]) -> Vec<String> {
        let text = |(name, value): &(HeaderName, HeaderValue)| {
            format!("{name}: {}", value.to_str().unwrap())
        };
        headers.iter().map(text).collect()
    }

    /// One that is certain from the beginning.
    fn event(window: &mut Window, at: Instant) -> Result<Standing, Standing> {
        match window.take(at) {
            Take::Granted(number, standing) => {
                window.settle(number, true);
                Ok(standing)
            }
            Take::Refused(standing) => Err(standing),
            Take::Unknown => panic!("everything is known"),
        }
    }

    #[test]
    fn one_more_than_the_quota_is_refused_until_the_oldest_is_old_enough() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs_f64(seconds);
        let mut window = Window::new(3, Duration::from_secs(60));
        for (second, left) in [(0.0, 2), (1.0, 1), (2.0, 0)] {
            assert_eq!(event(&mut window, at(second)).unwrap().remaining, left);
        }
        let refused = event(&mut window, at(42.5)).unwrap_err();
        let expected = [
            "ratelimit-policy: \"default\";q=3;w=60",
            "ratelimit: \"default\";r=0;t=18",
            "retry-after: 18",
        ];
        assert_eq!(texts(&refused.refusal_headers()), expected);
        let granted = event(&mut window, at(60.0)).unwrap();
        let expected = [
            "ratelimit-policy: \"default\";q=3;w=60",
            "ratelimit: \"default\";r=0;t=1",
        ];
        assert_eq!(texts(&granted.headers()), expected);
        assert!(event(&mut window, at(60.9)).is_err());
        assert!(event(&mut window, at(61.0)).is_ok());
        assert!(event(&mut window, at(61.5)).is_err());
    }

    #[test]
    fn nobody_is_refused_for_what_may_turn_out_to_be_no_event() {
        let now = Instant::now();
        let mut window = Window::new(2, Duration::from_secs(60));
        let granted = |window: &mut Window| match window.take(now) {
            Take::Granted(number, _) => number,
            other @ (Take::Refused(_) | Take::Unknown) => panic!("{other:?}"),
        };
        let (first, second) = (granted(&mut window), granted(&mut window));
        assert!(matches!(window.take(now), Take::Unknown));
        window.settle(first, false);
        let third = granted(&mut window);
        window.settle(second, true);
        assert!(matches!(window.take(now), Take::Unknown));
        window.settle(third, true);
        assert!(matches!(window.take(now), Take::Refused(_)));
        // Once it has left the window it does not matter any more.
        let later = now + Duration::from_secs(60);
        assert!(matches!(window.take(later), Take::Granted(..)));
        window.settle(third, false);
        assert!(matches!(window.take(later), Take::Granted(..)));
        assert!(matches!(window.take(later), Take::Unknown));
        // Nor does it keep anybody waiting.
        let much_later = later + Duration::from_secs(60);
        assert!(event(&mut window, much_later).is_ok());
        assert!(event(&mut window, much_later).is_ok());
        assert!(event(&mut window, much_later).is_err());
    }

    #[test]
    fn quotas_that_are_used_up_are_told_with_what_is_known_of_their_end() {
        let noon = Timestamp::from_second(86_400 * 20_000 + 43_200).unwrap();
        for (standing, policy, left, retry) in [
            (
                Standing::queued_runs(7),
                "\"queued-runs\";q=7",
                "\"queued-runs\";r=0",
                "5",
            ),
            (
                Standing::cpu_seconds(100, noon),
                "\"cpu-seconds\";q=100;w=86400",
                "\"cpu-seconds\";r=0;t=43200",
                "43200",
            ),
            (
                Standing::cpu_reserved(100),
                "\"cpu-seconds\";q=100;w=86400",
                "\"cpu-seconds\";r=0",
                "5",
            ),
            (
                Standing::requests(9),
                "\"requests\";q=9",
                "\"requests\";r=0",
                "1",
            ),
            (
                Standing::stored_bytes(1024),
                "\"stored-bytes\";q=1024",
                "\"stored-bytes\";r=0",
                "3600",
            ),
        ] {
            let expected = [
                format!("ratelimit-policy: {policy}"),
                format!("ratelimit: {left}"),
                format!("retry-after: {retry}"),
            ];
            assert_eq!(texts(&standing.refusal_headers()), expected);
        }
    }

    proptest! {
        #[test]
        fn no_window_ever_holds_more_than_the_quota(
            steps in prop::collection::vec(0u64..30_000, 1..200),
            quota in 1usize..10,
        ) {
            let length = Duration::from_secs(60);
            let mut window = Window::new(quota, length);
            let mut now = Instant::now();
            let mut granted: Vec<Instant> = Vec::new();
            for step in steps {
                now += Duration::from_millis(step);
                let recent =
                    granted.iter().filter(|at| now.duration_since(**at) < length).count();
                let answer = event(&mut window, now);
                prop_assert_eq!(answer.is_ok(), recent < quota);
                if answer.is_ok() {
                    granted.push(now);
                }
                prop_assert!(window.taken.len() <= quota);
            }
        }
    }
}
