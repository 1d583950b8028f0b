use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// A request's body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The peer cut it off.
    #[error("the request's body was cut off: {0}")]
    Cut(#[from] h2::Error),
    /// It is longer than it may be.
    #[error("the request's body is longer than {0} bytes")]
    TooLong(usize),
    /// There is no room for it.
    #[error("no memory for the request's body: {0}")]
    Storage(#[from] std::io::Error),
}

/// A request's body. The peer may send on only as its parts are asked for: one that is not read costs one window of memory.
pub struct Incoming {
    stream: RecvStream,
    /// Length of the part handed out last, which the peer gets back as window with the next call.
    in_use: usize,
}

impl Incoming {
    /// Wraps the body.
    pub fn new(stream: RecvStream) -> Self {
        Self { stream, in_use: 0 }
    }

    /// The next part, of any length; `None` at a clean end. The part before counts as used up.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        if self.in_use > 0 {
            self.stream.flow_control().release_capacity(std::mem::take(&mut self.in_use))?;
        }
        match self.stream.data().await {
            None => Ok(None),
            Some(part) => {
                let part = part?;
                self.in_use = part.len();
                Ok(Some(part))
            }
        }
    }

    /// Whether nothing comes behind what has been handed out.
    pub fn is_at_end(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// The next part if it has arrived already.
    pub fn next_arrived(&mut self) -> Result<Option<Bytes>, BodyError> {
        let next = pin!(self.next());
        match next.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(part) => part,
            Poll::Pending => Ok(None),
        }
    }

    /// The whole body, up to `len_max` bytes.
    pub async fn read_all(mut self, len_max: usize) -> Result<Bytes, BodyError> {
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        if first.len() > len_max {
            return Err(BodyError::TooLong(len_max));
        }
        if self.stream.is_end_stream() {
            return Ok(first);
        }
        let mut all = BytesMut::from(first);
        while let Some(part) = self.next().await? {
            if all.len() + part.len() > len_max {
                return Err(BodyError::TooLong(len_max));
            }
            all.extend_from_slice(&part);
        }
        Ok(all.freeze())
    }
}
