//! The guest channel: a byte stream to the agent, made sure of by a nonce, then HTTP/2.

use crate::body::AnyBody;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use warren_proto::guest::limits;

/// After this long without an echo a nonce is sent anew, and then after twice as long each time: the agent may have been busy with the
/// end of an older connection, as after every restore.
const ECHO_WAIT_FIRST: Duration = Duration::from_millis(10);
/// Longest of these waits.
const ECHO_WAIT_MAX: Duration = Duration::from_millis(300);

/// Sends requests to the agent; cheap to clone.
pub type GuestSender = http2::SendRequest<AnyBody>;

/// Why the channel did not open.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The VMM's side is gone.
    #[error("the guest channel closed")]
    Closed(#[from] std::io::Error),
    /// No echo in time.
    #[error("the guest agent did not answer within {0:?}")]
    Silent(Duration),
    /// It is no HTTP/2 peer.
    #[error("the guest agent does not speak HTTP/2")]
    Http(#[from] hyper::Error),
}

/// An open channel: the sender, and a future that ends with the connection.
pub struct Channel {
    /// For requests.
    pub sender: GuestSender,
    /// Resolves when the connection is over.
    pub closed: tokio::task::JoinHandle<()>,
}

/// Opens the channel on a connected stream, waiting up to `wait` for the agent.
pub async fn open<S>(mut stream: S, wait: Duration) -> Result<Channel, ChannelError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let deadline = Instant::now() + wait;
    let mut echo_wait = ECHO_WAIT_FIRST;
    loop {
        let nonce = nonce()?;
        stream.write_all(&nonce).await?;
        let until = deadline.min(Instant::now() + echo_wait);
        match timeout_at(until, find(&mut stream, &nonce)).await {
            Ok(found) => break found?,
            Err(_) if until >= deadline => return Err(ChannelError::Silent(wait)),
            Err(_) => echo_wait = (2 * echo_wait).min(ECHO_WAIT_MAX),
        }
    }
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .max_frame_size(limits::FRAME_LEN_MAX)
        .max_send_buf_size(limits::STREAM_WINDOW as usize)
        .initial_max_send_streams(limits::STREAMS_MAX as usize)
        .max_concurrent_reset_streams(limits::STREAMS_MAX as usize)
        .handshake(TokioIo::new(stream))
        .await?;
    let closed = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "guest channel ended");
        }
    });
    Ok(Channel { sender, closed })
}

fn nonce() -> std::io::Result<[u8; limits::NONCE_LEN]> {
    let mut nonce = [0u8; limits::NONCE_LEN];
    nonce[..4].copy_from_slice(&limits::NONCE_MAGIC);
    rustix::rand::getrandom(&mut nonce[4..], rustix::rand::GetRandomFlags::empty())?;
    Ok(nonce)
}

/// Drops bytes until exactly `nonce` has gone by.
async fn find(stream: &mut (impl AsyncRead + Unpin), nonce: &[u8]) -> std::io::Result<()> {
    let mut window = Vec::with_capacity(2 * nonce.len());
    loop {
        // One byte at a time at the end, so that nothing behind the nonce is taken.
        let missing = nonce.len() - longest_overlap(&window, nonce);
        let mut chunk = vec![0u8; missing];
        let n = stream.read(&mut chunk).await?;
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        window.extend_from_slice(&chunk[..n]);
        if window.ends_with(nonce) {
            return Ok(());
        }
        let keep = longest_overlap(&window, nonce);
        window.drain(..window.len() - keep);
    }
}

/// Length of the longest end of `seen` that is a start of `nonce`.
fn longest_overlap(seen: &[u8], nonce: &[u8]) -> usize {
    (0..=seen.len().min(nonce.len())).rev().find(|&n| seen.ends_with(&nonce[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_nonce_is_found_behind_stale_bytes_and_nothing_more_is_taken() {
        let nonce = nonce().unwrap();
        let (mut ours, mut theirs) = tokio::io::duplex(1024);
        let mut sent = b"stale WRN1 WRN1bytes".to_vec();
        sent.extend_from_slice(&nonce[..9]);
        sent.extend_from_slice(&nonce);
        sent.extend_from_slice(b"next");
        theirs.write_all(&sent).await.unwrap();
        find(&mut ours, &nonce).await.unwrap();
        let mut rest = [0u8; 4];
        ours.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"next");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_guest_is_given_up_in_time() {
        let (ours, _theirs) = tokio::io::duplex(1 << 16);
        let wait = Duration::from_secs(2);
        assert!(matches!(open(ours, wait).await, Err(ChannelError::Silent(_))));
    }
}
