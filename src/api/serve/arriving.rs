//! The body of a request, which tells when all of it has come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};

use super::lingering::Unread;
use super::places::Asked;

/// A body on its way.
pub(super) struct Arriving {
    body: Incoming,
    asked: Arc<Asked>,
    unread: Unread,
}

impl Arriving {
    /// The body of the request `asked`; `unread` is told what is left of it.
    pub(super) fn new(body: Incoming, asked: Arc<Asked>, unread: Unread) -> Self {
        unread.set(true);
        let arriving = Self {
            body,
            asked,
            unread,
        };
        if arriving.body.is_end_stream() {
            arriving.is_whole();
        }
        arriving
    }

    /// Tells that this is all.
    fn is_whole(&self) {
        self.unread.set(false);
        self.asked.is_whole();
    }
}

impl HttpBody for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(None) => self.is_whole(),
            Poll::Ready(Some(_)) if self.body.is_end_stream() => self.is_whole(),
            Poll::Ready(Some(_)) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
