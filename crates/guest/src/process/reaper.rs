use crate::sys::{child_signals, watch};
use rustix::process::{WaitOptions, WaitStatus};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, oneshot};

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The shell's number for it: 128+n after signal n.
    pub fn code(self) -> i32 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
        }
    }

    /// Whether SIGKILL ended it.
    pub fn was_killed(self) -> bool {
        self == Exit::Signal(9)
    }
}

/// Waits for all children, those that were re-parented to us included, and tells who asked for one.
pub struct Reaper {
    signals: AsyncFd<OwnedFd>,
    expected: RefCell<HashMap<u32, oneshot::Sender<Exit>>>,
    orphan_reaped: Notify,
}

impl Reaper {
    /// Takes SIGCHLD over. Must be called before any child is started, on the thread that starts them.
    pub fn new() -> io::Result<Rc<Self>> {
        let signals = watch(child_signals()?, Interest::READABLE)?;
        Ok(Rc::new(Self { signals, expected: RefCell::default(), orphan_reaped: Notify::new() }))
    }

    /// Asks for the end of a child that was started just now: no await may lie between its start and this call.
    pub fn expect(&self, pid: u32) -> oneshot::Receiver<Exit> {
        let (sender, receiver) = oneshot::channel();
        self.expected.borrow_mut().insert(pid, sender);
        receiver
    }

    /// Resolves after a process ended that nobody asked for.
    pub async fn orphan_reaped(&self) {
        self.orphan_reaped.notified().await;
    }

    /// Reaps for ever.
    pub async fn run(&self) {
        loop {
            let Ok(mut guard) = self.signals.readable().await else { return };
            guard.clear_ready();
            // What the signals say is asked for anew below: several ends may share one.
            let mut signals = [0u8; 512];
            while rustix::io::read(self.signals.get_ref(), &mut signals).is_ok() {}
            self.reap();
        }
    }

    fn reap(&self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let Some(exit) = exit_of(status) else { continue };
            match self.expected.borrow_mut().remove(&(pid.as_raw_nonzero().get() as u32)) {
                // Who asked may have stopped to listen.
                Some(sender) => drop(sender.send(exit)),
                None => self.orphan_reaped.notify_one(),
            }
        }
    }
}

fn exit_of(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}
