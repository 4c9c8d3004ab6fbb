//! The real client against a server that does what a test tells it.

mod server;

use std::time::{Duration, Instant};

use serde::Deserialize;

use self::server::{Script, Server, Step};
use super::*;
use crate::runs::task::ModelUsage;
use crate::secret::Secret;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Colour {
    name: String,
}

impl Answer for Colour {
    const SCHEMA: &'static str = r#"{"type": "object"}"#;
}

const KEY: &str = "CANARY_key_0123456789abcdef0123456789abcdef";

/// A second of these tests, and what one attempt may take in them.
const SECOND: Duration = Duration::from_millis(20);
const ATTEMPT: Duration = Duration::from_secs(2);

fn settings(base_url: String) -> ClientSettings {
    ClientSettings {
        base_url,
        model: "test-model".to_owned(),
        key: Some(Secret::new(KEY.to_owned())),
        extra_certificates: None,
        prices: Some(Prices {
            prompt: 1.0,
            completion: 2.0,
        }),
        pace: Pace {
            attempt: ATTEMPT,
            second: SECOND,
        },
    }
}

async fn ask(base_url: String) -> Asked<Colour> {
    let client = ModelClient::new(&settings(base_url)).unwrap();
    let question = Message::new(Role::User, "Which colour?".to_owned());
    let asked = client.ask(vec![question]).await;
    // Whatever happened, the key is in nothing that anybody could print.
    assert!(!format!("{client:?} {asked:?}").contains("CANARY"));
    asked
}

/// Asks a server with this script; gives the answer and what the server got.
async fn talk(steps: Vec<Step>) -> (Asked<Colour>, Script) {
    let server = Server::start(steps, None).await;
    let asked = ask(server.base_url()).await;
    (asked, server.stop().await)
}

fn completion(text: &str) -> String {
    serde_json::json!({
        "id": "x",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
    })
    .to_string()
}

const RED: &str = r#"{"name": "red"}"#;

fn red() -> Step {
    Step::answer(&completion(RED))
}

fn is_red(asked: &Asked<Colour>) -> bool {
    asked
        .answer
        .as_ref()
        .is_ok_and(|colour| colour.name == "red")
}

/// Nothing but the time that it took.
fn timed(asked: &Asked<Colour>) -> ModelUsage {
    ModelUsage {
        seconds: asked.usage.seconds,
        ..ModelUsage::default()
    }
}

fn no_answer(asked: &Asked<Colour>) -> &str {
    match &asked.answer {
        Err(ModelError::NoAnswer(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_good_answer_is_read_and_its_tokens_are_counted() {
    let (asked, script) = talk(vec![red()]).await;
    assert!(is_red(&asked), "{asked:?}");
    let expected = ModelUsage {
        calls: 1,
        prompt_tokens: 11,
        completion_tokens: 5,
        cost: Some(21e-6),
        ..timed(&asked)
    };
    assert_eq!(asked.usage, expected);
    assert!(asked.usage.seconds > 0.0);

    let request = &script.requests[0];
    assert!(
        request
            .head
            .starts_with("POST /v1/chat/completions HTTP/1.1\r\n")
    );
    let head = request.head.to_lowercase();
    assert!(head.contains(&format!("authorization: bearer {}", KEY.to_lowercase())));
    assert!(!head.contains("accept-encoding"), "{head}");
    let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
    assert_eq!(body["model"], "test-model");
    assert_eq!(body["messages"][0]["role"], "user");
    assert_eq!(body["messages"][0]["content"], "Which colour?");
}

#[tokio::test]
async fn json_in_a_fence_and_prose_around_it_are_understood() {
    for text in [
        "```json\n{\"name\": \"red\"}\n```",
        "Gladly. {\"name\": \"red\"} Is there more?",
    ] {
        let (asked, script) = talk(vec![Step::answer(&completion(text))]).await;
        assert!(is_red(&asked), "{asked:?}");
        assert_eq!(script.requests.len(), 1);
    }
}

#[tokio::test]
async fn an_answer_of_another_shape_is_asked_for_again_with_what_is_wrong() {
    let wrong = Step::answer(&completion(r#"{"colour": "red"}"#));
    let (asked, script) = talk(vec![wrong.clone(), red()]).await;
    assert!(is_red(&asked), "{asked:?}");
    assert_eq!((asked.usage.calls, asked.usage.prompt_tokens), (2, 22));
    let second: serde_json::Value = serde_json::from_str(&script.requests[1].body).unwrap();
    let messages = second["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 3);
    assert_eq!(messages[1]["role"], "assistant");
    let correction = messages[2]["content"].as_str().unwrap();
    assert!(
        correction.contains("unknown field `colour`"),
        "{correction}"
    );

    // Three times, no more, and the conversation does not grow.
    let (asked, script) = talk(vec![wrong.clone(), wrong.clone(), wrong, red()]).await;
    assert_eq!(asked.answer, Err(ModelError::Invalid));
    assert_eq!(script.requests.len(), 3);
    let third: serde_json::Value = serde_json::from_str(&script.requests[2].body).unwrap();
    assert_eq!(third["messages"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_server_that_is_busy_is_asked_again_after_the_pause_it_asks_for() {
    let busy = Step::status(429, "retry-after: 5\r\n");
    let begun = Instant::now();
    let (asked, script) = talk(vec![busy, red()]).await;
    assert!(is_red(&asked), "{asked:?}");
    assert_eq!(script.requests.len(), 2);
    assert!(begun.elapsed() >= 5 * SECOND);
    // It is what came of the answered call that counts.
    assert_eq!(asked.usage.calls, 1);
}

#[tokio::test]
async fn a_client_knows_what_everybody_has_asked_with_it() {
    let steps = vec![Step::status(500, ""), red(), red(), Step::status(401, "")];
    let server = Server::start(steps, None).await;
    let client = ModelClient::new(&settings(server.base_url())).unwrap();
    let other = client.clone();
    for client in [&client, &other, &client] {
        drop(client.ask::<Colour>(Vec::new()).await);
    }
    let totals = other.totals();
    assert_eq!((totals.usage.calls, totals.failures), (2, 2));
    assert_eq!(totals.usage.prompt_tokens, 22);
    assert!((totals.usage.cost.unwrap() - 42e-6).abs() < 1e-12);
    drop(server.stop().await);
}

#[tokio::test]
async fn failures_that_may_pass_are_tried_three_times() {
    for status in [500, 502, 503, 504] {
        let begun = Instant::now();
        let step = Step::status(status, "");
        let (asked, script) = talk(vec![step.clone(), step.clone(), step, red()]).await;
        assert!(no_answer(&asked).contains(&status.to_string()));
        assert_eq!(script.requests.len(), 3);
        assert!(begun.elapsed() >= 3 * SECOND);
    }
    let (asked, _) = talk(vec![Step::status(500, ""), Step::status(502, ""), red()]).await;
    assert!(is_red(&asked));
}

#[tokio::test]
async fn other_statuses_fail_at_once() {
    for status in [201, 400, 401, 403, 404, 409, 422, 501] {
        let (asked, script) = talk(vec![Step::status(status, ""), red()]).await;
        assert!(no_answer(&asked).contains(&status.to_string()));
        assert_eq!(script.requests.len(), 1);
    }
}

#[tokio::test]
async fn what_a_refusal_says_is_not_passed_on() {
    let step = Step::raw(format!(
        "HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\n\r\n{KEY}",
        KEY.len()
    ));
    let (asked, _) = talk(vec![step]).await;
    assert_eq!(
        no_answer(&asked),
        "the model's server answered with status 401"
    );
}

#[tokio::test]
async fn a_key_that_the_model_repeats_is_neither_answered_nor_asked_back() {
    let says = |name: &str| Step::answer(&completion(&format!(r#"{{"{name}": "{KEY}"}}"#)));
    let (asked, script) = talk(vec![says("colour"), says("name")]).await;
    assert_eq!(asked.answer.unwrap().name, "[REDACTED]");
    assert!(!script.requests[1].body.contains(KEY));
    assert!(script.requests[1].body.contains("[REDACTED]"));

    // Nor in letters that JSON writes otherwise.
    let escaped = format!(
        r#"{{"name": "\u{:04x}{}"}}"#,
        u32::from(KEY.as_bytes()[0]),
        &KEY[1..]
    );
    let (asked, _) = talk(vec![Step::answer(&completion(&escaped))]).await;
    assert_eq!(asked.answer.unwrap().name, "[REDACTED]");

    // Nobody takes out what is not known to be a key.
    let server = Server::start(vec![says("name")], None).await;
    let keyless = ClientSettings {
        key: None,
        ..settings(server.base_url())
    };
    let asked: Asked<Colour> = ModelClient::new(&keyless).unwrap().ask(Vec::new()).await;
    assert_eq!(asked.answer.unwrap().name, KEY);
    drop(server.stop().await);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Server::start(vec![red()], None).await;
    let to = format!("location: {}/chat/completions\r\n", elsewhere.base_url());
    for status in [301, 302, 307, 308] {
        let (asked, script) = talk(vec![Step::status(status, &to), red()]).await;
        assert!(no_answer(&asked).contains(&status.to_string()));
        assert_eq!(script.requests.len(), 1);
    }
    assert_eq!(elsewhere.stop().await.requests.len(), 0);
}

#[tokio::test]
async fn a_server_that_hangs_is_given_up_in_time() {
    let server = Server::start(vec![Step::Hang, Step::Hang, Step::Hang], None).await;
    let mut settings = settings(server.base_url());
    settings.pace.attempt = Duration::from_millis(150);
    let client = ModelClient::new(&settings).unwrap();
    let begun = Instant::now();
    let asked: Asked<Colour> = client.ask(Vec::new()).await;
    assert_eq!(no_answer(&asked), "the model did not answer within 0.15 s");
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(server.stop().await.requests.len(), 3);
}

#[tokio::test]
async fn a_server_that_drips_is_given_up_in_time() {
    let server = Server::start(vec![Step::Drip, Step::Drip, Step::Drip], None).await;
    let mut settings = settings(server.base_url());
    settings.pace.attempt = Duration::from_millis(150);
    let client = ModelClient::new(&settings).unwrap();
    let asked: Asked<Colour> = client.ask(Vec::new()).await;
    assert!(no_answer(&asked).contains("within 0.15 s"));
    drop(server.stop().await);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_asked_for_again() {
    let body = completion(RED);
    let cut = Step::raw(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{}",
        body.len(),
        &body[..body.len() / 2]
    ));
    let (asked, script) = talk(vec![cut.clone(), red()]).await;
    assert!(is_red(&asked), "{asked:?}");
    assert_eq!(script.requests.len(), 2);
    let (asked, _) = talk(vec![cut.clone(), cut.clone(), cut]).await;
    assert_eq!(no_answer(&asked), "the model's answer broke off");
}

#[tokio::test]
async fn what_is_no_chat_completion_is_asked_for_again() {
    for body in [
        "",
        "<html>",
        "{}",
        r#"{"choices": []}"#,
        r#"{"choices": [{"message": {}}]}"#,
        r#"{"choices": [{"message": {"content": "\ud800"}}]}"#,
        r#"{"choices": [{"message": {"content": "{}"}}], "usage": {"prompt_tokens": -1, "completion_tokens": 1e400}}"#,
        &"[".repeat(100_000),
    ] {
        let (asked, script) = talk(vec![Step::answer(body), red()]).await;
        assert!(is_red(&asked), "{body}: {asked:?}");
        assert_eq!(script.requests.len(), 2);
    }
}

#[tokio::test]
async fn an_answer_without_a_count_is_estimated_and_says_so() {
    let body = r#"{"choices": [{"message": {"content": "{\"name\": \"red\"}"}}]}"#;
    let (asked, _) = talk(vec![Step::answer(body)]).await;
    assert!(is_red(&asked));
    let usage = asked.usage;
    assert_eq!((usage.uncounted_calls, usage.prompt_tokens), (1, 0));
    assert!(usage.estimated_tokens > 0 && usage.cost.is_none());
}

#[tokio::test]
async fn a_huge_answer_is_not_read() {
    // Announced, or not.
    let huge = completion(&"x".repeat(10 << 20));
    for step in [Step::answer(&huge), Step::chunked(&huge)] {
        let (asked, script) = talk(vec![step, red()]).await;
        assert_eq!(
            no_answer(&asked),
            "the model's answer is larger than 1024 KiB"
        );
        assert_eq!(script.requests.len(), 1);
    }
}

#[tokio::test]
async fn only_a_trusted_certificate_is_talked_to() {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = certified.cert.pem().into_bytes();
    let address = |server: &Server| format!("https://localhost:{}/v1", server.port());

    let server = Server::start(vec![red()], Some(&certified)).await;
    let asked = ask(address(&server)).await;
    assert_eq!(no_answer(&asked), "the model's server cannot be reached");
    assert_eq!(server.stop().await.requests.len(), 0);

    // The same server, trusted.
    let server = Server::start(vec![red()], Some(&certified)).await;
    let trusting = ClientSettings {
        extra_certificates: Some(pem.clone()),
        ..settings(address(&server))
    };
    let client = ModelClient::new(&trusting).unwrap();
    let asked: Asked<Colour> = client.ask(Vec::new()).await;
    assert!(is_red(&asked), "{asked:?}");
    drop(server.stop().await);

    // By another name it is another server.
    let server = Server::start(vec![red()], Some(&certified)).await;
    let other_name = ClientSettings {
        base_url: format!("https://127.0.0.1:{}/v1", server.port()),
        extra_certificates: Some(pem),
        ..trusting
    };
    let client = ModelClient::new(&other_name).unwrap();
    let asked: Asked<Colour> = client.ask(Vec::new()).await;
    assert_eq!(no_answer(&asked), "the model's server cannot be reached");
    drop(server.stop().await);
}

#[tokio::test]
async fn nobody_there_is_no_answer() {
    let server = Server::start(Vec::new(), None).await;
    let address = server.base_url();
    drop(server.stop().await);
    let asked = ask(address).await;
    assert_eq!(no_answer(&asked), "the model's server cannot be reached");
    // It has cost time, and nothing else.
    assert_eq!(asked.usage, timed(&asked));
    assert!(asked.usage.seconds >= 3.0 * SECOND.as_secs_f64());
}

#[test]
fn settings_that_make_no_client_say_why() {
    for base_url in [
        "",
        "localhost",
        "ftp://host/v1",
        "file:///etc/passwd",
        "http://",
    ] {
        let error = ModelClient::new(&settings(base_url.to_owned())).unwrap_err();
        assert!(
            matches!(error, SettingsError::Address),
            "{base_url}: {error}"
        );
    }
    let mut with_key = settings("http://127.0.0.1/v1".to_owned());
    with_key.key = Some(Secret::new("a\nb".to_owned()));
    let error = ModelClient::new(&with_key).unwrap_err();
    assert!(matches!(error, SettingsError::Key));
}
