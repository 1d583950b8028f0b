use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

/// Empty cgroups kept ready, so that a command does not wait for one to be made.
const SPARE_MAX: usize = 2;

/// Makes one cgroup for each command: the only handle on all its processes, however they detach.
pub struct Cgroups {
    /// The folder that they are made in; held open, so that nothing the guest mounts or unmounts gets in between.
    parent: Option<OwnedFd>,
    next: Cell<u64>,
    spare: RefCell<Vec<CommandCgroup>>,
    /// Those of ended commands in which something still runs.
    lingering: RefCell<Vec<CommandCgroup>>,
}

/// The cgroup of one command.
pub struct CommandCgroup {
    name: String,
    folder: OwnedFd,
}

impl CommandCgroup {
    /// Its folder.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Kills every process in it and below.
    pub fn kill(&self) -> io::Result<()> {
        let file = rustix::fs::openat(&self.folder, "cgroup.kill", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, b"1")?;
        Ok(())
    }
}

impl Cgroups {
    /// Makes cgroups below `parent`, a folder of a version 2 hierarchy, which is made if it is missing. Where that cannot be
    /// done, commands run without, and only their process group can be killed.
    pub fn new(parent: &Path) -> Rc<Self> {
        let parent = open_parent(parent).ok();
        let cgroups = Self { parent, next: Cell::new(1), spare: RefCell::default(), lingering: RefCell::default() };
        cgroups.prepare();
        Rc::new(cgroups)
    }

    /// A cgroup for a new command.
    pub fn take(&self) -> Option<CommandCgroup> {
        let spare = self.spare.borrow_mut().pop();
        spare.or_else(|| self.make().ok())
    }

    /// Makes spare ones; to be called when nobody waits.
    pub fn prepare(&self) {
        while self.spare.borrow().len() < SPARE_MAX {
            let Ok(cgroup) = self.make() else { return };
            self.spare.borrow_mut().push(cgroup);
        }
    }

    /// Takes back the cgroup of a command that ended: removes it, now or once all is gone that the command left behind.
    pub fn release(&self, cgroup: CommandCgroup) {
        if !self.remove(&cgroup) {
            self.lingering.borrow_mut().push(cgroup);
        }
    }

    /// Removes the cgroups that have become empty.
    pub fn sweep(&self) {
        self.lingering.borrow_mut().retain(|cgroup| !self.remove(cgroup));
    }

    /// Whether some cgroup of an ended command still holds processes.
    pub fn has_lingering(&self) -> bool {
        !self.lingering.borrow().is_empty()
    }

    fn make(&self) -> io::Result<CommandCgroup> {
        let parent = self.parent.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let name = self.next.replace(self.next.get() + 1).to_string();
        rustix::fs::mkdirat(parent, &name, Mode::from(0o755))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(parent, &name, flags, Mode::empty())?;
        Ok(CommandCgroup { name, folder })
    }

    /// False while processes are in it.
    fn remove(&self, cgroup: &CommandCgroup) -> bool {
        let Some(parent) = &self.parent else { return true };
        rustix::fs::unlinkat(parent, &cgroup.name, AtFlags::REMOVEDIR) != Err(Errno::BUSY)
    }
}

fn open_parent(path: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(path, Mode::from(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty())?;
    // A folder of a version 1 hierarchy, or of no hierarchy at all, has no such file.
    rustix::fs::accessat(&folder, "cgroup.kill", rustix::fs::Access::EXISTS, AtFlags::empty())?;
    Ok(folder)
}
