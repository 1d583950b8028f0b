//! The host's side of one TCP flow.

use rustix::net::{Shutdown, shutdown, sockopt};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A connected stream of the host: to a destination, or to a task of ours.
pub(super) enum HostStream {
    Tcp(TcpStream),
    Local(UnixStream),
}

impl HostStream {
    /// Connects to `target`.
    pub(super) async fn connect(target: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(target).await?;
        stream.set_nodelay(true)?;
        Ok(HostStream::Tcp(stream))
    }

    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            HostStream::Tcp(stream) => stream.try_read(buffer),
            HostStream::Local(stream) => stream.try_read(buffer),
        }
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            HostStream::Tcp(stream) => stream.try_write(bytes),
            HostStream::Local(stream) => stream.try_write(bytes),
        }
    }

    /// Waits until one of `interest` may succeed.
    pub(super) async fn ready(&self, interest: Interest) -> io::Result<()> {
        match self {
            HostStream::Tcp(stream) => stream.ready(interest).await.map(drop),
            HostStream::Local(stream) => stream.ready(interest).await.map(drop),
        }
    }

    /// Tells the other end that no more bytes come.
    pub(super) fn end_writing(&self) {
        // It fails only if the connection is gone, which the next read tells.
        _ = shutdown(self.fd(), Shutdown::Write);
    }

    /// Closes with a reset instead of an orderly end.
    pub(super) fn reset(self) {
        if let HostStream::Tcp(stream) = self {
            // Without it the peer would take the end for an orderly one; there is nothing else to try.
            _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            HostStream::Tcp(stream) => stream.as_fd(),
            HostStream::Local(stream) => stream.as_fd(),
        }
    }
}
