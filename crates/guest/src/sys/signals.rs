#![allow(unsafe_code)]

use rustix::process::Pid;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Blocks SIGCHLD for the calling thread and the threads that it starts later, and answers a non-blocking descriptor that is
/// readable when a child has ended.
pub fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: `set` is initialised by sigemptyset before use; the other calls get valid pointers.
    let fd = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        let blocked = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        if blocked != 0 {
            return Err(io::Error::from_raw_os_error(blocked));
        }
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: signalfd just made this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends a signal by its number, which may be one of the real-time signals, to one process.
pub fn send(pid: Pid, signal: i32) -> io::Result<()> {
    // SAFETY: the call takes two numbers.
    let result = unsafe { libc::kill(pid.as_raw_nonzero().get(), signal) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
