//! The REST surface (contract section 1), as a client sees it.

mod cancelling;

mod events;

mod listing;

mod metrics;

mod odd_input;

mod repeating;

mod secrecy;

mod shapes;

mod transport;

mod traversal;

mod validation;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::support::daemon::PATIENCE;
use crate::support::wait::until;
use crate::support::{Daemon, Settings};

/// A program that runs until somebody ends it.
const ENDLESS: &str = "print('up')\nwhile True:\n    __import__('time').sleep(1)\n";

/// A program that is over at once.
const QUICK: &str = "print('done')";

/// An answer with everything that a client sees of it.
#[derive(Debug)]
struct Seen {
    status: u16,
    headers: reqwest::header::HeaderMap,
    text: String,
}

impl Seen {
    /// The body as strict JSON.
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.text))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

async fn sent(request: RequestBuilder) -> Seen {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let bytes = response.bytes().await.unwrap().to_vec();
    let text = String::from_utf8(bytes).expect("answers are UTF-8");
    Seen {
        status,
        headers,
        text,
    }
}

/// `POST /runs` of a text that need not be JSON.
async fn post_text(daemon: &Daemon, body: impl Into<reqwest::Body>) -> Seen {
    let request = daemon
        .request(Method::POST, "/runs")
        .header("Content-Type", "application/json");
    sent(request.body(body)).await
}

/// A daemon that carries out one run at a time.
async fn one_at_a_time() -> Daemon {
    let toml = "[app]\nmax_concurrent_runs = 1".to_owned();
    Daemon::start_with(Settings {
        toml,
        ..Settings::default()
    })
    .await
}

/// Starts a program that stays, and waits until it runs.
async fn blocker(daemon: &Daemon) -> String {
    let id = daemon.submit(json!({ "code": ENDLESS })).await;
    let ask = || async { daemon.get(&format!("/runs/{id}")).await.1 };
    until(PATIENCE, ask, |run| run["status"] == "RUNNING").await;
    id
}

async fn cancel(daemon: &Daemon, id: &str) -> (u16, Value) {
    daemon
        .post(&format!("/runs/{id}/cancel"), &Value::Null)
        .await
}

/// Ids of all runs, newest first.
async fn all_runs(daemon: &Daemon) -> Vec<Value> {
    let (status, page) = daemon.get("/runs?limit=100").await;
    assert_eq!((status, &page["next_cursor"]), (200, &Value::Null));
    page["runs"].as_array().unwrap().clone()
}

fn detail(text: &str) -> Value {
    json!({ "detail": text })
}

#[track_caller]
fn keys(value: &Value) -> Vec<&str> {
    let fields = value.as_object().unwrap();
    fields.keys().map(String::as_str).collect()
}
