#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOWR('X', 119, int)`.
const FIFREEZE: libc::Ioctl = 0xC004_5877;
/// `_IOWR('X', 120, int)`.
const FITHAW: libc::Ioctl = 0xC004_5878;

/// Writes out the file system that `root` is a folder of, and holds all that would write to it until [`thaw`].
pub fn freeze(root: BorrowedFd<'_>) -> io::Result<()> {
    call(root, FIFREEZE)
}

/// Lets those that [`freeze`] holds go on.
pub fn thaw(root: BorrowedFd<'_>) -> io::Result<()> {
    call(root, FITHAW)
}

fn call(root: BorrowedFd<'_>, request: libc::Ioctl) -> io::Result<()> {
    // SAFETY: neither call reads or writes memory of ours: the kernel ignores the argument.
    let result = unsafe { libc::ioctl(root.as_raw_fd(), request, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
