//! Input that no honest client sends (BR-35, BR-40, BR-41): never a 500, never a stray container.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{QUICK, Seen, all_runs, detail, post_text, sent};
use crate::support::daemon::PATIENCE;
use crate::support::engine::containers_of;
use crate::support::wait::until;
use crate::support::{Daemon, Settings};

async fn connect(daemon: &Daemon) -> TcpStream {
    let address = daemon.address().trim_start_matches("http://");
    TcpStream::connect(address).await.unwrap()
}

/// The head of a `POST /runs` with `length` bytes to follow.
fn head(length: usize) -> String {
    format!(
        "POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// What the daemon says until it closes the connection.
async fn said(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    // A reset after the answer is the daemon's way not to read the rest.
    let _ = read.expect("the connection stays open");
    String::from_utf8(bytes).unwrap()
}

/// Whatever was accepted ends, nothing is on the engine, and the daemon still works.
async fn is_well(daemon: &Daemon) {
    for run in all_runs(daemon).await {
        daemon.ended(run["run_id"].as_str().unwrap()).await;
    }
    assert_eq!(daemon.execute(QUICK).await["status"], "SUCCESS");
    let instance = daemon.instance();
    let left = || containers_of(&instance);
    until(PATIENCE, left, Vec::is_empty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_bodies_are_refused_in_json_and_start_nothing() {
    let daemon = Daemon::start().await;
    let long = "x".repeat(100_000);
    let nested = format!(r#"{{"options": {}"#, r#"{"a":"#.repeat(100_000));
    let table: Vec<(Vec<u8>, u16)> = vec![
        (b"{".to_vec(), 422),
        (b"nonsense".to_vec(), 422),
        (b"\xff\xfe\x00".to_vec(), 422),
        (b"\xef\xbb\xbf{}".to_vec(), 422),
        (b"{\"dataset_path\": \"\xff\"}".to_vec(), 422),
        (b"{\"dataset_path\": \"a\x00b\"}".to_vec(), 422),
        (br#"{"dataset_path": "data/\u0000"}"#.to_vec(), 400),
        (br#"{"dataset_path": "\ud800"}"#.to_vec(), 422),
        (br#"{"code": "\ud800"}"#.to_vec(), 422),
        (br#"{"dataset_path": NaN}"#.to_vec(), 422),
        (br#"{"code": "1", "options": {"cpus": NaN}}"#.to_vec(), 422),
        (
            br#"{"code": "1", "options": {"cpus": Infinity}}"#.to_vec(),
            422,
        ),
        (br#"{"dataset_path": 1e999999}"#.to_vec(), 422),
        (br#"{"code": "1", "code": 2}"#.to_vec(), 422),
        (b"true".to_vec(), 422),
        (b"[]".to_vec(), 422),
        (b"\"text\"".to_vec(), 422),
        (b"17".to_vec(), 422),
        ("[".repeat(100_000).into_bytes(), 422),
        (nested.into_bytes(), 422),
        (format!("[{}1]", "1,".repeat(200_000)).into_bytes(), 422),
        (format!(r#"{{"dataset_path": "{long}"}}"#).into_bytes(), 400),
        (
            format!(r#"{{"dataset_path": "{}"}}"#, "a/".repeat(50_000)).into_bytes(),
            400,
        ),
        (
            format!(r#"{{"dataset_path": "{}"}}"#, "../".repeat(1000)).into_bytes(),
            400,
        ),
        (
            format!(r#"{{"code": "1", "user_instruction": "{long}"}}"#).into_bytes(),
            400,
        ),
        (
            format!(r#"{{"code": "1", "input_files": {{"{long}": "x"}}}}"#).into_bytes(),
            400,
        ),
        (
            format!(r#"{{"code": "1", "expected_output_files": ["{long}"]}}"#).into_bytes(),
            422,
        ),
        (
            format!(r#"{{"code": "1", "options": {{"image": "{long}"}}}}"#).into_bytes(),
            422,
        ),
    ];
    for (body, expected) in table {
        let start: String = String::from_utf8_lossy(&body).chars().take(60).collect();
        let seen = post_text(&daemon, body).await;
        assert_eq!(seen.status, expected, "{start}: {}", seen.text);
        let answer = seen.json();
        assert!(
            answer["detail"].is_array() || answer["detail"].is_string(),
            "{answer}"
        );
        assert!(
            seen.text.len() < 4000,
            "{start}: echoes {} bytes",
            seen.text.len()
        );
    }
    assert_eq!(all_runs(&daemon).await, Vec::<Value>::new());
    is_well(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_content_types_are_refused_without_an_echo() {
    let daemon = Daemon::start().await;
    let body = r#"{"code": "print('SECRET-PROGRAM')"}"#;
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/octet-stream",
        "nonsense",
        "\u{e9}",
    ] {
        let request = daemon.request(Method::POST, "/runs");
        let seen: Seen = sent(request.header("Content-Type", kind.as_bytes()).body(body)).await;
        assert_eq!(seen.status, 422, "{kind}: {}", seen.text);
        assert_eq!(seen.json()["detail"][0]["loc"], json!(["body"]), "{kind}");
        assert!(!seen.text.contains("SECRET-PROGRAM"), "{}", seen.text);
    }
    assert_eq!(all_runs(&daemon).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_above_the_limit_are_413_and_at_the_limit_they_run() {
    let toml = "[api]\nmax_body_bytes = 200000".to_owned();
    let daemon = Daemon::start_with(Settings {
        toml,
        ..Settings::default()
    })
    .await;
    // Declared, and never sent.
    let mut stream = connect(&daemon).await;
    stream.write_all(head(100 << 20).as_bytes()).await.unwrap();
    let answer = said(stream).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(
        answer.ends_with(r#"{"detail":"Request body too large"}"#),
        "{answer}"
    );

    let filled = |size: usize| {
        let frame = r#"{"code": "print(len(open(__file__).read())) #"}"#;
        let rest = "x".repeat(size - frame.len());
        frame.replace('#', &format!("#{rest}"))
    };
    let seen = post_text(&daemon, filled(200_001)).await;
    assert_eq!(
        (seen.status, seen.json()),
        (413, detail("Request body too large"))
    );
    // In chunks nothing declares the size.
    let chunks = [filled(150_000), " ".repeat(50_001)].map(Ok::<_, std::io::Error>);
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let seen = post_text(&daemon, body).await;
    assert_eq!(
        (seen.status, seen.json()),
        (413, detail("Request body too large"))
    );
    assert_eq!(all_runs(&daemon).await, Vec::<Value>::new());

    let body: Value = serde_json::from_str(&filled(200_000)).unwrap();
    let length = body["code"].as_str().unwrap().len();
    let seen = post_text(&daemon, filled(200_000)).await;
    assert_eq!(seen.status, 200, "{}", seen.text);
    let id = seen.json()["run_id"].as_str().unwrap().to_owned();
    assert_eq!(daemon.ended(&id).await["status"], "SUCCESS");
    let (_, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
    let result = &episodes["episodes"][0]["execution_result_summary"];
    assert_eq!(result["stdout_excerpt"], format!("{length}\n"));
}

/// A client that sends everything before it reads anything, as most do.
const CLIENT: &str = "import http.client, sys, time
address, mebibytes, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
def body():
    for _ in range(mebibytes):
        time.sleep(pause)
        yield b' ' * (1 << 20)
connection = http.client.HTTPConnection(address, timeout=60)
connection.request('POST', '/runs', body(), {'Content-Length': str(mebibytes << 20)})
answer = connection.getresponse()
print(answer.status, answer.read().decode())
";

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_far_too_much_gets_the_413_at_any_speed() {
    let daemon = Daemon::start().await;
    let address = daemon.address().trim_start_matches("http://").to_owned();
    let send = async |mebibytes: &str, pause: &str| {
        let mut client = tokio::process::Command::new("python3");
        client.args(["-c", CLIENT, &address, mebibytes, pause]);
        let called = timeout(PATIENCE, client.kill_on_drop(true).output());
        let called = called.await.unwrap().unwrap();
        let told = String::from_utf8(called.stdout).unwrap();
        let wrong = String::from_utf8_lossy(&called.stderr);
        assert_eq!(
            told, "413 {\"detail\":\"Request body too large\"}\n",
            "{wrong}"
        );
    };
    tokio::join!(send("200", "0"), send("20", "0.1"));
    assert_eq!(all_runs(&daemon).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_body_and_then_silence_is_cut_by_a_time_limit() {
    let toml = "[api]\nread_timeout_seconds = 2".to_owned();
    let daemon = Daemon::start_with(Settings {
        toml,
        ..Settings::default()
    })
    .await;
    let body = json!({ "code": QUICK }).to_string();
    let half_body = format!("{}{}", head(body.len()), &body[..body.len() / 2]);
    let half_head = "POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-".to_owned();
    for (sent, answers) in [(half_body, true), (half_head, false)] {
        let start = Instant::now();
        let mut stream = connect(&daemon).await;
        stream.write_all(sent.as_bytes()).await.unwrap();
        let answer = said(stream).await;
        let took = start.elapsed();
        assert!(took > Duration::from_secs(1), "{took:?}");
        assert!(took < Duration::from_secs(20), "{took:?}");
        if answers {
            assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        }
    }
    assert_eq!(all_runs(&daemon).await, Vec::<Value>::new());
    is_well(&daemon).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_aborted_posts_leave_only_whole_runs() {
    let daemon = Daemon::start().await;
    assert_eq!(daemon.execute(QUICK).await["status"], "SUCCESS");
    let before = daemon.descriptors();
    let body = json!({ "code": QUICK }).to_string();
    let whole = format!("{}{body}", head(body.len()));
    let mut complete = 0;
    for number in 0..200 {
        // From within the head, through the body, to the moment before the answer.
        let end = if number % 10 == 9 {
            complete += 1;
            whole.len()
        } else {
            (number * 7919) % whole.len()
        };
        let mut stream = connect(&daemon).await;
        stream.write_all(&whole.as_bytes()[..end]).await.unwrap();
    }
    is_well(&daemon).await;
    let runs = all_runs(&daemon).await;
    assert!(runs.len() <= complete + 2, "{} runs", runs.len());
    for run in &runs {
        assert_eq!(run["status"], "SUCCESS", "{run:#}");
    }
    // The tests' own connection may be one more than before.
    let open = || async { daemon.descriptors() };
    until(PATIENCE, open, |count| *count <= before + 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_is_answered_with_runs_or_with_try_later() {
    let toml = "[app]\nmax_concurrent_runs = 2\nmax_queued_runs = 4".to_owned();
    let daemon = Daemon::start_with(Settings {
        toml,
        ..Settings::default()
    })
    .await;
    let post = |number: usize| {
        let body = json!({ "code": format!("print({number})") });
        let request = daemon.request(Method::POST, "/runs").json(&body);
        async move { (number, sent(request).await) }
    };
    let answers = futures_util::future::join_all((0..60).map(post)).await;
    let mut ids = BTreeSet::new();
    let mut refused = 0;
    for (number, seen) in answers {
        match seen.status {
            200 => {
                let id = seen.json()["run_id"].as_str().unwrap().to_owned();
                assert!(ids.insert((id, number)));
            }
            429 => {
                refused += 1;
                assert_eq!(seen.json(), detail("Too many runs are waiting"));
                let later: u64 = seen.header("retry-after").unwrap().parse().unwrap();
                assert!(later > 0);
            }
            status => panic!("{status}: {}", seen.text),
        }
    }
    assert!(
        ids.len() >= 4 && refused > 0,
        "{} accepted, {refused} refused",
        ids.len()
    );
    for (id, number) in &ids {
        let asked = Instant::now();
        assert_eq!(daemon.get(&format!("/runs/{id}")).await.0, 200);
        assert!(asked.elapsed() < Duration::from_secs(5));
        assert_eq!(daemon.ended(id).await["status"], "SUCCESS");
        let (_, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
        let result = &episodes["episodes"][0]["execution_result_summary"];
        assert_eq!(result["stdout_excerpt"], format!("{number}\n"));
    }
    is_well(&daemon).await;
}
