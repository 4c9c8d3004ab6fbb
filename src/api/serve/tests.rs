//! How the server treats slow, huge and many clients.

use axum::body::Bytes;
use axum::routing::{get, post};
use futures_util::{FutureExt as _, Stream, stream};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;

use super::*;

struct Server {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

async fn server(max_connections: usize, idle: Duration, drain: Duration) -> Server {
    let shutdown = CancellationToken::new();
    let (slow, slow_too) = (shutdown.clone(), shutdown.clone());
    let router = Router::new()
        .route(
            "/",
            get(async |request: Request| {
                request
                    .extensions()
                    .get::<Peer>()
                    .unwrap()
                    .0
                    .ip()
                    .to_string()
            }),
        )
        .route("/at-shutdown", get(async move || slow.cancelled().await))
        .route("/never", get(std::future::pending::<()>))
        .route(
            "/slow",
            post(async move |_: Bytes| slow_too.cancelled().await),
        )
        .route("/refused", post(async || "no"))
        .route("/pieces", post(async || Body::from_stream(pieces())))
        .route("/body", post(async |body: Bytes| body.len().to_string()))
        .route("/large", get(async || vec![b'x'; 64 << 20]));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let settings = ServeSettings {
        max_connections,
        idle_timeout: idle,
        drain_timeout: drain,
    };
    let task = TaskTracker::new().spawn(serve(listener, router, settings, None, shutdown.clone()));
    Server {
        address,
        shutdown,
        task,
    }
}

/// An answer that is made while it is taken.
fn pieces() -> impl Stream<Item = io::Result<Bytes>> {
    stream::iter((0..64).map(|_| Ok(Bytes::from_static(&[b'x'; 1 << 20]))))
}

impl Server {
    async fn connect(&self, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    async fn ask(&self, text: &str) -> String {
        rest(self.connect(text).await).await
    }
}

async fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    let _reset = timeout(Duration::from_secs(20), read).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);

#[tokio::test]
async fn a_handler_sees_where_a_request_came_from() {
    let server = server(10, LONG, LONG).await;
    let answer = server
        .ask("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    assert!(answer.ends_with("127.0.0.1"), "{answer}");
    server.shutdown.cancel();
    server.task.await.unwrap();
}

#[tokio::test]
async fn a_slow_or_huge_head_is_cut_off() {
    let server = server(10, SHORT, LONG).await;
    server.ask("GET / HTTP/1.1\r\nhost:").await;
    server.ask("").await;
    let many = "x: y\r\n".repeat(200);
    let answer = server.ask(&format!("GET / HTTP/1.1\r\n{many}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let long = "y".repeat(60 << 10);
    let answer = server
        .ask(&format!("GET / HTTP/1.1\r\na: {long}\r\nb: {long}\r\n\r\n"))
        .await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

/// Like most clients: they send everything, and read then. An answer is not to be lost because it came
/// before that, whatever part of the body was read.
#[tokio::test(flavor = "multi_thread")]
async fn who_sends_more_than_anybody_reads_gets_the_answer_all_the_same() {
    const PIECE: &[u8] = &[b'x'; 1 << 20];
    let server = server(10, LONG, LONG).await;
    let send = async |pieces: usize, pause: Duration| {
        let length = pieces * PIECE.len();
        let head = format!("POST /refused HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        let mut stream = server.connect(&head).await;
        for _ in 0..pieces {
            sleep(pause).await;
            stream.write_all(PIECE).await.unwrap();
        }
        // All was taken, so that nothing resets the connection.
        let answer = rest(stream).await;
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("no"),
            "{answer}"
        );
    };
    let long = "y".repeat(16 << 20);
    let head = server.ask(&long).boxed();
    tokio::join!(
        async { assert!(head.await.starts_with("HTTP/1.1 4")) },
        send(1, Duration::ZERO),
        send(200, Duration::ZERO),
        send(20, Duration::from_millis(50)),
    );
}

/// For that, nobody is listened to for ever: neither who sends without end nor who does not close.
#[tokio::test(flavor = "multi_thread")]
async fn who_goes_on_sending_is_cut_off() {
    let server = server(1, SHORT, LONG).await;
    let head = "POST /refused HTTP/1.1\r\nhost: x\r\ncontent-length: 999999999\r\n\r\n";
    let mut endless = server.connect(head).await;
    let end = timeout(LONG, async {
        while endless.write_all(b"x").await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    end.await.unwrap();
    // The daemon does not wait for such a client either when it goes down.
    let server = self::server(1, LONG, LONG).await;
    let mut silent = server.connect(head).await;
    let mut answer = String::new();
    silent.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    server.shutdown.cancel();
    timeout(LONG / 2, server.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_takes_nothing_loses_its_connection() {
    let server = server(1, SHORT, LONG).await;
    let _lazy = server
        .connect("GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    // The only place is free again once the first connection is given up.
    let answer = server
        .ask("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Each takes a place, and does what it does for ever; without a bound in time others would have to wait.
#[tokio::test]
async fn clients_whose_bodies_never_arrive_make_room_for_others() {
    const SLOW: &str = "POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n1";
    let server = server(3, LONG, LONG).await;
    let mut slow = Vec::new();
    for _ in 0..9 {
        slow.push(server.connect(SLOW).await);
        let answer = server
            .ask("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // The last one is still heard, also when its body comes in pieces.
    let mut last = slow.pop().unwrap();
    last.write_all(b"2345").await.unwrap();
    tokio::task::yield_now().await;
    last.write_all(b"6789").await.unwrap();
    last.shutdown().await.unwrap();
    let answer = rest(last).await;
    assert!(answer.ends_with('9'), "{answer}");
    assert_eq!(rest(slow.remove(0)).await, "");
}

/// They have all been heard: one whose request came in pieces, and one whose body nobody wants.
#[tokio::test]
async fn who_is_being_answered_makes_no_room_for_others() {
    let server = server(2, LONG, LONG).await;
    let mut slow = server
        .connect("POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n1")
        .await;
    slow.write_all(b"23456789").await.unwrap();
    let mut large = server
        .connect("POST /pieces HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n1")
        .await;
    let mut begun = vec![0; 1 << 20];
    large.read_exact(&mut begun).await.unwrap();
    let other = server.connect("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let mut other = rest(other.await).boxed();
    // Time enough for the other one to be let in at somebody's expense.
    assert!(timeout(SHORT, &mut other).await.is_err());
    assert!(rest(large).await.len() > 60 << 20);
    assert!(other.await.starts_with("HTTP/1.1 200"));
    server.shutdown.cancel();
    assert!(rest(slow).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn on_shutdown_answers_get_out_and_idle_connections_end() {
    let server = server(10, LONG, LONG).await;
    let idle = server.connect("").await;
    let waiting = server
        .connect("GET /at-shutdown HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    let warm = server
        .ask("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    assert!(warm.starts_with("HTTP/1.1 200"));
    server.shutdown.cancel();
    assert!(rest(waiting).await.starts_with("HTTP/1.1 200"));
    assert_eq!(rest(idle).await, "");
    timeout(LONG, server.task).await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn on_shutdown_nobody_is_waited_for_without_bound() {
    let server = server(10, LONG, SHORT).await;
    let stuck = server
        .connect("GET /never HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    server
        .ask("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await;
    server.shutdown.cancel();
    timeout(LONG, server.task).await.unwrap().unwrap();
    assert_eq!(rest(stuck).await, "");
}
