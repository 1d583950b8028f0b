//! Bodies between a client, the shim and the guest.

use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::sync::mpsc;

/// Parts that wait between a sender and its body.
const PARTS_QUEUED_MAX: usize = 2;

/// A body passed on as it comes, one that a task of ours feeds, or one that is there as a whole.
pub type AnyBody = Either<Incoming, Either<Piped, Full<Bytes>>>;

/// A body that is there as a whole.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> AnyBody {
    Either::Right(Either::Right(Full::new(bytes.into())))
}

/// A body that is fed from the other side of a bounded queue.
pub(crate) fn piped() -> (Feed, AnyBody) {
    let (sender, receiver) = mpsc::channel(PARTS_QUEUED_MAX);
    (Feed(sender), Either::Right(Either::Left(Piped(Some(receiver)))))
}

/// Feeds a body. Dropped without [`Feed::end`], it cuts the body off: the reader sees an error, not an end.
#[derive(Debug)]
pub(crate) struct Feed(mpsc::Sender<Option<Bytes>>);

/// Nobody reads the body any more.
#[derive(Debug)]
pub(crate) struct Unread;

impl Feed {
    /// Adds a part, as soon as there is room for it.
    pub(crate) async fn send(&self, part: Bytes) -> Result<(), Unread> {
        self.0.send(Some(part)).await.map_err(|_| Unread)
    }

    /// Ends the body.
    pub(crate) async fn end(self) {
        // Nobody reads it: then there is nobody to tell.
        let _ = self.0.send(None).await;
    }
}

/// The reader's side of a [`Feed`].
#[derive(Debug)]
pub struct Piped(Option<mpsc::Receiver<Option<Bytes>>>);

impl Body for Piped {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(receiver) = &mut self.0 else { return Poll::Ready(None) };
        Poll::Ready(match ready!(receiver.poll_recv(cx)) {
            Some(Some(part)) => Some(Ok(Frame::data(part))),
            Some(None) => {
                self.0 = None;
                None
            }
            None => {
                self.0 = None;
                Some(Err(std::io::Error::other("the body was cut off")))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn only_a_said_end_is_an_end() {
        let (feed, body) = piped();
        feed.send("ab".into()).await.unwrap();
        feed.end().await;
        assert_eq!(body.collect().await.unwrap().to_bytes(), "ab");
        let (feed, body) = piped();
        feed.send("ab".into()).await.unwrap();
        drop(feed);
        assert!(body.collect().await.is_err());
        let (feed, body) = piped();
        drop(body);
        assert!(feed.send("ab".into()).await.is_err());
    }
}
