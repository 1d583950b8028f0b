use super::Uuid;
use super::repeats::Repeats;
use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

/// Writes that wait for one command to read, at most.
const PENDING_MAX: usize = 16;

/// Writes remembered of a command that has ended: its clients wait for each before they send the next.
const KNOWN_AFTER_END: usize = 32;

/// Input was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// It has been closed, or the command reads no more.
    #[error("the command's input is closed")]
    Closed,
    /// Too many writes wait.
    #[error("{PENDING_MAX} writes wait for the command to read")]
    Full,
}

/// A command's input: writes in order, each to its end once it has begun, even if its caller has gone by then.
pub struct InputQueue {
    inner: Rc<Inner>,
}

struct Inner {
    /// `None` once closed.
    target: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    is_terminal: bool,
    turn: Mutex<()>,
    pending: Cell<usize>,
    closed: Notify,
    repeats: RefCell<Repeats<Rc<Write>>>,
}

/// One write and what became of it.
#[derive(Default)]
struct Write {
    result: Cell<Option<Result<(), InputError>>>,
    done: Notify,
}

impl InputQueue {
    /// Input through a pipe, or a terminal.
    pub(super) fn new(target: Rc<AsyncFd<OwnedFd>>, is_terminal: bool) -> Self {
        Self {
            inner: Rc::new(Inner {
                target: RefCell::new(Some(target)),
                is_terminal,
                turn: Mutex::new(()),
                pending: Cell::new(0),
                closed: Notify::new(),
                repeats: RefCell::new(Repeats::new()),
            }),
        }
    }

    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.inner.is_terminal
    }

    /// Writes all of `data`, once for each `uuid`; no data closes a pipe. Resolves when the command's pipe has taken it all.
    /// Dropping the future stops the waiting, not the write.
    pub async fn write(&self, data: Bytes, uuid: Option<Uuid>) -> Result<(), InputError> {
        let known = uuid.and_then(|uuid| self.inner.repeats.borrow().find(uuid));
        let write = match known {
            Some(known) => known,
            None => self.begin(data, uuid)?,
        };
        loop {
            let done = write.done.notified();
            if let Some(result) = write.result.get() {
                return result;
            }
            done.await;
        }
    }

    fn begin(&self, data: Bytes, uuid: Option<Uuid>) -> Result<Rc<Write>, InputError> {
        if self.inner.pending.get() >= PENDING_MAX {
            return Err(InputError::Full);
        }
        self.inner.pending.set(self.inner.pending.get() + 1);
        let write = Rc::new(Write::default());
        if let Some(uuid) = uuid {
            self.inner.repeats.borrow_mut().add(uuid, write.clone(), Instant::now());
        }
        tokio::task::spawn_local(self.inner.clone().perform(data, write.clone()));
        Ok(write)
    }

    /// Ends with the command: writes that wait fail. What was written last is still known, should it be repeated.
    pub(super) fn close(&self) {
        self.inner.close();
        self.inner.repeats.borrow_mut().keep(KNOWN_AFTER_END);
    }
}

impl Inner {
    fn close(&self) {
        self.target.take();
        self.closed.notify_waiters();
    }

    async fn perform(self: Rc<Self>, data: Bytes, write: Rc<Write>) {
        let result = {
            let _turn = self.turn.lock().await;
            self.write_all(&data).await
        };
        self.pending.set(self.pending.get() - 1);
        write.result.set(Some(result));
        write.done.notify_waiters();
    }

    async fn write_all(&self, mut data: &[u8]) -> Result<(), InputError> {
        let closed = self.closed.notified();
        let target = self.target.borrow().clone().ok_or(InputError::Closed)?;
        if data.is_empty() && !self.is_terminal {
            self.target.take();
            return Ok(());
        }
        let writing = async {
            while !data.is_empty() {
                let mut ready = target.writable().await.map_err(|_| InputError::Closed)?;
                match rustix::io::write(target.get_ref(), data) {
                    Ok(len) => data = &data[len..],
                    Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                    Err(rustix::io::Errno::INTR) => {}
                    Err(_) => return Err(InputError::Closed),
                }
            }
            Ok(())
        };
        tokio::select! {
            result = writing => result,
            () = closed => Err(InputError::Closed),
        }
    }
}
