use super::freezer::says_frozen;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

/// Empty cgroups kept ready, so that a command does not wait for one to be made.
const SPARE_MAX: usize = 2;

/// Makes one cgroup for each command: the only handle on all its processes, however they detach.
pub struct Cgroups {
    /// The folder that is theirs; held open, so that nothing the guest mounts or unmounts gets in between.
    home: Option<Rc<OwnedFd>>,
    /// The folder that they are made in: the same, or one below the cgroup of a machine's init.
    parent: RefCell<Option<Rc<OwnedFd>>>,
    next: Cell<u64>,
    spare: RefCell<Vec<CommandCgroup>>,
    /// Those of ended commands in which something still runs.
    lingering: RefCell<Vec<CommandCgroup>>,
}

/// The cgroup of one command.
pub struct CommandCgroup {
    parent: Rc<OwnedFd>,
    name: String,
    folder: OwnedFd,
}

impl CommandCgroup {
    /// Its folder.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Whether what is born in it would not run: root of the guest has frozen it, or all of them.
    pub fn is_frozen(&self) -> bool {
        let open = rustix::fs::openat(&self.folder, "cgroup.events", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        open.is_ok_and(|events| says_frozen(events.as_fd()) == Some(true))
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
        let home = open_parent(parent).ok().map(Rc::new);
        let parent = RefCell::new(home.clone());
        let cgroups =
            Self { home, parent, next: Cell::new(1), spare: RefCell::default(), lingering: RefCell::default() };
        cgroups.prepare();
        Rc::new(cgroups)
    }

    /// The root of the hierarchy, if there is one.
    pub fn root(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(self.home.as_ref()?, "..", flags, Mode::empty()).ok()
    }

    /// A cgroup for a new command.
    pub fn take(&self) -> Option<CommandCgroup> {
        let spare = self.spare.borrow_mut().pop();
        spare.or_else(|| self.make().ok())
    }

    /// Makes a cgroup with all controllers for an init that rules a machine's cgroups, and makes the commands' below it from now on: in `name`, beside what
    /// the init makes. A process that sees the init's cgroup as the root can be moved only within.
    pub fn enter_machine(&self, name: &str) -> io::Result<CommandCgroup> {
        let home = self.home.clone().ok_or(io::ErrorKind::Unsupported)?;
        let machine = make(&home, self.next_name())?;
        enable_controllers(&home, "..")?;
        enable_controllers(&home, ".")?;
        let commands = make(&Rc::new(rustix::io::dup(&machine.folder)?), name.to_owned())?;
        self.make_in(Some(Rc::new(commands.folder)));
        Ok(machine)
    }

    /// Back to where commands were before.
    pub fn leave_machine(&self) {
        self.make_in(self.home.clone());
    }

    fn make_in(&self, parent: Option<Rc<OwnedFd>>) {
        *self.parent.borrow_mut() = parent;
        for spare in self.spare.take() {
            self.release(spare);
        }
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
        if !remove(&cgroup) {
            self.lingering.borrow_mut().push(cgroup);
        }
    }

    /// Removes the cgroups that have become empty.
    pub fn sweep(&self) {
        self.lingering.borrow_mut().retain(|cgroup| !remove(cgroup));
    }

    /// Whether some cgroup of an ended command still holds processes.
    pub fn has_lingering(&self) -> bool {
        !self.lingering.borrow().is_empty()
    }

    fn make(&self) -> io::Result<CommandCgroup> {
        let parent = self.parent.borrow().clone().ok_or(io::ErrorKind::Unsupported)?;
        make(&parent, self.next_name())
    }

    fn next_name(&self) -> String {
        self.next.replace(self.next.get() + 1).to_string()
    }
}

fn make(parent: &Rc<OwnedFd>, name: String) -> io::Result<CommandCgroup> {
    rustix::fs::mkdirat(parent, &name, Mode::from(0o755))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::openat(parent, &name, flags, Mode::empty())?;
    Ok(CommandCgroup { parent: parent.clone(), name, folder })
}

/// False while processes are in it.
fn remove(cgroup: &CommandCgroup) -> bool {
    rustix::fs::unlinkat(&cgroup.parent, &cgroup.name, AtFlags::REMOVEDIR) != Err(Errno::BUSY)
}

/// Enables what controllers there are, one by one: one that cannot be is missing below, and no reason to have none.
fn enable_controllers(from: &OwnedFd, folder: &str) -> io::Result<()> {
    let open = |name, flags| {
        rustix::fs::openat(from, format!("{folder}/{name}"), OFlags::CLOEXEC | flags, Mode::empty()).map(File::from)
    };
    let mut names = String::new();
    open("cgroup.controllers", OFlags::RDONLY)?.read_to_string(&mut names)?;
    let control = open("cgroup.subtree_control", OFlags::WRONLY)?;
    for name in names.split_ascii_whitespace() {
        let _ = rustix::io::write(&control, format!("+{name}").as_bytes());
    }
    Ok(())
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
