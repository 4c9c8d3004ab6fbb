//! A body that holds something until all of it is out, or its client is gone.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

/// A body, and what is dropped with it.
struct Held<T> {
    body: Body,
    _held: T,
}

/// Lets an answer hold something for as long as it takes.
pub(super) fn hold<T: Send + Unpin + 'static>(response: Response, held: T) -> Response {
    response.map(|body| Body::new(Held { body, _held: held }))
}

impl<T: Unpin> HttpBody for Held<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::to_bytes;
    use axum::response::IntoResponse as _;

    use super::*;

    #[tokio::test]
    async fn it_is_held_until_the_body_is_gone_and_the_body_is_the_same() {
        let held = Arc::new(());
        let response = hold("text".into_response(), Arc::clone(&held));
        assert_eq!(response.body().size_hint().exact(), Some(4));
        assert_eq!(Arc::strong_count(&held), 2);
        let bytes = to_bytes(response.into_body(), 9).await.unwrap();
        assert_eq!(&bytes[..], b"text");
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
