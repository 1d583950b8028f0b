#![allow(unsafe_code)]

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread mounts and System V objects of its own.
pub(crate) fn leave_name_spaces() -> std::io::Result<()> {
    // SAFETY: the flags unshare neither the table of open files nor memory, on which other threads would rely.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWIPC) }?)
}
