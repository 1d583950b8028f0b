#![allow(unsafe_code)]

/// Arenas of the C library's allocator. By default each thread gets its own, up to eight times the cores; what outlives a sandbox by a
/// minute is then strewn over all of them and holds their free memory back: 28 KiB a sandbox instead of 5.
#[cfg(target_env = "gnu")]
const ARENAS_MAX: libc::c_int = 2;

/// Keeps the process's memory together. To be called before there are threads.
pub(super) fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call sets a number of the allocator; a refusal is told by 0 and changes nothing.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, ARENAS_MAX) };
}
