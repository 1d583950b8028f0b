use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use warren_proto::guest::limits::{NONCE_LEN, NONCE_MAGIC};

/// First bytes of every HTTP/2 connection. (None of its ends is a start of the nonce's magic.)
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes taken at once while looking for the nonce.
const LOOK_LEN: usize = 512;

/// A stream on which both sides agree where the connection begins.
pub struct Agreed<'a, T> {
    stream: &'a mut T,
    /// Read already while agreeing.
    ahead: Vec<u8>,
}

/// Drops what comes before a nonce, echoes the nonce, and goes on when an HTTP/2 connection begins. A host that got no echo in
/// time sends a further nonce, which is echoed too.
pub async fn agree<T: AsyncRead + AsyncWrite + Unpin>(stream: &mut T) -> io::Result<Agreed<'_, T>> {
    let mut search = Search::default();
    loop {
        let mut bytes = [0; LOOK_LEN];
        let len = stream.read(&mut bytes).await?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        search.seen.extend_from_slice(&bytes[..len]);
        while let Some(found) = search.next() {
            match found {
                Found::Nonce(nonce) => {
                    stream.write_all(&nonce).await?;
                    stream.flush().await?;
                }
                Found::Preface => return Ok(Agreed { stream, ahead: search.seen }),
            }
        }
    }
}

/// What a host says before its first frame.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// A nonce.
    Nonce([u8; NONCE_LEN]),
    /// The preface, directly behind a nonce. It stays in `seen`.
    Preface,
}

#[derive(Default)]
struct Search {
    seen: Vec<u8>,
    /// Whether `seen` begins directly behind a nonce.
    after_nonce: bool,
}

impl Search {
    fn next(&mut self) -> Option<Found> {
        if self.after_nonce {
            if self.seen.starts_with(PREFACE) {
                return Some(Found::Preface);
            }
            if PREFACE.starts_with(&self.seen) {
                return None;
            }
            self.after_nonce = false;
        }
        let at = self.seen.windows(NONCE_MAGIC.len()).position(|window| window == NONCE_MAGIC);
        // Without a match, only an end that may be the start of one is kept.
        self.seen.drain(..at.unwrap_or(self.seen.len().saturating_sub(NONCE_MAGIC.len() - 1)));
        let nonce = *self.seen.first_chunk::<NONCE_LEN>().filter(|_| at.is_some())?;
        self.seen.drain(..NONCE_LEN);
        self.after_nonce = true;
        Some(Found::Nonce(nonce))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Agreed<'_, T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut *self.stream).poll_read(cx, buf);
        }
        let len = self.ahead.len().min(buf.remaining());
        buf.put_slice(&self.ahead[..len]);
        self.ahead.drain(..len);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Agreed<'_, T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: [u8; NONCE_LEN] = *b"WRN1aaaaaaaaaaaa";
    const B: [u8; NONCE_LEN] = *b"WRN1bbbbbbbbbbbb";

    fn run(chunks: &[&[u8]]) -> (Vec<Found>, Vec<u8>) {
        let mut search = Search::default();
        let mut found = Vec::new();
        for chunk in chunks {
            search.seen.extend_from_slice(chunk);
            while let Some(next) = search.next() {
                let end = next == Found::Preface;
                found.push(next);
                if end {
                    return (found, search.seen);
                }
            }
        }
        (found, search.seen)
    }

    #[test]
    fn stale_bytes_and_older_nonces_are_passed_over() {
        let bytes = [b"stale PRI * HTTP WRN", &A[..], b"rest of an old one", &A, &B, PREFACE, b"frames"].concat();
        for step in [1, 3, 16, 1000] {
            let chunks: Vec<&[u8]> = bytes.chunks(step).collect();
            let (found, left) = run(&chunks);
            assert_eq!(found, [Found::Nonce(A), Found::Nonce(A), Found::Nonce(B), Found::Preface], "step {step}");
            assert!(left.starts_with(PREFACE));
        }
    }

    proptest! {
        #[test]
        fn a_nonce_is_found_behind_anything(noise in proptest::collection::vec(any::<u8>(), 0..100), step in 1usize..40) {
            prop_assume!(!noise.windows(2).any(|w| w == b"WR"));
            let bytes = [&noise[..], &A, PREFACE].concat();
            let chunks: Vec<&[u8]> = bytes.chunks(step).collect();
            prop_assert_eq!(run(&chunks).0, vec![Found::Nonce(A), Found::Preface]);
        }
    }

    #[tokio::test]
    async fn the_nonce_comes_back_and_the_connection_starts_behind_it() {
        let (mut host, mut guest) = tokio::io::duplex(1024);
        host.write_all(&[&b"old"[..], &A, PREFACE, b"more"].concat()).await.unwrap();
        let mut stream = agree(&mut guest).await.unwrap();
        let mut echo = [0; NONCE_LEN];
        host.read_exact(&mut echo).await.unwrap();
        assert_eq!(echo, A);
        let mut rest = vec![0; PREFACE.len() + 4];
        stream.read_exact(&mut rest).await.unwrap();
        assert_eq!(rest, [PREFACE, b"more"].concat());
    }
}
