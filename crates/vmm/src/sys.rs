//! What the child does between fork and exec, and the host's time stamp counter.

use rustix::thread::{UnshareFlags, unshare_unsafe};
use tokio::process::Command;

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
