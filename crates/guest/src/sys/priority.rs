#![allow(unsafe_code)]

use std::io;

/// Gives the calling process precedence over all others of the guest, but not what it starts: a guest that is busy on all of its
/// processors must still be answered for.
pub fn take_precedence() -> io::Result<()> {
    let plain = libc::sched_param { sched_priority: 0 };
    // SAFETY: `plain` is valid for the call; both calls only change how this process is scheduled.
    let result = unsafe {
        let policy = libc::SCHED_OTHER | libc::SCHED_RESET_ON_FORK;
        libc::sched_setscheduler(0, policy, &raw const plain) | libc::setpriority(libc::PRIO_PROCESS, 0, -20)
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
