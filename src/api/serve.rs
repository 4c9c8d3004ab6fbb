//! Serving the interface: connections bounded in number, in head size, and in how long they may
//! say or take nothing; every one of them owned, and ended within a bound when the daemon goes
//! down.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::config::Api;

/// The largest head of a request, and what is buffered of a body, in bytes.
const MAX_BUFFER_BYTES: usize = 64 << 10;

/// The most headers of a request.
const MAX_HEADERS: usize = 100;

/// How long to wait when no connection can be accepted, usually for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where a request came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The bounds of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeSettings {
    /// Connections at the same time; more wait in the kernel.
    pub max_connections: usize,
    /// How long a head may take to arrive, idle time between requests included, and how long a
    /// client may take nothing of an answer.
    pub idle_timeout: Duration,
    /// How long answers may still take once the daemon goes down.
    pub drain_timeout: Duration,
}

impl ServeSettings {
    /// The bounds that the configuration sets.
    #[must_use]
    pub fn new(api: &Api, drain_timeout: Duration) -> Self {
        Self {
            max_connections: api.max_connections,
            idle_timeout: Duration::from_secs(api.read_timeout_seconds),
            drain_timeout,
        }
    }
}

/// Serves until `shutdown` is cancelled and the last answer is out, or its time is up.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    settings: ServeSettings,
    shutdown: CancellationToken,
) {
    let room = Arc::new(Semaphore::new(
        settings.max_connections.clamp(1, Semaphore::MAX_PERMITS),
    ));
    let connections = TaskTracker::new();
    let abandon = CancellationToken::new();
    while let Some((stream, peer, place)) = accept(&listener, &room, &shutdown).await {
        let connection = Connection {
            router: router.clone(),
            peer,
            idle_timeout: settings.idle_timeout,
            shutdown: shutdown.clone(),
        };
        let abandon = abandon.clone();
        connections.spawn(async move {
            let _place = place;
            abandon.run_until_cancelled(connection.serve(stream)).await
        });
    }
    drop(listener);
    connections.close();
    if timeout(settings.drain_timeout, connections.wait())
        .await
        .is_err()
    {
        let left = connections.len();
        tracing::warn!(
            connections = left,
            "closing connections that took too long to end"
        );
        abandon.cancel();
        connections.wait().await;
    }
}

/// The next connection and its place; `None` when there are to be no more.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
    shutdown: &CancellationToken,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let next = async {
        let place = Arc::clone(room).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => return Some((stream, peer, place)),
                Err(error) if is_about_one_connection(&error) => {}
                Err(error) => {
                    tracing::error!(%error, "no connection can be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    shutdown.run_until_cancelled(next).await.flatten()
}

fn is_about_one_connection(error: &io::Error) -> bool {
    [
        io::ErrorKind::ConnectionAborted,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::ConnectionRefused,
    ]
    .contains(&error.kind())
}

struct Connection {
    router: Router,
    peer: SocketAddr,
    idle_timeout: Duration,
    shutdown: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // Answers are written in one piece each; waiting to merge them only costs time.
        let _only_slower = stream.set_nodelay(true);
        let Self {
            router,
            peer,
            idle_timeout,
            shutdown,
        } = self;
        let service = service_fn(move |request: Request<Incoming>| {
            let router = router.clone();
            async move {
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(Peer(peer));
                let answer: Result<_, Infallible> = router.oneshot(request).await;
                answer
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(idle_timeout)
            .max_buf_size(MAX_BUFFER_BYTES)
            .max_headers(MAX_HEADERS)
            .serve_connection(
                TokioIo::new(BoundedWrites::new(stream, idle_timeout)),
                service,
            );
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        // Mostly a client that went away or talks something else.
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "connection ended early");
        }
    }
}

/// A stream whose writes fail when the other side has taken nothing for too long: otherwise a
/// client that never reads would keep its place for ever.
struct BoundedWrites {
    stream: TcpStream,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl BoundedWrites {
    fn new(stream: TcpStream, limit: Duration) -> Self {
        Self {
            stream,
            limit,
            stalled: None,
        }
    }

    fn bound<T>(
        &mut self,
        context: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.stalled = None;
            return progress;
        }
        let limit = self.limit;
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)));
        stalled
            .as_mut()
            .poll(context)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for BoundedWrites {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for BoundedWrites {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bound(context, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.bound(context, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(context);
        self.bound(context, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bound(context, progress)
    }
}

#[cfg(test)]
mod tests;
