use rustix::fs::{Dir, FileType, Mode, OFlags};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use tokio::sync::Notify;

/// Most cgroups at the top of the hierarchy that are frozen: a guest may make any number.
const CGROUPS_MAX: usize = 4096;

/// Lets all programs of the user stand still while a snapshot is taken, and after a restore until the machine has its identity.
///
/// All cgroups right below the root are frozen: the agent, alone with the kernel in the root, is not. What root of the guest has moved into
/// the root cgroup runs on. A cgroup that the guest has frozen itself stays as it is.
#[derive(Default)]
pub struct Freezer {
    suspended: Cell<bool>,
    /// `cgroup.freeze` of those that are to be thawed.
    frozen: RefCell<Vec<OwnedFd>>,
    resumed: Notify,
}

impl Freezer {
    /// Whether programs stand still.
    pub fn is_suspended(&self) -> bool {
        self.suspended.get()
    }

    /// Waits until they run.
    pub async fn running(&self) {
        while self.suspended.get() {
            self.resumed.notified().await;
        }
    }

    /// Freezes what is below `root`, the root cgroup. Those that already run in the kernel stand still when they leave it.
    pub fn suspend(&self, root: Option<OwnedFd>) -> io::Result<()> {
        if self.suspended.replace(true) {
            return Ok(());
        }
        let result = root.map_or(Ok(()), |root| self.freeze_below(&root));
        if result.is_err() {
            self.resume();
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
            let path = [name.to_bytes(), b"/cgroup.freeze"].concat();
            // One that has just gone, or cannot be frozen, holds nobody up.
            let Ok(file) = rustix::fs::openat(root, path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
                continue;
            };
            let mut now = [0];
            let by_the_guest = rustix::io::pread(&file, &mut now, 0).is_ok() && now == *b"1";
            if !by_the_guest && rustix::io::pwrite(&file, b"1", 0).is_ok() {
                self.frozen.borrow_mut().push(file);
            }
        }
        Ok(())
    }

    /// Lets all go on.
    pub fn resume(&self) {
        for file in self.frozen.take() {
            let _ = rustix::io::pwrite(&file, b"0", 0);
        }
        self.suspended.set(false);
        self.resumed.notify_waiters();
    }
}
