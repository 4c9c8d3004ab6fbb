//! `GET /runs/{run_id}/events`: what happens in a run, as server-sent events.
//!
//! A reader follows at its own pace and holds nothing but a place in the run's bounded log. The
//! stream ends after the run's last event, when the daemon goes down, or when the token with which it
//! was asked for is good no more; a client that comes back
//! with `Last-Event-ID` goes on from there.

use std::collections::HashMap;
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
        .subscribe(caller.tenant_id(), id, last_event_id(&headers))
        .await?
        .ok_or(ApiError::RunNotFound)?;
    let follower = Follower {
        subscription,
        encoder: Encoder::default(),
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

fn last_event_id(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}

struct Follower {
    subscription: Subscription,
    encoder: Encoder,
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
            Ok(delivery) => Some(self.encoder.encode(delivery?).into()),
            Err(_) => Some(Bytes::from_static(b": still here\n\n")),
        }
    }
}

/// Writes events as text. Output arrives in pieces that may end within a character, whose begin is
/// then kept for the next piece of the same stream.
#[derive(Default)]
struct Encoder {
    begun: HashMap<&'static str, Vec<u8>>,
}

impl Encoder {
    fn encode(&mut self, delivery: Delivery) -> String {
        let (id, event) = match delivery {
            Delivery::Gap => {
                self.begun.clear();
                return frame(None, "gap", &json!({}));
            }
            Delivery::Event { id, event } => (Some(id), event),
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
                let text = self.text(stream, bytes);
                frame(id, "output", &json!({ "stream": stream, "text": text }))
            }
            RunEvent::ExecutionEnded(execution, status) => {
                let mut frames = self.rest();
                let data = json!({ "execution_id": execution.as_str(), "status": status });
                frames.push_str(&frame(id, "execution_ended", &data));
                frames
            }
        }
    }

    fn text(&mut self, stream: &'static str, bytes: &[u8]) -> String {
        let mut all = self.begun.remove(stream).unwrap_or_default();
        all.extend_from_slice(bytes);
        let begun = begun_character(&all);
        let rest = all.split_off(all.len() - begun);
        if !rest.is_empty() {
            self.begun.insert(stream, rest);
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Characters that were begun and never completed.
    fn rest(&mut self) -> String {
        let mut frames = String::new();
        for stream in ["stdout", "stderr"] {
            if let Some(bytes) = self.begun.remove(stream) {
                let text = String::from_utf8_lossy(&bytes);
                let data = json!({ "stream": stream, "text": text });
                frames.push_str(&frame(None, "output", &data));
            }
        }
        frames
    }
}

/// How many of the last bytes are the begin of a character.
fn begun_character(bytes: &[u8]) -> usize {
    (1..=bytes.len().min(3))
        .find(|&count| {
            let end = &bytes[bytes.len() - count..];
            std::str::from_utf8(end)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        })
        .unwrap_or(0)
}

/// JSON text has no line end in it, so the data is always one line.
fn frame(id: Option<u64>, name: &str, data: &Value) -> String {
    let id = id.map_or_else(String::new, |id| format!("id: {id}\n"));
    format!("{id}event: {name}\ndata: {data}\n\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::ExecutionId;

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
        let mut encoder = Encoder::default();
        let text = encoder.encode(event(1, RunEvent::Status("QUEUED")));
        assert_eq!(
            text,
            "id: 1\nevent: status\ndata: {\"status\":\"QUEUED\"}\n\n"
        );
        let text = encoder.encode(output(2, Stream::Stderr, b"a\nb\r\n\x00\x1b\ndata: x\n\n"));
        let data = r#"{"stream":"stderr","text":"a\nb\r\n\u0000\u001b\ndata: x\n\n"}"#;
        assert_eq!(text, format!("id: 2\nevent: output\ndata: {data}\n\n"));
        assert_eq!(encoder.encode(Delivery::Gap), "event: gap\ndata: {}\n\n");
    }

    #[test]
    fn characters_cut_between_pieces_come_out_whole() {
        let mut encoder = Encoder::default();
        let mut text = |stream, bytes: &[u8]| {
            let frame = encoder.encode(output(1, stream, bytes));
            let data = frame.split("data: ").nth(1).unwrap();
            let data: Value = serde_json::from_str(data).unwrap();
            data["text"].as_str().unwrap().to_owned()
        };
        let rocket = "🚀".as_bytes();
        assert_eq!(text(Stream::Stdout, &rocket[..1]), "");
        assert_eq!(text(Stream::Stderr, b"other"), "other");
        assert_eq!(text(Stream::Stdout, &rocket[1..3]), "");
        assert_eq!(text(Stream::Stdout, &rocket[3..]), "🚀");
        assert_eq!(text(Stream::Stdout, b"\xff\xfe"), "\u{fffd}\u{fffd}");
        assert_eq!(text(Stream::Stdout, b"\xe2\x98"), "");
        let id = ExecutionId::random();
        let ended = RunEvent::ExecutionEnded(id, "SUCCESS");
        let frames = encoder.encode(event(9, ended));
        assert!(
            frames
                .starts_with("event: output\ndata: {\"stream\":\"stdout\",\"text\":\"\u{fffd}\"}")
        );
        assert!(frames.contains("id: 9\nevent: execution_ended\n"));
    }
}
