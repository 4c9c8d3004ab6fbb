//! A server that answers one request per connection, each as the script says.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_util::sync::CancellationToken;

/// What the server does with a request.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Sends these bytes and closes.
    Bytes(Vec<u8>),
    /// Says nothing.
    Hang,
    /// Sends a byte of a long answer now and then.
    Drip,
}

impl Step {
    pub(super) fn raw(text: String) -> Self {
        Self::Bytes(text.into_bytes())
    }

    pub(super) fn answer(body: &str) -> Self {
        let length = body.len();
        Self::raw(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
             connection: close\r\n\r\n{body}"
        ))
    }

    pub(super) fn chunked(body: &str) -> Self {
        let mut text =
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n".to_owned();
        for piece in body.as_bytes().chunks(64 << 10) {
            text.push_str(&format!("{:x}\r\n", piece.len()));
            text.push_str(std::str::from_utf8(piece).unwrap());
            text.push_str("\r\n");
        }
        text.push_str("0\r\n\r\n");
        Self::raw(text)
    }

    pub(super) fn status(status: u16, headers: &str) -> Self {
        Self::raw(format!(
            "HTTP/1.1 {status} As Told\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n"
        ))
    }
}

/// A request as it came.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) head: String,
    pub(super) body: String,
}

/// What is left to do, and what came.
#[derive(Debug, Default)]
pub(super) struct Script {
    steps: std::collections::VecDeque<Step>,
    pub(super) requests: Vec<Request>,
}

pub(super) struct Server {
    port: u16,
    script: Arc<Mutex<Script>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Server {
    pub(super) async fn start(
        steps: Vec<Step>,
        certified: Option<&rcgen::CertifiedKey<rcgen::KeyPair>>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = Arc::new(Mutex::new(Script {
            steps: steps.into(),
            requests: Vec::new(),
        }));
        let acceptor = certified.map(acceptor);
        let stop = CancellationToken::new();
        let (shared, stopped) = (Arc::clone(&script), stop.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Some(accepted) = stopped.run_until_cancelled(listener.accept()).await else {
                    connections.shutdown().await;
                    return;
                };
                let (stream, _) = accepted.unwrap();
                let (script, acceptor) = (Arc::clone(&shared), acceptor.clone());
                connections.spawn(async move {
                    match acceptor {
                        None => serve(stream, &script).await,
                        Some(acceptor) => {
                            // A client that does not trust us is gone by now.
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve(stream, &script).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            port,
            script,
            stop,
            tasks,
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1/", self.port)
    }

    pub(super) async fn stop(mut self) -> Script {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        std::mem::take(&mut *self.script.lock().await)
    }
}

fn acceptor(certified: &rcgen::CertifiedKey<rcgen::KeyPair>) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, script: &Mutex<Script>) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    let step = {
        let mut script = script.lock().await;
        script.requests.push(request);
        script.steps.pop_front()
    };
    match step {
        // The other side may be gone before the end.
        Some(Step::Bytes(bytes)) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Some(Step::Hang) => std::future::pending().await,
        Some(Step::Drip) => {
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n";
            let mut sent = stream.write_all(head).await;
            while sent.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
                sent = stream.write_all(b" ").await;
            }
        }
        None => {}
    }
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Request> {
    let mut bytes = Vec::new();
    let end = loop {
        let mut piece = [0; 4096];
        let count = stream
            .read(&mut piece)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        bytes.extend_from_slice(&piece[..count]);
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let lower = head.to_lowercase();
    let (_, length) = lower.split_once("content-length: ").unwrap();
    let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = bytes[end..].to_vec();
    while body.len() < length {
        let mut piece = [0; 4096];
        let count = stream
            .read(&mut piece)
            .await
            .ok()
            .filter(|count| *count > 0)?;
        body.extend_from_slice(&piece[..count]);
    }
    let body = String::from_utf8(body).unwrap();
    Some(Request { head, body })
}
