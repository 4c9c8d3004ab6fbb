//! Many slow clients, and clients that want too much: nobody else notices.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::*;

/// Connections of the slow client: more than the daemon has places.
const SLOW: usize = 1_200;

/// Requests that are timed.
const TIMED: usize = 300;

/// What a test host takes by itself now and then.
const NOISE: Duration = Duration::from_millis(10);

/// Begins a request in one of the ways that take for ever, and keeps at it; begins again when the daemon
/// has had enough.
async fn dawdle(address: &str, number: usize) {
    // One after the other: the kernel loses connections that come all at once.
    sleep(Duration::from_millis(number as u64)).await;
    loop {
        let Ok(mut stream) = TcpStream::connect(address).await else {
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let begin: &[u8] = match number % 12 {
            0..6 => b"",
            6..11 => b"GET /runs HTTP/1.1\r\nHost: localhost\r\nX: ",
            _ => b"POST /runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
        };
        let mut gone = stream.write_all(begin).await.is_err();
        while !gone {
            sleep(Duration::from_secs(1)).await;
            gone = !begin.is_empty() && stream.write_all(b"x").await.is_err();
            let mut answer = [0; 1024];
            let read = stream.try_read(&mut answer);
            gone |= matches!(read, Ok(0));
            gone |= read.is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock);
        }
    }
}

/// How long answers take, shortest first. Every tenth request comes by a connection of its own.
async fn answer_times(daemon: &Daemon, token: &str, id: &str) -> Vec<Duration> {
    let mut times = Vec::new();
    let path = format!("/runs/{id}");
    for number in 0..TIMED {
        let mut request = daemon.request(Method::GET, &path).bearer_auth(token);
        if number % 10 == 0 {
            request = request.header("Connection", "close");
        }
        let asked = Instant::now();
        assert_eq!(sent(request).await.status, 200);
        times.push(asked.elapsed());
    }
    times.sort();
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_slow_connections_are_not_noticed_by_others() {
    let daemon = daemon_with("").await;
    let bob = token(&daemon, "bob", "submit").await;
    let id = submit(&daemon, &bob, QUICK).await.run_id();
    ended(&daemon, &bob, &id).await;
    let p99 = |times: &[Duration]| times[times.len() * 99 / 100];
    let alone = p99(&answer_times(&daemon, &bob, &id).await);

    let address = daemon.address().strip_prefix("http://").unwrap().to_owned();
    let crowd: Vec<_> = (0..SLOW)
        .map(|number| {
            let address = address.clone();
            tokio::spawn(async move { dawdle(&address, number).await })
        })
        .collect();
    // Every place is taken before it is measured.
    let connections = async || daemon.descriptors();
    until(PATIENCE, connections, |count| *count >= 1_000).await;
    let beside = p99(&answer_times(&daemon, &bob, &id).await);
    for dawdler in crowd {
        dawdler.abort();
    }
    assert!(
        beside <= 3 * alone.max(NOISE),
        "p99 {beside:?}, alone {alone:?}"
    );
}

/// What the daemon answers to these bytes, until it has nothing more to say.
async fn told(daemon: &Daemon, bytes: &str) -> String {
    let address = daemon.address().trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Requests that two programs could read in two ways: whoever stands before the daemon must not let one
/// request through and have the daemon see two.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_two_readings_is_refused() {
    let daemon = daemon_with("").await;
    let bob = token(&daemon, "bob", "submit").await;
    let authorization = format!("Authorization: Bearer {bob}");
    let hidden = format!("GET /runs HTTP/1.1\r\nHost: x\r\n{authorization}\r\n\r\n");
    for framing in [
        "Content-Length: 0\r\nContent-Length: 5",
        "Content-Length: 0, 5",
        "Content-Length: +0",
        "Content-Length: -1",
        "Content-Length: 0x0",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding : chunked",
        " Transfer-Encoding: chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
    ] {
        let head =
            format!("POST /runs HTTP/1.1\r\nHost: x\r\n{authorization}\r\n{framing}\r\n\r\n");
        let answer = told(&daemon, &format!("{head}0\r\n\r\n{hidden}")).await;
        let answers = answer.matches("HTTP/1.1 ").count();
        assert_eq!(answers, 1, "{framing:?}: {answer}");
        assert!(!answer.contains("next_cursor"), "{framing:?}: {answer}");
    }
    // One after the other is no trick, and the second needs a token of its own.
    let first = format!("GET /runs HTTP/1.1\r\nHost: x\r\n{authorization}\r\n\r\n");
    let second = "GET /runs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let answer = told(&daemon, &format!("{first}{second}")).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 401").count(), 1, "{answer}");
}
