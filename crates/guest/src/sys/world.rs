//! Where a process lives: with the agent, or with a first process of its own, such as systemd.
//!
//! The agent itself never moves. A process gets its PID namespace from what its parent has set for its children, so that is set around the call
//! that starts it; a thread with such a setting can start no further threads, and none is started in between.
#![allow(unsafe_code)]

use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

/// Where a new process lives.
#[derive(Clone, Copy, Default)]
pub enum World<'a> {
    /// With the agent.
    #[default]
    Agent,
    /// In a new one, of which it is the first process: a PID namespace, and mounts that are a copy of the agent's but for `/proc`. What is
    /// mounted on either side later shows on the other where the agent's mounts are shared. With a cgroup it is born there, and sees that as the root
    /// of all cgroups.
    New(Option<BorrowedFd<'a>>),
    /// In that of a first process.
    Of(&'a FirstProcess),
}

/// A process that was started in [`World::New`].
#[derive(Debug)]
pub struct FirstProcess {
    itself: OwnedFd,
    agent: OwnedFd,
}

impl FirstProcess {
    /// A handle on it; its pid is as the agent sees it, and not reaped.
    pub fn open(pid: Pid) -> io::Result<Self> {
        Ok(Self { itself: pidfd_open(pid, PidfdFlags::empty())?, agent: pidfd_open(getpid(), PidfdFlags::empty())? })
    }
}

/// What the child must do about it.
#[derive(Clone, Copy)]
pub(super) enum Entry {
    None,
    OwnViews { cgroups: bool },
    Join(RawFd),
}

impl World<'_> {
    /// Flags for the call that starts the process.
    pub(super) fn clone_flags(self) -> u64 {
        match self {
            World::New(_) => (libc::CLONE_NEWPID | libc::CLONE_NEWNS) as u64,
            World::Agent | World::Of(_) => 0,
        }
    }

    pub(super) fn entry(self) -> Entry {
        match self {
            World::Agent => Entry::None,
            World::New(cgroup) => Entry::OwnViews { cgroups: cgroup.is_some() },
            World::Of(first) => Entry::Join(first.itself.as_raw_fd()),
        }
    }

    /// Makes the call that starts the process where it gets the right PID namespace. Both answer a negative error number on failure.
    pub(super) fn with_pid_namespace(self, start: impl FnOnce() -> i64) -> i64 {
        let World::Of(first) = self else { return start() };
        // SAFETY: the call takes an open descriptor, and affects later children of this thread only.
        let set = |fd: &OwnedFd| unsafe { libc::setns(fd.as_raw_fd(), libc::CLONE_NEWPID) };
        if set(&first.itself) != 0 {
            return -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::ESRCH));
        }
        let result = start();
        // Going back to one's own namespace is always allowed.
        let back = set(&first.agent);
        debug_assert_eq!(back, 0);
        result
    }
}

impl Entry {
    /// Does it, in the child.
    ///
    /// # Safety
    /// The caller is a child that shares no file system context (`CLONE_FS`) with another process, and its mounts with none. Neither allocates nor locks.
    pub(super) unsafe fn enter(self) -> bool {
        // SAFETY: as for this function; the descriptor is open in the child.
        unsafe {
            match self {
                Entry::None => true,
                Entry::Join(first) => libc::setns(first, libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP) == 0,
                Entry::OwnViews { cgroups } => own_proc() && (!cgroups || own_cgroups()),
            }
        }
    }
}

const QUIET: libc::c_ulong = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;

/// What is mounted below this mount from now on shows nowhere else, and the agent's stays as it is.
///
/// # Safety
/// As for [`Entry::enter`].
unsafe fn set_private(mount: &CStr) -> bool {
    // SAFETY: a string, and null where the kernel takes that.
    unsafe { libc::mount(ptr::null(), mount.as_ptr(), ptr::null(), libc::MS_PRIVATE, ptr::null()) == 0 }
}

/// # Safety
/// As for [`Entry::enter`].
unsafe fn own_proc() -> bool {
    const PROC: &CStr = c"/proc";
    // SAFETY: strings, and null where the kernel takes that.
    unsafe {
        set_private(PROC) && libc::mount(c"proc".as_ptr(), PROC.as_ptr(), c"proc".as_ptr(), QUIET, ptr::null()) == 0
    }
}

/// # Safety
/// As for [`Entry::enter`].
unsafe fn own_cgroups() -> bool {
    const CGROUPS: &CStr = c"/sys/fs/cgroup";
    let kind = c"cgroup2".as_ptr();
    // SAFETY: strings, and null where the kernel takes that. The kernel does not stack one hierarchy on itself: the old mount goes first.
    unsafe {
        libc::unshare(libc::CLONE_NEWCGROUP) == 0
            && set_private(c"/sys")
            && libc::umount2(CGROUPS.as_ptr(), libc::MNT_DETACH) == 0
            && libc::mount(kind, CGROUPS.as_ptr(), kind, QUIET, ptr::null()) == 0
    }
}
