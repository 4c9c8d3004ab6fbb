//! Which names and pages a daemon without tokens answers, and what a daemon needs to be reached from
//! elsewhere.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::command_line::Bench;

/// The status of a request with these headers.
async fn status(daemon: &Daemon, head: &str, body: &str) -> u16 {
    let address = daemon.address().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap_or_default();
    status.parse().unwrap_or_else(|_| panic!("{answer:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_reaches_no_daemon_without_tokens() {
    let daemon = Daemon::start().await;
    let port = daemon.address().rsplit(':').next().unwrap().to_owned();
    for (host, expected) in [
        ("127.0.0.1", 200),
        ("localhost:1", 200),
        ("[::1]:8000", 200),
        ("rebound.example", 421),
        ("192.0.2.1", 421),
    ] {
        let head = format!("GET /health HTTP/1.1\r\nHost: {host}\r\n");
        assert_eq!(status(&daemon, &head, "").await, expected, "{host}");
    }
    // What a page can send without asking first: no type, or one of a form.
    let body = json!({ "code": QUICK }).to_string();
    for origin in ["https://evil.example", "http://127.0.0.1:1", "null"] {
        for kind in ["", "Content-Type: text/plain\r\n"] {
            let head = format!(
                "POST /runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: {origin}\r\n{kind}"
            );
            assert_eq!(status(&daemon, &head, &body).await, 403, "{origin} {kind}");
        }
    }
    let (code, list) = daemon.get("/runs").await;
    assert_eq!((code, &list["runs"]), (200, &json!([])));
    let preflight = format!(
        "OPTIONS /runs HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nOrigin: http://127.0.0.1:{port}\r\n\
         Access-Control-Request-Method: POST\r\n"
    );
    assert_eq!(
        status(&daemon, &preflight, "").await,
        405,
        "no CORS by itself"
    );
}

#[test]
fn a_daemon_that_others_reach_needs_tokens_and_tenants_need_them_too() {
    let bench = Bench::new();
    for (toml, name) in [
        ("[api]\nlisten = '0.0.0.0:0'", "api.listen"),
        ("[tenants.alice]\nweight = 2", "tenants.alice"),
        (
            "[api]\nlisten = '127.0.0.1:0'\n[auth]\ntokens_file = 'missing'",
            "missing",
        ),
        ("[api]\ntls_key = 'key.pem'", "api.tls_cert"),
        (
            "[api]\nlisten = '127.0.0.1:0'\ntls_key = 'no.pem'\ntls_cert = 'no.pem'",
            "api.tls_cert",
        ),
    ] {
        bench.write("fumehood.toml", toml);
        let called = bench.call(&["serve"]);
        assert!([69, 78].contains(&called.code), "{toml}: {called:?}");
        assert!(called.stderr.contains(name), "{toml}: {called:?}");
    }
}
