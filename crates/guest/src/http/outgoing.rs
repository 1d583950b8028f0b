use super::budget::{Budget, Held};
use bytes::{Buf, Bytes};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Most bytes handed to the connection at once: with the frame's header, two whole writes to the guest channel.
pub const CHUNK_LEN_MAX: usize = (64 << 10) - FRAME_HEADER_LEN;
/// Header of an HTTP/2 frame, bytes.
const FRAME_HEADER_LEN: usize = 9;

/// Answers one request.
pub type Responder = h2::server::SendResponse<Chunk>;

/// Bytes on their way out, counted until the connection has written them.
pub struct Chunk {
    bytes: Bytes,
    _held: Option<Held>,
}

impl Chunk {
    /// A small message past all budgets.
    pub fn uncounted(bytes: Bytes) -> Self {
        Self { bytes, _held: None }
    }
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, cnt: usize) {
        self.bytes.advance(cnt);
    }
}

/// The peer takes no more of this stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer has gone")]
pub struct Gone;

/// The body of an answer. Dropped without [`Outgoing::finish`], it tells the peer that the body is not whole.
pub struct Outgoing {
    stream: Option<h2::SendStream<Chunk>>,
    budget: Rc<Budget>,
}

/// Leave to send so many bytes.
pub struct Room {
    held: Held,
}

impl Room {
    /// Bytes.
    pub fn len(&self) -> usize {
        self.held.len()
    }
}

impl Outgoing {
    /// The body that follows an answer's head.
    pub fn new(stream: h2::SendStream<Chunk>, budget: Rc<Budget>) -> Self {
        Self { stream: Some(stream), budget }
    }

    /// Waits for leave to send up to `want` bytes, and not less than `least`. Dropping the answer gives it back.
    ///
    /// To be asked for only when there are bytes to send: what is granted here is taken from the window of the whole connection.
    pub fn poll_room(&mut self, want: usize, least: usize, cx: &mut Context<'_>) -> Poll<Result<Room, Gone>> {
        let stream = self.stream.as_mut().ok_or(Gone)?;
        let want = want.clamp(least, CHUNK_LEN_MAX);
        if stream.capacity() < want {
            stream.reserve_capacity(want);
        }
        while stream.capacity() < least {
            match ready!(stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(Err(Gone)),
            }
        }
        let held = ready!(self.budget.poll_take(want.min(stream.capacity()), cx));
        Poll::Ready(Ok(Room { held }))
    }

    /// Sends bytes, at most as many as `room` allows, which waits for nothing.
    pub fn send(&mut self, bytes: Bytes, mut room: Room) -> Result<(), Gone> {
        debug_assert!(bytes.len() <= room.len());
        room.held.shrink(bytes.len());
        self.push(Chunk { bytes, _held: Some(room.held) }, false)
    }

    /// Sends all of `bytes` if the peer's window lets them go at once; otherwise sends nothing and answers false.
    pub fn try_send(&mut self, bytes: &Bytes) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        stream.reserve_capacity(bytes.len());
        stream.capacity() >= bytes.len() && self.send_now(bytes.clone()).is_ok()
    }

    /// Gives unused leave back to the connection.
    pub fn rest(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.reserve_capacity(0);
        }
    }

    /// Sends a small message past all budgets: for events that must not wait, such as the end.
    pub fn send_now(&mut self, bytes: Bytes) -> Result<(), Gone> {
        self.push(Chunk::uncounted(bytes), false)
    }

    /// Sends the last bytes and ends the body.
    pub fn finish(mut self, last: Bytes) {
        // The peer may have gone; then there is nobody to tell.
        let _ = self.push(Chunk::uncounted(last), true);
        self.stream = None;
    }

    /// Sends all of `bytes` as the peer takes them.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), Gone> {
        while !bytes.is_empty() {
            let room = poll_fn(|cx| self.poll_room(bytes.len(), 1, cx)).await?;
            let part = bytes.split_to(room.len());
            self.send(part, room)?;
        }
        self.rest();
        Ok(())
    }

    /// Ready once the peer has given the stream up.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.stream {
            Some(stream) => stream.poll_reset(cx).map(drop),
            None => Poll::Ready(()),
        }
    }

    fn push(&mut self, chunk: Chunk, end: bool) -> Result<(), Gone> {
        self.stream.as_mut().ok_or(Gone)?.send_data(chunk, end).map_err(|_| Gone)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.send_reset(h2::Reason::INTERNAL_ERROR);
        }
    }
}
