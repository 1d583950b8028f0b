use rustix::fs::CWD;
use rustix::mount::{MountFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, move_mount, open_tree};
use std::ffi::CStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What is moved into the guest's root: mounts made here, with all that is mounted on them.
const MOVED: [&str; 3] = ["/proc", "/sys", "/dev"];
/// Where the tools disk is mounted. Below `/dev`, which moves into the guest's root as it is: there it hides nothing of the
/// image, needs nothing made on the image's disk, and is not lost when something is mounted on `/run`.
const TOOLS: &str = "/dev/warren/tools";
/// Where the kernel finds the agent as its module loader, in the guest's root too.
pub(crate) const MODULE_LOADER: &str = "/dev/warren/modprobe";

struct FileSystem {
    target: &'static str,
    kind: &'static str,
    flags: MountFlags,
    options: Option<&'static CStr>,
}

/// In the order of mounting. The same that Docker gives a container, with the machine's own devices.
fn file_systems() -> [FileSystem; 7] {
    let quiet = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let entry = |target, kind, flags, options| FileSystem { target, kind, flags, options };
    [
        entry("/proc", "proc", quiet, None),
        entry("/sys", "sysfs", quiet, None),
        entry("/sys/fs/cgroup", "cgroup2", quiet, Some(c"nsdelegate")),
        entry("/dev", "devtmpfs", MountFlags::NOSUID, Some(c"mode=0755")),
        entry("/dev/pts", "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, Some(c"gid=5,mode=620,ptmxmode=666")),
        entry("/dev/shm", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=1777")),
        entry("/dev/mqueue", "mqueue", quiet, None),
    ]
}

pub(super) fn mount_kernel_file_systems() -> io::Result<()> {
    for FileSystem { target, kind, flags, options } in file_systems() {
        fs::create_dir_all(target)?;
        mount(kind, target, kind, flags, options)
            .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("{target}: {error}")))?;
    }
    for (link, to) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        match symlink(format!("/proc/self/fd{to}"), format!("/dev/{link}")) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Mounts the tools disk, if there is one, and makes the agent the kernel's module loader.
pub(super) fn mount_tools(device: Option<&Path>) -> io::Result<()> {
    if let Some(device) = device {
        fs::create_dir_all(TOOLS)?;
        mount(device, TOOLS, "ext4", MountFlags::RDONLY | MountFlags::NODEV, None::<&CStr>)?;
    }
    fs::create_dir_all("/dev/warren")?;
    // A file of its own, since the guest's root will hide the one that we were started from.
    fs::write(MODULE_LOADER, "")?;
    fs::set_permissions(MODULE_LOADER, Permissions::from_mode(0o755))?;
    mount_bind(fs::read_link("/proc/self/exe")?, MODULE_LOADER)?;
    fs::write("/proc/sys/kernel/modprobe", MODULE_LOADER)
}

/// The tools disk's modules of the running kernel.
pub(crate) fn modules_of_tools() -> PathBuf {
    Path::new(TOOLS).join("lib/modules").join(&*rustix::system::uname().release().to_string_lossy())
}

/// Handles on the mounts that the guest's root will get.
pub struct Staged(Vec<(OwnedFd, &'static str)>);

impl Staged {
    pub(super) fn open() -> io::Result<Self> {
        let open = |target| Ok((open_tree(CWD, target, OpenTreeFlags::OPEN_TREE_CLOEXEC)?, target));
        Ok(Self(MOVED.into_iter().map(open).collect::<io::Result<_>>()?))
    }

    /// Moves them to the same paths in what is the root now.
    pub fn attach(self) -> io::Result<()> {
        for (tree, target) in self.0 {
            fs::create_dir_all(target)?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
            move_mount(tree, "", CWD, target, flags)?;
        }
        Ok(())
    }
}
