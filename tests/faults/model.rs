//! The model's endpoint refuses, fails, breaks off, floods, hangs and lies (security.md 3.4, F19): what the
//! real client does about it is in the daemon's own tests, here it is what a run makes of it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::data::give;
use crate::support::model::{GOOD, completion, usual};
use crate::support::{Daemon, Settings};

const KEY: &str = "CANARY_llm_key_51c0ffee51c0ffee51c0ffee";

/// What the endpoint does with a question.
#[derive(Debug, Clone)]
enum Manner {
    /// Sends this and closes.
    Says(Vec<u8>),
    /// Answers 200 and goes on for ever.
    Floods,
    /// Takes the question, and that is all.
    Hangs,
    /// As it should.
    Behaves,
}

struct Endpoint {
    port: u16,
    manner: Arc<Mutex<Manner>>,
    questions: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let manner = Arc::new(Mutex::new(Manner::Behaves));
        let questions: Arc<Mutex<Vec<String>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let shared = (
            Arc::clone(&manner),
            Arc::clone(&questions),
            Arc::clone(&stop),
        );
        let thread = std::thread::spawn(move || {
            let (manner, questions, stop) = shared;
            let mut serving = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let manner = manner.lock().unwrap().clone();
                let (questions, stop) = (Arc::clone(&questions), Arc::clone(&stop));
                serving.push(std::thread::spawn(move || {
                    serve(stream, &manner, &questions, &stop);
                }));
            }
            for thread in serving {
                thread.join().unwrap();
            }
        });
        Self {
            port,
            manner,
            questions,
            stop,
            thread: Some(thread),
        }
    }

    /// From now on; forgets what it was asked.
    fn be(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
        self.questions.lock().unwrap().clear();
    }

    fn asked(&self) -> usize {
        self.questions.lock().unwrap().len()
    }

    /// A daemon whose programs it writes.
    async fn daemon(&self, scheme: &str, toml: &str) -> Daemon {
        let daemon = Daemon::start_with(Settings {
            toml: format!(
                "[llm]\nmode = 'real'\nbase_url = '{scheme}://127.0.0.1:{}/v1'\nmodel = 'm'\n{toml}",
                self.port
            ),
            environment: vec![("OPENAI_API_KEY", KEY.to_owned())],
            log: Some("trace"),
            ..Settings::default()
        })
        .await;
        give(&daemon, "wine");
        daemon
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads a question; `None` if it is none.
fn question(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = stream.read(&mut chunk).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let head = head.to_lowercase();
        let (_, length) = head.split_once("content-length: ")?;
        let length: usize = length.lines().next()?.parse().ok()?;
        if body.len() >= length {
            return Some(text);
        }
    }
}

fn serve(
    mut stream: TcpStream,
    manner: &Manner,
    questions: &Mutex<Vec<String>>,
    stop: &AtomicBool,
) {
    stream
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let Some(question) = question(&mut stream) else {
        // Not HTTP: whoever wants TLS hears something else.
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        return;
    };
    questions.lock().unwrap().push(question.clone());
    match manner {
        Manner::Says(text) => {
            let _ = stream.write_all(text);
        }
        Manner::Floods => {
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"choices\": [";
            let _ = stream.write_all(head.as_bytes());
            let block = [b' '; 1 << 16];
            while !stop.load(Ordering::SeqCst) && stream.write_all(&block).is_ok() {}
        }
        Manner::Hangs => {
            let mut rest = [0; 64];
            // Until whoever asked goes away.
            while !stop.load(Ordering::SeqCst) && !matches!(stream.read(&mut rest), Ok(0)) {}
        }
        Manner::Behaves => {
            let kind = if question.contains("\\\"decision\\\"") {
                "judgement"
            } else {
                "program"
            };
            let (_, body) = usual(kind, 1, GOOD);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all((head + &body).as_bytes());
        }
    }
}

fn status(status: u16, headers: &str, body: impl Into<Vec<u8>>) -> Manner {
    let body = body.into();
    let head = format!(
        "HTTP/1.1 {status} As Told\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    Manner::Says([head.into_bytes(), body].concat())
}

/// An answer of the expected form with this text in it.
fn says(text: &str) -> Manner {
    status(200, "", completion(text))
}

async fn run(daemon: &Daemon) -> Value {
    let body = json!({"dataset_path": "data/wine"});
    let id = daemon.submit(body).await;
    daemon.ended(&id).await
}

const WHY: &str = "The program could not be written: llm_error: ";

/// That run says why it failed, after so many questions, and everything else works.
async fn assert_told(daemon: &Daemon, run: &Value, why: &str) {
    assert_eq!(run["status"], "FAIL", "{run:#}");
    assert_eq!(run["iterations"], 0, "{run:#}");
    assert_eq!(run["final_error"], format!("{WHY}{why}."), "{run:#}");
    let id = run["run_id"].as_str().unwrap();
    let (_, episodes) = daemon.get(&format!("/runs/{id}/episodes")).await;
    for text in [run.to_string(), episodes.to_string(), daemon.log()] {
        assert!(!text.contains("CANARY"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f19_whatever_the_models_endpoint_answers_a_run_ends_with_a_reason_and_the_next_one_works()
{
    let endpoint = Endpoint::start();
    let daemon = endpoint.daemon("http", "").await;
    let refused = |number: u16| format!("the model's server answered with status {number}");
    let cut = "HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{\"choices\": [{\"mess";
    let aside = format!("location: http://127.0.0.1:{}/elsewhere\r\n", endpoint.port);
    let no_completion = "the model's server did not answer with a chat completion";
    let invalid = "the model's answers were not of the expected form";
    let deep = "{\"code\": ".repeat(50_000);
    let long = json!({"code": "x".repeat(300 << 10)}).to_string();
    let cases = [
        (status(429, "retry-after: 1\r\n", KEY), 3, refused(429)),
        (status(500, "", KEY), 3, refused(500)),
        (status(503, "", ""), 3, refused(503)),
        (status(401, "", KEY), 1, refused(401)),
        (status(307, &aside, ""), 1, refused(307)),
        (
            Manner::Says(cut.as_bytes().to_vec()),
            3,
            "the model's answer broke off".to_owned(),
        ),
        (
            status(200, "", format!("<html>{KEY}</html>")),
            3,
            no_completion.to_owned(),
        ),
        (
            status(200, "", b"{\"choices\": [\xff\xfe]}".as_slice()),
            3,
            no_completion.to_owned(),
        ),
        (says(&deep), 3, invalid.to_owned()),
        (says(&long), 3, invalid.to_owned()),
        (
            says("{\"code\": \"print()\\u0000\"}"),
            3,
            invalid.to_owned(),
        ),
        (says("{\"code\": \"\\ud800\"}"), 3, invalid.to_owned()),
        (
            Manner::Floods,
            1,
            "the model's answer is larger than 1024 KiB".to_owned(),
        ),
    ];
    let before = daemon.resident_bytes();
    for (manner, asked, why) in cases {
        endpoint.be(manner.clone());
        let run = run(&daemon).await;
        assert_told(&daemon, &run, &why).await;
        assert_eq!(endpoint.asked(), asked, "{manner:?}");
    }
    let more = daemon.resident_bytes().saturating_sub(before);
    assert!(more < 32 << 20, "{more} bytes");
    endpoint.be(Manner::Behaves);
    let run = run(&daemon).await;
    assert_eq!(run["status"], "SUCCESS", "{run:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn f19_an_endpoint_that_hangs_takes_no_more_time_than_its_run_has() {
    let endpoint = Endpoint::start();
    endpoint.be(Manner::Hangs);
    let daemon = endpoint
        .daemon("http", "[app]\nrun_timeout_seconds = 8")
        .await;
    let begun = Instant::now();
    let run = run(&daemon).await;
    assert!(begun.elapsed() < Duration::from_secs(16), "{begun:?}");
    assert_eq!(run["status"], "FAIL", "{run:#}");
    assert_eq!(run["final_error"], "Run timed out after 8 seconds.");
    assert_eq!(endpoint.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn f19_an_endpoint_that_is_not_there_or_not_who_it_should_be_is_told_nothing() {
    // It does not speak TLS.
    let endpoint = Endpoint::start();
    let daemon = endpoint.daemon("https", "").await;
    let unreachable = "the model's server cannot be reached";
    assert_told(&daemon, &run(&daemon).await, unreachable).await;
    assert_eq!(endpoint.asked(), 0);
    drop(daemon);
    let daemon = endpoint.daemon("http", "").await;
    drop(endpoint);
    assert_told(&daemon, &run(&daemon).await, unreachable).await;
}
