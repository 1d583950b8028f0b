//! Where a shim that was started by root locks itself in, before it reads a byte that is not the node's: a user of its own, and a file
//! system of its own that holds what a VMM needs and the sandbox's folder.
//!
//! The VMM is started inside, with no network at all; what it needs for that is the last capability to go.

use crate::sys;
use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags, mount, mount_change, mount_remount,
    move_mount, open_tree, unmount,
};
use rustix::process::{Gid, Uid, pivot_root};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// Programs, libraries and settings of the host; what is a link there is one inside.
const SYSTEM: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc"];
/// Devices that QEMU or its libraries open.
const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/kvm"];
/// Often a link to a file that a resolver of the host writes anew.
const RESOLVER: &str = "/etc/resolv.conf";
/// Size of the file system that holds the mount points.
const ROOT_OPTIONS: &std::ffi::CStr = c"mode=755,size=1m";
/// Processes of others cannot be seen.
const PROC_OPTIONS: &std::ffi::CStr = c"hidepid=invisible";

/// What a shim is inside its jail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jail {
    /// User and group that nothing else on this machine has.
    pub uid: u32,
    /// Absolute paths of what the machine is made from: seen inside at the same places, read-only.
    pub readable: Vec<PathBuf>,
}

/// Whether this process may lock its shims in: it is root, has the rights that a container withholds, and a kernel from 5.8 on.
pub fn is_possible() -> bool {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = kernel.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    // In a thread that ends with the attempt: name spaces are a thread's.
    let attempt = || {
        sys::leave_name_spaces()?;
        Ok::<(), io::Error>(mount_change("/", private())?)
    };
    version >= (5, 8)
        && rustix::process::geteuid().is_root()
        && std::thread::spawn(attempt).join().is_ok_and(|attempted| attempted.is_ok())
}

fn private() -> MountPropagationFlags {
    MountPropagationFlags::PRIVATE | MountPropagationFlags::REC
}

/// A place of the host that is seen inside.
struct Seen {
    mount: OwnedFd,
    at: PathBuf,
    is_dir: bool,
    flags: Option<MountFlags>,
}

impl Seen {
    fn open(path: &Path, flags: Option<MountFlags>) -> io::Result<Self> {
        let mount = open_tree(CWD, path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)?;
        Ok(Self { mount, at: path.to_owned(), is_dir: path.is_dir(), flags })
    }

    fn place(self, root: &Path) -> io::Result<()> {
        let target = inside(root, &self.at);
        if !target.exists() {
            if self.is_dir {
                fs::create_dir_all(&target)?;
            } else {
                fs::create_dir_all(target.parent().unwrap_or(root))?;
                File::create(&target)?;
            }
        }
        move_mount(&self.mount, c"", CWD, &target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
        match self.flags {
            Some(flags) => Ok(mount_remount(&target, MountFlags::BIND | flags, c"")?),
            None => Ok(()),
        }
    }
}

fn inside(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Locks this process in, with `folder` as its current one. To be called by root while there is one thread.
pub(crate) fn enter(folder: &Path, jail: &Jail) -> io::Result<()> {
    let named = |what: &'static str| move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    // Before anything is hidden.
    let kvm_group = fs::metadata("/dev/kvm").ok().map(|kvm| kvm.gid());
    sys::leave_name_spaces().map_err(named("leave the host's name spaces"))?;
    mount_change("/", private()).map_err(|error| named("keep mounts private")(error.into()))?;
    let read_only = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
    let (mut seen, mut links) = (Vec::new(), Vec::new());
    for path in SYSTEM.map(Path::new) {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => links.push((fs::read_link(path)?, path)),
            Ok(_) => seen.push(Seen::open(path, Some(read_only))?),
            Err(_) => {}
        }
    }
    let resolver = fs::canonicalize(RESOLVER).ok().and_then(|file| Some(file.parent()?.to_owned()));
    for path in resolver.iter().chain(&jail.readable) {
        if !SYSTEM.iter().any(|system| path.starts_with(system)) {
            seen.push(Seen::open(path, Some(read_only)).map_err(named("open what the machine is made from"))?);
        }
    }
    for path in DEVICES.map(Path::new).into_iter().filter(|path| path.exists()) {
        seen.push(Seen::open(path, None)?);
    }
    seen.push(Seen::open(folder, Some(MountFlags::NOSUID | MountFlags::NODEV))?);
    let hidden = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("tmpfs", folder, "tmpfs", MountFlags::NOSUID, ROOT_OPTIONS)?;
    for place in seen {
        let at = place.at.clone();
        place.place(folder).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", at.display())))?;
    }
    for (target, at) in links {
        symlink(target, inside(folder, at))?;
    }
    let proc = inside(folder, Path::new("/proc"));
    fs::create_dir(&proc)?;
    mount("proc", &proc, "proc", hidden, PROC_OPTIONS)?;
    std::env::set_current_dir(folder)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir(folder)?;
    become_user(jail.uid, kvm_group)
}

/// Gives everything up but the right to start the VMM in name spaces of its own.
fn become_user(uid: u32, kvm_group: Option<u32>) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    set_keep_capabilities(true)?;
    set_thread_groups(&kvm_group.map(Gid::from_raw).into_iter().collect::<Vec<_>>())?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    set_own_capabilities(CapabilitySet::SYS_ADMIN)?;
    Ok(set_no_new_privs(true)?)
}

/// Gives the last capability up, once the VMM runs.
pub(crate) fn seal() -> io::Result<()> {
    set_own_capabilities(CapabilitySet::empty())
}

fn set_own_capabilities(set: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets { effective: set, permitted: set, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}
