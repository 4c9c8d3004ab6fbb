//! `GET /runs/{run_id}/events`: what happens in a run, as server-sent events.
//!
//! A reader follows at its own pace and holds nothing but a place in the run's bounded log. The
//! stream ends after the run's last event, when the daemon goes down, or when the token with which it
//! was asked for is good no more; a client that comes back
//! with `Last-Event-ID` goes on from there, or is told that something is missing (`gap`) and gets
//! everything that is kept.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use fumehood_protocol::message::Stream;
use futures_util::stream;
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::ApiState;
use crate::api::error::ApiError;
use crate::api::extract::PathRun;
use crate::api::identity::{Caller, Credential};
use crate::runs::events::{Delivery, RunEvent, Subscription};

/// Silence after which a comment shows that the connection is alive, and finds out if it is not.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// `GET /runs/{run_id}/events`
pub(crate) async fn events(
    State(state): State<ApiState>,
    caller: Caller,
    PathRun(id): PathRun,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let place = state
        .long_answers
        .clone()
        .try_acquire_owned()
        .map_err(|_| ApiError::TooManyStreams)?;
    let subscription = state
        .runs
        .subscribe(caller.tenant_id(), id, state.life.last_event(&headers))
        .await?
        .ok_or(ApiError::RunNotFound)?;
    let follower = Follower {
        subscription,
        life: state.life,
        credential: caller.credential,
        shutdown: state.shutdown.clone(),
        _place: place,
    };
    let frames = stream::unfold(follower, |mut follower| async {
        let frame = follower.next().await?;
        Some((Ok::<_, Infallible>(frame), follower))
    });
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        // Reverse proxies would otherwise collect events before they pass them on.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(frames)).into_response())
}

/// Events are counted anew with each start of the daemon, so their ids name it, too: what a client had
/// of an earlier one is never taken for a place in this one's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) struct Life(u32);

impl Life {
    /// Of this start of the daemon.
    pub(in crate::api) fn random() -> Self {
        Self(rand::rng().random())
    }

    fn id(self, number: u64) -> String {
        format!("{:08x}-{number}", self.0)
    }

    /// The last event that a client had; of another life, or of none: one that is never reached, so
    /// that it is told that it missed something, and gets everything that is kept.
    fn last_event(self, headers: &HeaderMap) -> Option<u64> {
        let text = headers.get("last-event-id")?.to_str().ok()?;
        if text.is_empty() {
            return None;
        }
        let number = text
            .strip_prefix(&self.id(0)[..9])
            .and_then(|number| number.parse().ok());
        Some(number.unwrap_or(u64::MAX))
    }
}

struct Follower {
    subscription: Subscription,
    life: Life,
    credential: Credential,
    shutdown: CancellationToken,
    /// Given back when the stream is dropped.
    _place: OwnedSemaphorePermit,
}

impl Follower {
    async fn next(&mut self) -> Option<Bytes> {
        let delivery = timeout(HEARTBEAT, self.subscription.next());
        let next = tokio::select! {
            // Asked first, and so before each frame: however much there is to tell, it is told to
            // nobody whose token is good no more.
            biased;
            _ended = self.credential.ended() => return None,
            next = self.shutdown.run_until_cancelled(delivery) => next,
        };
        match next? {
            Ok(delivery) => Some(encoded(self.life, delivery?).into()),
            Err(_) => Some(Bytes::from_static(b": still here\n\n")),
        }
    }
}

fn encoded(life: Life, delivery: Delivery) -> String {
    let (id, event) = match delivery {
        Delivery::Gap => return frame(None, "gap", &json!({})),
        Delivery::Event { id, event } => (Some(life.id(id)), event),
    };
    match &*event {
        RunEvent::Status(status) => frame(id, "status", &json!({ "status": status })),
        RunEvent::ExecutionStarted(execution) => {
            let data = json!({ "execution_id": execution.as_str() });
            frame(id, "execution_started", &data)
        }
        RunEvent::Output { stream, bytes } => {
            let stream = match stream {
                Stream::Stdout => "stdout",
                Stream::Stderr => "stderr",
            };
            let text = String::from_utf8_lossy(bytes);
            frame(id, "output", &json!({ "stream": stream, "text": text }))
        }
        RunEvent::ExecutionEnded(execution, status) => {
            let data = json!({ "execution_id": execution.as_str(), "status": status });
            frame(id, "execution_ended", &data)
        }
    }
}

/// JSON text has no line end in it, so the data is always one line.
fn frame(id: Option<String>, name: &str, data: &Value) -> String {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    format!("{id}event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn event(id: u64, event: RunEvent) -> Delivery {
        let event = Arc::new(event);
        Delivery::Event { id, event }
    }

    fn output(id: u64, stream: Stream, bytes: &[u8]) -> Delivery {
        let bytes = bytes.to_vec();
        event(id, RunEvent::Output { stream, bytes })
    }

    #[test]
    fn events_are_one_line_of_json_each() {
        let life = Life(0xab);
        let text = encoded(life, event(1, RunEvent::Status("QUEUED")));
        assert_eq!(
            text,
            "id: 000000ab-1\nevent: status\ndata: {\"status\":\"QUEUED\"}\n\n"
        );
        let bytes = b"a\nb\r\n\x00\x1b\xff\ndata: x\n\n";
        let text = encoded(life, output(2, Stream::Stderr, bytes));
        let data = "{\"stream\":\"stderr\",\"text\":\"a\\nb\\r\\n\\u0000\\u001b\u{fffd}\\ndata: x\\n\\n\"}";
        assert_eq!(
            text,
            format!("id: 000000ab-2\nevent: output\ndata: {data}\n\n")
        );
        assert_eq!(encoded(life, Delivery::Gap), "event: gap\ndata: {}\n\n");
    }

    #[test]
    fn only_an_id_of_this_life_is_a_place_in_its_events() {
        let life = Life(7);
        let asked = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("last-event-id", text.parse().unwrap());
            life.last_event(&headers)
        };
        assert_eq!(life.last_event(&HeaderMap::new()), None);
        assert_eq!(asked(""), None);
        assert_eq!(asked(&life.id(12)), Some(12));
        for text in [
            &*Life(8).id(12),
            "12",
            "x",
            "-1",
            "00000007-",
            "00000007-x",
            "00000007",
        ] {
            assert_eq!(asked(text), Some(u64::MAX), "{text}");
        }
    }
}
