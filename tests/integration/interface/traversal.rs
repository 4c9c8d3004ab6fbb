//! Paths that try to leave where they are (BR-25), sent as they are, without a client that tidies
//! them up first.

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::Daemon;
use crate::support::daemon::PATIENCE;

/// A request target as it stands, and the whole answer.
async fn ask(daemon: &Daemon, method: &str, target: &[u8]) -> String {
    let address = daemon.address().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut request = format!("{method} ").into_bytes();
    request.extend_from_slice(target);
    request.extend_from_slice(b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(&request).await.unwrap();
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    let _ = read.expect("the connection stays open");
    String::from_utf8(bytes).expect("answers are UTF-8")
}

fn status(answer: &str) -> u16 {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    status
        .parse()
        .unwrap_or_else(|_| panic!("no HTTP: {answer:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_path_leads_to_a_file_and_no_answer_echoes_it() {
    let daemon = Daemon::start().await;
    std::fs::write(daemon.path().join(".env"), "KEY=canary-7f3a").unwrap();
    let code = "open('out/page.html', 'w').write('<script>canary-7f3a</script>')";
    let run = daemon.run(json!({ "code": code })).await;
    let id = run["run_id"].as_str().unwrap();
    let execution = run["result"]["execution_id"].as_str().unwrap();
    let long = "a".repeat(10_000);
    for below in [
        "",
        "page.html",
        "../../x",
        "../../../../.env",
        "..%2f..%2fetc%2fpasswd",
        "%252e%252e%252f.env",
        "%2e%2e/%2e%2e/%2e%2e/.env",
        "%00",
        "a/../../b",
        "/etc/passwd",
        "//etc/passwd",
        ".;/",
        "..%5c..%5c.env",
        "page.html?path=../..",
        "page.html%23/../..",
        "%ff%fe",
        "page.html;x",
        &long,
    ] {
        let target = format!("/runs/{id}/artifacts/{below}");
        let answer = ask(&daemon, "GET", target.as_bytes()).await;
        assert!([400, 404].contains(&status(&answer)), "{below}: {answer}");
        for secret in ["canary", "root:", daemon.path().to_str().unwrap()] {
            assert!(!answer.contains(secret), "{below}: {answer}");
        }
        assert!(!answer.contains(&long), "the path is echoed");
    }
    for name in [
        "..",
        "%2e%2e",
        "*",
        ".",
        "%2f",
        execution,
        &id.to_uppercase(),
        &long,
    ] {
        let target = format!("/runs/{name}/artifacts");
        let answer = ask(&daemon, "GET", target.as_bytes()).await;
        // A UUID is the same in capitals.
        let same = name == id.to_uppercase() && status(&answer) == 200;
        assert!(same || status(&answer) == 404, "{name}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_hardly_http_are_4xx_or_cut_and_the_daemon_lives_on() {
    let daemon = Daemon::start().await;
    let long = format!("/runs?{}", "x".repeat(200_000));
    let targets: [(&str, &[u8]); 9] = [
        ("GET", b"*"),
        ("GET", b"http://other.invalid/health%00"),
        ("GET", b"/health\x00"),
        ("GET", b"/\xff\xfe"),
        ("GET", b"health"),
        ("G\x01T", b"/health"),
        ("BREW", b"/health"),
        ("CONNECT", b"example.invalid:443"),
        ("GET", long.as_bytes()),
    ];
    for (method, target) in targets {
        let answer = ask(&daemon, method, target).await;
        let shown = String::from_utf8_lossy(&target[..target.len().min(60)]).into_owned();
        let refused = answer.is_empty() || (400..500).contains(&status(&answer));
        assert!(refused, "{method} {shown}: {answer}");
    }
    assert_eq!(daemon.get("/health").await.0, 200);
}
