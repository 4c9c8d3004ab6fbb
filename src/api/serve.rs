//! Serving the interface: connections bounded in number, in head size, and in how long they may
//! say or take nothing; every one of them owned, and ended within a bound when the daemon goes
//! down.

mod arriving;

mod lingering;

mod places;

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
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use self::arriving::Arriving;
use self::lingering::{Unread, linger};
use self::places::{Counter, Place, Places};
use super::held::hold;
use super::tls::Tls;
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
    /// Connections at the same time. When one more comes, the one gives way that has been without a
    /// whole request for the longest; if all are being answered, it waits.
    pub max_connections: usize,
    /// How long a head may take to arrive, idle time between requests included, how long a client may
    /// take nothing of an answer, and how long it is listened to after an answer that came early.
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
/// With `tls` every connection begins with a handshake.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    settings: ServeSettings,
    tls: Option<Tls>,
    shutdown: CancellationToken,
) {
    let places = Places::new(settings.max_connections);
    let connections = TaskTracker::new();
    let abandon = CancellationToken::new();
    while let Some((stream, peer, place)) = accept(&listener, &places, &shutdown).await {
        let connection = Connection {
            router: router.clone(),
            peer,
            idle_timeout: settings.idle_timeout,
            tls: tls.clone(),
            requests: place.counter(),
            shutdown: shutdown.clone(),
        };
        let abandon = abandon.clone();
        connections.spawn(async move {
            let serving = place
                .give_way()
                .run_until_cancelled(connection.serve(stream));
            abandon.run_until_cancelled(serving).await;
            drop(place);
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
    places: &Arc<Places>,
    shutdown: &CancellationToken,
) -> Option<(TcpStream, SocketAddr, Place)> {
    let next = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => return Some((stream, peer, places.take().await?)),
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
    tls: Option<Tls>,
    requests: Counter,
    shutdown: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // Answers are written in one piece each; waiting to merge them only costs time.
        let _only_slower = stream.set_nodelay(true);
        let stream = BoundedWrites::new(stream, self.idle_timeout);
        let Some(tls) = self.tls.clone() else {
            return self.converse(stream).await;
        };
        let handshake = tls.handshake(stream);
        match self.shutdown.run_until_cancelled(handshake).await {
            Some(Ok(stream)) => self.converse(stream).await,
            // Mostly a client that does not know the certificate, or talks something else.
            Some(Err(error)) => {
                tracing::debug!(peer = %self.peer, %error, "connection ended before it was secure");
            }
            None => {}
        }
    }

    async fn converse<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self {
            router,
            peer,
            idle_timeout,
            tls: _,
            requests,
            shutdown,
        } = self;
        let unread = Unread::default();
        let left = unread.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let router = router.clone();
            let requests = requests.clone();
            let left = left.clone();
            async move {
                let Some(asked) = requests.request() else {
                    // The connection ends in this moment.
                    return std::future::pending().await;
                };
                let asked = Arc::new(asked);
                let mut request =
                    request.map(|body| Body::new(Arriving::new(body, Arc::clone(&asked), left)));
                request.extensions_mut().insert(Peer(peer));
                let answer: Result<_, Infallible> = router.oneshot(request).await;
                // Also if the rest of the body is of no interest.
                asked.is_whole();
                answer.map(|answer| hold(answer, asked))
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(idle_timeout)
            .max_buf_size(MAX_BUFFER_BYTES)
            .max_headers(MAX_HEADERS)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = connection;
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = shutdown.cancelled() => {
                Pin::new(&mut connection).graceful_shutdown();
                (&mut connection).await
            }
        };
        let is_answered_early = match ended {
            Ok(()) => unread.is_left(),
            // Mostly a client that went away or talks something else; that is told if it can be.
            Err(error) => {
                tracing::debug!(%peer, %error, "connection ended early");
                error.is_parse()
            }
        };
        if is_answered_early {
            let stream = connection.into_parts().io.into_inner();
            let lingering = linger(stream, idle_timeout);
            shutdown.run_until_cancelled(lingering).await;
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
