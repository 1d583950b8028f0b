//! What the child does between fork and exec, and the host's time stamp counter.

use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::io;
use tokio::process::Command;

/// Most ranges of one read.
const RANGES_MAX: usize = 1024;

/// Readies the child: no network and no System V objects but its own, where the kernel lets it; and it is killed when the thread that
/// spawned it ends, so that a VMM never outlives its shim.
///
/// The spawning thread must be the one that lives as long as the owner, so callers spawn from a current-thread runtime or from
/// the main thread.
pub(crate) fn ready(command: &mut Command) {
    let hook = || {
        let own = UnshareFlags::NEWNET | UnshareFlags::NEWIPC;
        // SAFETY: in a forked child with one thread, which shares nothing with its parent.
        let unshared = unsafe { unshare_unsafe(own) };
        if unshared.is_err() {
            // Without the right to do that, in a user name space, whose maker has it. Where that is forbidden too, QEMU has the
            // owner's network, of which it makes no use.
            // SAFETY: as above.
            let _ = unsafe { unshare_unsafe(UnshareFlags::NEWUSER | own) };
        }
        // After the change of rights, which clears it.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        Ok(())
    };
    // SAFETY: the hook makes a few raw system calls: it allocates nothing and takes no lock, so it is sound in a forked child.
    unsafe { command.pre_exec(hook) };
}

/// Reads memory of the process `pid`, which must be ours to trace: `ranges`, each an address and a length in bytes, one after the other into `into`,
/// which is as long as they are together.
pub(crate) fn read_memory(pid: u32, ranges: &[(u64, u64)], into: &mut [u8]) -> io::Result<()> {
    let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "the process has no memory there any more");
    let mut rest = into;
    for ranges in ranges.chunks(RANGES_MAX) {
        let remote: Vec<libc::iovec> = ranges
            .iter()
            .map(|&(at, len)| libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len as usize })
            .collect();
        let len = remote.iter().map(|range| range.iov_len).sum();
        let (part, later) = rest.split_at_mut_checked(len).ok_or_else(gone)?;
        let local = libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
        // SAFETY: `local` is `part`, which is borrowed for the call; the other process's memory is only read, whatever it is.
        let read = unsafe {
            libc::process_vm_readv(pid as libc::pid_t, &raw const local, 1, remote.as_ptr(), remote.len() as _, 0)
        };
        match usize::try_from(read) {
            Ok(read) if read == len => rest = later,
            Ok(_) => return Err(gone()),
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    Ok(())
}

/// Time over which the counter is measured: an error of 100 ns in reading the clock is 2 parts in a million.
#[cfg(target_arch = "x86_64")]
const TSC_MEASURE: std::time::Duration = std::time::Duration::from_millis(50);

/// Rate of the host's time stamp counter, kHz, measured in 50 ms. `None` where there is none.
#[cfg(target_arch = "x86_64")]
pub(crate) fn tsc_khz() -> Option<u64> {
    // SAFETY: reading the counter has no effect; every x86-64 processor has it.
    let read = || unsafe { core::arch::x86_64::_rdtsc() };
    let (clock, first) = (std::time::Instant::now(), read());
    std::thread::sleep(TSC_MEASURE);
    let (elapsed, last) = (clock.elapsed(), read());
    let ticks = u128::from(last.checked_sub(first)?);
    u64::try_from(ticks * 1_000_000 / elapsed.as_nanos().max(1)).ok().filter(|khz| *khz > 0)
}

/// Rate of the host's time stamp counter; this architecture has none.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn tsc_khz() -> Option<u64> {
    None
}
