//! The end of a connection whose client still sends: it gets the answer before the connection is gone.
//!
//! A socket that is closed while there is something unread in it is reset, and what the other side
//! has not read by then is lost to it, the answer included (RFC 9112 section 9.6). A client that sends
//! all of a large body before it reads would see a broken connection instead of a 413.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// The most that is taken of what nobody wants, in bytes: the largest bodies that clients send by mistake.
const MOST_BYTES: u64 = 1 << 30;

/// Whether something of the last request on a connection was not read.
#[derive(Debug, Clone, Default)]
pub(super) struct Unread(Arc<AtomicBool>);

impl Unread {
    /// Notes whether something is left of the body.
    pub(super) fn set(&self, is_left: bool) {
        self.0.store(is_left, Ordering::Relaxed);
    }

    /// Whether there was at the last time.
    pub(super) fn is_left(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Tells the client that nothing more comes, and drops what it sends until it has closed its side, has
/// sent [`MOST_BYTES`] more, or the time is up.
pub(super) async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin, patience: Duration) {
    let drain = async {
        // It may be closed already, and the client gone: then there is nothing to be read.
        let _ = stream.shutdown().await;
        let _ = tokio::io::copy(&mut stream.take(MOST_BYTES), &mut tokio::io::sink()).await;
    };
    let _ended_or_not = timeout(patience, drain).await;
}
