//! A chat-completion server that answers as a test tells it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use super::daemon::PATIENCE;
use super::wait::until;

/// A program that does what is asked for, on any table with a column `target`.
pub(crate) const GOOD: &str = r#"
# UNIQUE_PROGRAM
import json, os
from pathlib import Path
import joblib
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

out = Path(os.environ["FUMEHOOD_OUTPUT"])
train = pd.read_csv("/data/train.csv")
y = train.pop("target")
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(train[:-20], y[:-20])
score = float(model.score(train[-20:], y[-20:]))
pd.DataFrame({"prediction": model.predict(pd.read_csv("/data/test.csv"))}).to_csv(out / "predictions.csv", index=False)
(out / "models").mkdir()
joblib.dump(model, out / "models/model.joblib")
(out / "summary.json").write_text(json.dumps({"success": True, "model_path": "models/model.joblib", "metrics": {"accuracy": score}}))
"#;

/// Gives status and body for a request of this kind, the how manieth of its kind.
pub(crate) type Answering = Box<dyn Fn(&str, usize) -> (u16, String) + Send>;

#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) struct Model {
    port: u16,
    requests: Arc<Mutex<Vec<(String, Request)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Model {
    pub(crate) fn start(answering: Answering) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests: Arc<Mutex<Vec<(String, Request)>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (kept, stopped) = (Arc::clone(&requests), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                serve(stream, &kept, &answering);
            }
        });
        Self {
            port,
            requests,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// What was asked for, in order.
    pub(crate) fn kinds(&self) -> Vec<String> {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|(kind, _)| kind.clone()).collect()
    }

    /// Waits until it was asked for so many of these; that one may not be answered yet.
    pub(crate) async fn asked_for(&self, kind: &str, times: usize) {
        let count = async || self.kinds().iter().filter(|one| *one == kind).count();
        until(PATIENCE, count, |count| *count >= times).await;
    }

    /// What was asked, so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let requests = self.requests.lock().unwrap();
        requests
            .iter()
            .map(|(_, request)| request.clone())
            .collect()
    }

    pub(crate) fn stop(mut self) -> Vec<Request> {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        self.thread.take().unwrap().join().unwrap();
        let mut requests = self.requests.lock().unwrap();
        requests.drain(..).map(|(_, request)| request).collect()
    }
}

fn serve(stream: TcpStream, kept: &Mutex<Vec<(String, Request)>>, answering: &Answering) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    let lower = head.to_lowercase();
    let (_, length) = lower.split_once("content-length: ").unwrap();
    let length: usize = length.lines().next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let kind = kind(&body).to_owned();
    let before = {
        let mut kept = kept.lock().unwrap();
        let before = kept.iter().filter(|(known, _)| *known == kind).count();
        kept.push((kind.clone(), Request { head, body }));
        before
    };
    let (status, answer) = answering(&kind, before);
    let length = answer.len();
    let text = format!(
        "HTTP/1.1 {status} As Told\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{answer}"
    );
    let mut stream = stream;
    let _ = stream.write_all(text.as_bytes());
}

/// By the schema in the question.
fn kind(body: &str) -> &'static str {
    let body: Value = serde_json::from_str(body).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let question = messages[1]["content"].as_str().unwrap();
    let schema = question.rsplit("JSON schema:").next().unwrap();
    if schema.contains("\"decision\"") {
        "judgement"
    } else if schema.contains("\"suggested_fix\"") {
        "explanation"
    } else {
        "program"
    }
}

/// Answers with these programs, one after the other; FIX for the first, FINISH for the others.
pub(crate) fn programs(programs: &[&'static str]) -> Answering {
    let programs: Vec<String> = programs.iter().map(|one| (*one).to_owned()).collect();
    Box::new(move |kind, before| usual(kind, before, &programs[before.min(programs.len() - 1)]))
}

/// The usual answer to a question of this kind.
pub(crate) fn usual(kind: &str, before: usize, program: &str) -> (u16, String) {
    let answer = match kind {
        "program" => json!({"code": program, "explanation": "As told."}),
        "judgement" if before == 0 => {
            json!({"decision": "FIX", "confidence": 0.9, "issues": [], "reason": "It raised."})
        }
        "judgement" => json!({"decision": "FINISH", "confidence": 0.9}),
        _ => json!({"error_category": "made_up", "error_summary": "It raised.",
            "suggested_fix": "Do not raise."}),
    };
    (200, completion(&format!("```json\n{answer}\n```")))
}

pub(crate) fn completion(text: &str) -> String {
    json!({
        "choices": [{"message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10},
    })
    .to_string()
}
