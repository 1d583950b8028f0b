//! What the child does between fork and exec.

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
