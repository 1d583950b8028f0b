use super::event::{Channel, DATA_PREFIX_LEN_MAX, data_frame};
use super::watcher::Watcher;
use crate::http::CHUNK_LEN_MAX;
use bytes::Bytes;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;
use warren_proto::guest::command_session::{Code, ConnectError};

/// Most bytes read from a command at once, so that a frame of them fits one chunk.
pub const READ_LEN_MAX: usize = CHUNK_LEN_MAX - DATA_PREFIX_LEN_MAX;

/// One output of a command.
pub(super) struct Source {
    file: Rc<AsyncFd<OwnedFd>>,
    channel: Channel,
    /// Bytes that are still to be read, once the command has ended; a process it left behind may go on to write.
    left: Option<usize>,
}

/// What became of one look at a source.
pub(super) enum Progress {
    /// Some bytes were moved.
    Moved,
    /// There will be no more.
    Closed,
}

impl Source {
    /// Reads from `file`.
    pub(super) fn new(file: Rc<AsyncFd<OwnedFd>>, channel: Channel) -> Self {
        Self { file, channel, left: None }
    }

    /// From now on, what is in the pipe at this moment is all that counts.
    pub(super) fn limit_to_present(&mut self) {
        let present = rustix::io::ioctl_fionread(self.file.get_ref()).unwrap_or(0);
        self.left = Some(present as usize);
    }

    /// Moves bytes to the watchers; pending while there are none, or while the newest watcher takes none.
    pub(super) fn poll_move(
        &mut self,
        watchers: &mut Vec<Watcher>,
        scratch: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<Progress> {
        if self.left == Some(0) {
            return Poll::Ready(Progress::Closed);
        }
        let Ok(mut readable) = ready!(self.file.poll_read_ready(cx)) else { return Poll::Ready(Progress::Closed) };
        let want = scratch.len().min(self.left.unwrap_or(usize::MAX));
        let (room, want) = match watchers.last_mut() {
            None => (None, want),
            Some(pace) => match ready!(pace.out.poll_room(want + DATA_PREFIX_LEN_MAX, DATA_PREFIX_LEN_MAX + 1, cx)) {
                Ok(room) => {
                    let fits = want.min(room.len() - DATA_PREFIX_LEN_MAX);
                    (Some(room), fits)
                }
                Err(_) => (None, want),
            },
        };
        let len = match rustix::io::read(self.file.get_ref(), &mut scratch[..want]) {
            Ok(0) => return Poll::Ready(Progress::Closed),
            Ok(len) => len,
            Err(Errno::INTR) => return Poll::Ready(Progress::Moved),
            Err(Errno::AGAIN) => {
                readable.clear_ready();
                if let Some(pace) = watchers.last_mut() {
                    pace.out.rest();
                }
                // Asked again, it registers for the next bytes; with a limit there are none to come.
                return Poll::Ready(if self.left.is_some() { Progress::Closed } else { Progress::Moved });
            }
            // A terminal whose other side is closed.
            Err(_) => return Poll::Ready(Progress::Closed),
        };
        if let Some(left) = &mut self.left {
            *left -= len;
        }
        if let Some(room) = room {
            let frame = data_frame(self.channel, &scratch[..len]);
            send_to_older(watchers, &frame);
            if let Some(pace) = watchers.last_mut() {
                // One that has gone is found by the next poll.
                let _ = pace.out.send(frame, room);
                pace.last_sent = Instant::now();
                pace.out.rest();
            }
        }
        Poll::Ready(Progress::Moved)
    }
}

/// Sends to all but the newest watcher, and ends those whose window is used up.
fn send_to_older(watchers: &mut Vec<Watcher>, frame: &Bytes) {
    if watchers.len() < 2 {
        return;
    }
    let newest = watchers.pop();
    let mut kept = Vec::with_capacity(watchers.len() + 1);
    for mut watcher in watchers.drain(..) {
        if watcher.out.try_send(frame) {
            watcher.last_sent = Instant::now();
            kept.push(watcher);
        } else {
            watcher
                .fail(&ConnectError::new(Code::Aborted, "this stream was too slow, and a newer one shows the session"));
        }
    }
    kept.extend(newest);
    *watchers = kept;
}
