//! What the child does between fork and exec, and the host's time stamp counter.

use tokio::process::Command;

/// Lets the child be killed when the thread that spawned it ends: a VMM never outlives its shim.
///
/// The spawning thread must be the one that lives as long as the owner, so callers spawn from a current-thread runtime or from
/// the main thread.
pub(crate) fn die_with_parent(command: &mut Command) {
    let hook = || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        Ok(())
    };
    // SAFETY: the hook makes one prctl call through raw syscalls: it allocates nothing and takes no lock, so it is sound in a forked child.
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
