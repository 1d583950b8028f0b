//! Frames between QEMU's socket and the stack: one task each way.

mod frames;

use crate::stack::{Shared, frame};
use frames::{READ_BYTES, split};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Starts both tasks on `stream`. The network closes when either ends.
pub(crate) fn start<S: AsyncRead + AsyncWrite + Send + 'static>(shared: &Arc<Shared>, stream: S) {
    let (reader, writer) = tokio::io::split(stream);
    let (from_guest, to_guest) = (Closing(Arc::clone(shared)), Closing(Arc::clone(shared)));
    shared.spawn(async move {
        let end = read(&from_guest.0, reader).await;
        tracing::debug!(error = end.err().map(tracing::field::display), "link from the guest ended");
    });
    shared.spawn(async move {
        let end = write(&to_guest.0, writer).await;
        tracing::debug!(error = end.err().map(tracing::field::display), "link to the guest ended");
    });
}

/// Closes the network when a task of the link ends, however it ends.
struct Closing(Arc<Shared>);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

async fn read(shared: &Arc<Shared>, mut reader: impl AsyncRead + Unpin) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut filled = 0;
    loop {
        let read = reader.read(&mut buffer[filled..]).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let used = take_frames(shared, &buffer[..filled])?;
        buffer.copy_within(used..filled, 0);
        filled -= used;
    }
}

/// Handles the whole frames at the head of `bytes`; returns how many bytes they took.
fn take_frames(shared: &Arc<Shared>, bytes: &[u8]) -> io::Result<usize> {
    let mut stack = shared.lock();
    let mut rest = bytes;
    while let Some((one, behind)) = split(rest)? {
        frame(shared, &mut stack, one);
        rest = behind;
    }
    Ok(bytes.len() - rest.len())
}

async fn write(shared: &Arc<Shared>, mut writer: impl AsyncWrite + Unpin) -> io::Result<()> {
    let filled = shared.lock().engine.outbox.filled();
    let mut frames = Vec::new();
    loop {
        filled.notified().await;
        frames = {
            let mut stack = shared.lock();
            let frames = stack.engine.outbox.take(frames);
            stack.stats.received_bytes += frames.len() as u64;
            frames
        };
        writer.write_all(&frames).await?;
    }
}
