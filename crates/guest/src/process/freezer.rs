use rustix::fs::{Dir, FileType, Mode, OFlags};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Most cgroups at the top of the hierarchy that are frozen: a guest may make any number.
const CGROUPS_MAX: usize = 4096;
/// Longest text of `cgroup.events`, bytes.
const EVENTS_LEN_MAX: usize = 256;
/// Longest wait until what was frozen stands still. Only what hangs in the kernel takes longer, and runs no code of its own before it stands still.
const STILL_WAIT: Duration = Duration::from_millis(100);
/// Time between two looks whether it does.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Lets all programs of the user stand still while a snapshot is taken, and after a restore until the machine has its identity.
///
/// All cgroups right below the root are frozen: the agent, alone with the kernel in the root, is not. What root of the guest has moved into
/// the root cgroup runs on. A cgroup that the guest has frozen itself stays as it is.
#[derive(Default)]
pub struct Freezer {
    suspended: Cell<bool>,
    /// Whether somebody is about to resume.
    going_on: Cell<bool>,
    /// Those that are to be thawed.
    frozen: RefCell<Vec<Frozen>>,
    resumed: Notify,
}

/// Files of a cgroup.
struct Frozen {
    freeze: OwnedFd,
    events: OwnedFd,
}

impl Freezer {
    /// Whether programs stand still.
    pub fn is_suspended(&self) -> bool {
        self.suspended.get()
    }

    /// Whether they stand still and will go on without being told to.
    pub fn is_going_on(&self) -> bool {
        self.going_on.get()
    }

    /// Somebody will call [`Freezer::resume`].
    pub fn will_resume(&self) {
        self.going_on.set(true);
    }

    /// Waits until they run.
    pub async fn running(&self) {
        while self.suspended.get() {
            self.resumed.notified().await;
        }
    }

    /// Freezes what is below `root`, the root cgroup, and waits until it stands still: a program that another processor runs notices a moment later.
    pub async fn suspend(&self, root: Option<OwnedFd>) -> io::Result<()> {
        if self.suspended.replace(true) {
            return Ok(());
        }
        let result = root.map_or(Ok(()), |root| self.freeze_below(&root));
        if result.is_err() {
            self.resume();
        }
        let deadline = Instant::now() + STILL_WAIT;
        while !self.is_still() && Instant::now() < deadline {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        result
    }

    fn freeze_below(&self, root: &OwnedFd) -> io::Result<()> {
        for entry in Dir::read_from(root)?.take(CGROUPS_MAX) {
            let entry = entry?;
            let name = entry.file_name();
            if entry.file_type() != FileType::Directory || name == c"." || name == c".." {
                continue;
            }
            let open = |file: &[u8], flags| {
                let path = [name.to_bytes(), file].concat();
                rustix::fs::openat(root, path, flags | OFlags::CLOEXEC, Mode::empty())
            };
            // One that has just gone, or cannot be frozen, holds nobody up.
            let (Ok(freeze), Ok(events)) =
                (open(b"/cgroup.freeze", OFlags::RDWR), open(b"/cgroup.events", OFlags::RDONLY))
            else {
                continue;
            };
            let mut now = [0];
            let by_the_guest = rustix::io::pread(&freeze, &mut now, 0).is_ok() && now == *b"1";
            if !by_the_guest && rustix::io::pwrite(&freeze, b"1", 0).is_ok() {
                self.frozen.borrow_mut().push(Frozen { freeze, events });
            }
        }
        Ok(())
    }

    fn is_still(&self) -> bool {
        self.frozen.borrow().iter().all(|cgroup| says_frozen(cgroup.events.as_fd()) != Some(false))
    }

    /// Lets all go on.
    pub fn resume(&self) {
        for cgroup in self.frozen.take() {
            let _ = rustix::io::pwrite(&cgroup.freeze, b"0", 0);
        }
        self.suspended.set(false);
        self.going_on.set(false);
        self.resumed.notify_waiters();
    }
}

/// Whether all in a cgroup stands still, by its `cgroup.events`; `None` if it has gone.
pub(super) fn says_frozen(events: BorrowedFd<'_>) -> Option<bool> {
    let mut text = [0; EVENTS_LEN_MAX];
    let len = rustix::io::pread(events, &mut text, 0).ok()?;
    Some(text[..len].split(|&byte| byte == b'\n').any(|line| line == b"frozen 1"))
}
