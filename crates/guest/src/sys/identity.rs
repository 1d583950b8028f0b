#![allow(unsafe_code)]

use std::io;

/// Makes the calling thread, and no other, act on files as this user. A thread that did so must be root before it takes
/// another identity: call it with uid 0 first.
pub fn assume_file_identity(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    // SAFETY: the raw calls change the calling thread alone (the C library's wrappers would change all threads);
    // `groups` is valid for its length.
    unsafe {
        // Back to root first: only root may set groups.
        libc::syscall(libc::SYS_setfsuid, 0);
        if libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        // These two calls tell no error; asking with an impossible id gives the one in force.
        if libc::syscall(libc::SYS_setfsuid, -1) as u32 != uid {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    Ok(())
}
