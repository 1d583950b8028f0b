//! Sessions: a command with the streams that watch it.
//!
//! A session is driven by one task ([`driver`]) that owns the command's output and the streams it goes to. Others reach it
//! through [`Session`]: to attach a stream, to write its input, to signal it. The newest stream sets the pace: where its reader
//! is slow the command waits, as on a full pipe. An older stream that cannot keep up is ended, since the client of a lost
//! connection would otherwise hold the command up for ever. With no stream at all the output is read and dropped.

mod driver;
mod event;
mod input;
mod output;
mod registry;
mod repeats;
mod watcher;

pub use driver::start;
pub use input::{InputError, InputQueue};
pub use output::READ_LEN_MAX;
pub use registry::Sessions;
pub use watcher::Watcher;

use crate::process::CommandCgroup;
use event::Ending;
use repeats::Repeats;
use rustix::process::{Pid, Signal, kill_process_group};
use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::Waker;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;
use warren_proto::guest::command_session::{CommandSessionInfo, PtySize};

/// Streams on one session at once.
const WATCHERS_MAX: usize = 64;

/// A canonical lower-case UUID as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(u128);

impl Uuid {
    /// Reads `8-4-4-4-12` lower-case hex digits, nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let shape = |(index, byte): (usize, u8)| match index {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        };
        if text.len() != 36 || !text.bytes().enumerate().all(shape) {
            return None;
        }
        let digits = text.bytes().filter_map(|byte| (byte as char).to_digit(16));
        Some(Self(digits.fold(0, |number, digit| number << 4 | u128::from(digit))))
    }
}

/// One command, while it runs and for a while after.
pub struct Session {
    /// Pid of its leader.
    pub pid: u32,
    /// The client's name for it.
    pub uuid: Option<Uuid>,
    /// Tells whether another request asks for the same.
    pub fingerprint: u64,
    /// For lists; long arguments are cut.
    pub info: CommandSessionInfo,
    input: Option<InputQueue>,
    terminal: Option<Rc<AsyncFd<OwnedFd>>>,
    signals: RefCell<Repeats<()>>,
    newcomers: RefCell<Newcomers>,
    /// Streams that the driver has.
    watching: Cell<usize>,
    cgroup: RefCell<Option<CommandCgroup>>,
    ended: OnceCell<Ending>,
}

#[derive(Default)]
struct Newcomers {
    waiting: Vec<Watcher>,
    driver: Option<Waker>,
}

impl Session {
    /// Adds a stream: it gets the start event, then what comes from now on; of a session that has ended, its end.
    /// Refused (the stream comes back) where there are too many.
    pub fn attach(&self, watcher: Watcher) -> Result<(), Watcher> {
        if let Some(ending) = self.ended.get() {
            watcher.begin(self.pid).end(ending);
            return Ok(());
        }
        let mut newcomers = self.newcomers.borrow_mut();
        if newcomers.waiting.len() + self.watching.get() >= WATCHERS_MAX {
            return Err(watcher);
        }
        newcomers.waiting.push(watcher);
        if let Some(driver) = newcomers.driver.take() {
            driver.wake();
        }
        Ok(())
    }

    /// Whether its leader still runs, or its end is still being told.
    pub fn is_running(&self) -> bool {
        self.ended.get().is_none()
    }

    /// Its input; `None` where it was started without.
    pub fn input(&self) -> Option<&InputQueue> {
        self.input.as_ref()
    }

    /// Sends a signal to its process group, once for each `uuid`. To one that has ended this does nothing.
    pub fn signal(&self, signal: Signal, uuid: Option<Uuid>) -> rustix::io::Result<()> {
        if uuid.is_some_and(|uuid| self.signals.borrow_mut().add(uuid, (), Instant::now()).is_some())
            || !self.is_running()
        {
            return Ok(());
        }
        let Some(group) = Pid::from_raw(self.pid as i32) else { return Ok(()) };
        match kill_process_group(group, signal) {
            // Everything in the group has ended already.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            other => other,
        }
    }

    /// Changes the size of its terminal. False where it has none.
    pub fn resize(&self, size: PtySize) -> std::io::Result<bool> {
        let Some(terminal) = &self.terminal else { return Ok(false) };
        crate::command::resize_terminal(std::os::fd::AsFd::as_fd(terminal.get_ref()), size)?;
        Ok(true)
    }

    /// Kills every process of the command, whatever group or session it has moved to. Only while its leader is not reaped.
    fn kill_all(&self) {
        let killed = self.cgroup.borrow().as_ref().is_some_and(|cgroup| cgroup.kill().is_ok());
        if !killed && let Some(group) = Pid::from_raw(self.pid as i32) {
            // Without cgroups this is as far as we can reach; a group that has ended is fine.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_uuids_parse() {
        let good = "0123abcd-ef01-2345-6789-abcdef012345";
        assert_eq!(Uuid::parse(good), Some(Uuid(0x0123abcd_ef01_2345_6789_abcdef012345)));
        for bad in
            ["", &good.to_uppercase(), &good[1..], &good.replace('-', "a"), "{0123abcd-ef01-2345-6789-abcdef0123}"]
        {
            assert_eq!(Uuid::parse(bad), None, "{bad}");
        }
    }
}
