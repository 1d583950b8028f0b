use crate::sys::watch;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Most bytes that the driver takes at once. Each write is a turn of the device, however short, so short pieces are joined.
const WRITE_LEN_MAX: usize = 32 << 10;

/// A virtio-serial port as a byte stream, for one task.
///
/// While the host has not connected, the port hangs up: reads give 0 and polls give HUP. That is a level and tokio keeps it for
/// good, so the port is not registered with tokio itself but with an epoll of its own, edge-triggered, which tokio watches: each
/// change on the host's side makes that one readable. Writes are refused with EAGAIN while the host is away, which is an error
/// here: nothing but its return would ever end the wait. The descriptor stays open for ever: the host finds the agent behind it
/// after every snapshot and restore.
pub struct Port {
    file: OwnedFd,
    changes: AsyncFd<OwnedFd>,
    /// For joining a frame's header with what follows.
    joined: Vec<u8>,
}

impl Port {
    /// Opens a port's device.
    pub fn open(device: &Path) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(device, flags, Mode::empty())?;
        let changes = epoll::create(CreateFlags::CLOEXEC)?;
        let wanted = EventFlags::IN | EventFlags::OUT | EventFlags::HUP | EventFlags::ET;
        epoll::add(&changes, &file, EventData::new_u64(0), wanted)?;
        Ok(Self { file, changes: watch(changes, Interest::READABLE)?, joined: Vec::with_capacity(WRITE_LEN_MAX) })
    }

    /// Waits until the host is there.
    pub async fn host(&self) -> io::Result<()> {
        poll_fn(|cx| {
            while !self.host_is_there()? {
                ready!(self.poll_change(cx))?;
            }
            Poll::Ready(Ok(()))
        })
        .await
    }

    fn host_is_there(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(&self.file, PollFlags::IN | PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        Ok(!fds[0].revents().contains(PollFlags::HUP))
    }

    /// Ready when something has changed since the last time; what, a read or write will show. Since a change is told once, the
    /// task is woken for the other direction too.
    fn poll_change(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.changes.poll_read_ready(cx))?;
            let mut events = [const { std::mem::MaybeUninit::<Event>::uninit() }; 1];
            let (happened, _) = epoll::wait(guard.get_inner(), &mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
            if !happened.is_empty() {
                cx.waker().wake_by_ref();
                return Poll::Ready(Ok(()));
            }
            guard.clear_ready();
        }
    }
}

impl AsyncRead for Port {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            // The port gives at most a page at a time; collecting them here is cheaper than a turn of the decoder for each.
            let before = buf.filled().len();
            while buf.remaining() > 0 {
                match rustix::io::read(&self.file, buf.initialize_unfilled()) {
                    Ok(0) => return Poll::Ready(Ok(())),
                    Ok(len) => buf.advance(len),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
            if buf.filled().len() > before || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_change(cx))?;
        }
    }
}

impl AsyncWrite for Port {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match rustix::io::write(&self.file, data) {
                Ok(len) => return Poll::Ready(Ok(len)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if !self.host_is_there()? => {
                    return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
                }
                Err(Errno::AGAIN) => ready!(self.poll_change(cx))?,
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = pieces.iter().find(|piece| !piece.is_empty()).map_or(&[][..], |piece| piece);
        if first.len() >= WRITE_LEN_MAX || pieces.len() < 2 {
            return self.poll_write(cx, first);
        }
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        for piece in pieces {
            let free = WRITE_LEN_MAX - joined.len();
            joined.extend_from_slice(&piece[..piece.len().min(free)]);
        }
        let result = self.as_mut().poll_write(cx, &joined);
        self.joined = joined;
        result
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
