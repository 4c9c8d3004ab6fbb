//! Tokens and tenants, from outside: who is let in, what each sees, and what each gets.

mod bounds;

mod canaries;

mod crowds;

mod doors;

mod matrix;

mod secrets;

mod tls;

use reqwest::Method;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use crate::command_line::{Called, command_in};
use crate::support::daemon::PATIENCE;
use crate::support::wait::until;
use crate::support::{Daemon, Settings};

const NO_TOKENS: &str = r#"{"version": 1, "tokens": []}"#;

/// A program that is over at once.
const QUICK: &str = "print('done')";

/// A program that runs until somebody ends it.
const ENDLESS: &str = "print('up')\nwhile True:\n    __import__('time').sleep(1)\n";

/// An answer with everything that a client sees of it, less what differs from one to the next.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Seen {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.text))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    #[track_caller]
    fn run_id(&self) -> String {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()["run_id"].as_str().unwrap().to_owned()
    }
}

/// A daemon with tokens and the tenants `alice` and `bob`; `toml` comes after both.
async fn daemon_with(toml: &str) -> Daemon {
    let toml = format!(
        "[auth]\ntokens_file = 'tokens'\n[tenants.alice]\nweight = 1\n[tenants.bob]\nweight = 1\n{toml}"
    );
    Daemon::start_with(Settings {
        toml,
        files: vec![("tokens", NO_TOKENS.to_owned())],
        ..Settings::default()
    })
    .await
}

/// Calls the program in the daemon's directory, with its configuration.
fn call(daemon: &Daemon, arguments: &[&str]) -> Called {
    command_in(daemon.path(), arguments)
        .output()
        .unwrap()
        .into()
}

/// Makes a token, and waits until the daemon knows it.
async fn token(daemon: &Daemon, tenant: &str, role: &str) -> String {
    let token = fresh_token(daemon, &["--tenant", tenant, "--role", role]);
    until_known(daemon, &token).await;
    token
}

/// Makes a token and gives what is printed.
fn fresh_token(daemon: &Daemon, arguments: &[&str]) -> String {
    let mut all = vec!["token", "create"];
    all.extend(arguments);
    let called = call(daemon, &all);
    assert_eq!(called.code, 0, "{called:?}");
    let token = called.stdout.strip_suffix('\n').unwrap().to_owned();
    assert!(token.starts_with("fh_"), "{called:?}");
    assert!(!called.stderr.contains(&token), "{called:?}");
    token
}

async fn until_known(daemon: &Daemon, token: &str) {
    let ask = || ask(daemon, Method::GET, "/ready", Some(token));
    until(PATIENCE, ask, |seen| seen.status != 401).await;
}

async fn until_refused(daemon: &Daemon, token: &str) {
    let ask = || ask(daemon, Method::GET, "/ready", Some(token));
    until(PATIENCE, ask, |seen| seen.status == 401).await;
}

/// The public part of a token.
fn key_of(token: &str) -> &str {
    &token[3..15]
}

async fn sent(request: reqwest::RequestBuilder) -> Seen {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let mut headers = response.headers().clone();
    headers.remove("date");
    let bytes = response.bytes().await.unwrap().to_vec();
    let text = String::from_utf8(bytes).expect("answers are UTF-8");
    Seen {
        status,
        headers,
        text,
    }
}

async fn ask(daemon: &Daemon, method: Method, path: &str, token: Option<&str>) -> Seen {
    let request = daemon.request(method, path);
    sent(match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    })
    .await
}

async fn submit(daemon: &Daemon, token: &str, code: &str) -> Seen {
    let request = daemon.request(Method::POST, "/runs").bearer_auth(token);
    sent(request.json(&json!({ "code": code }))).await
}

/// Waits until a run has ended.
async fn ended(daemon: &Daemon, token: &str, id: &str) -> Value {
    let path = format!("/runs/{id}");
    let ask = || async { ask(daemon, Method::GET, &path, Some(token)).await.json() };
    let is_over = |run: &Value| !["QUEUED", "RUNNING"].contains(&run["status"].as_str().unwrap());
    until(PATIENCE, ask, is_over).await
}

/// Cancels a run and waits for its end.
async fn cancelled(daemon: &Daemon, token: &str, id: &str) {
    let path = format!("/runs/{id}/cancel");
    ask(daemon, Method::POST, &path, Some(token)).await;
    ended(daemon, token, id).await;
}
