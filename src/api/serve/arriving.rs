//! The body of a request, which tells when all of it has come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};

use super::places::Asked;

/// A body on its way.
pub(super) struct Arriving {
    body: Incoming,
    asked: Arc<Asked>,
}

impl Arriving {
    /// The body of the request `asked`.
    pub(super) fn new(body: Incoming, asked: Arc<Asked>) -> Self {
        let arriving = Self { body, asked };
        arriving.tell();
        arriving
    }

    /// Tells if this is all.
    fn tell(&self) {
        if self.body.is_end_stream() {
            self.asked.is_whole();
        }
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
            Poll::Ready(None) => self.asked.is_whole(),
            Poll::Ready(Some(_)) => self.tell(),
            Poll::Pending => {}
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
