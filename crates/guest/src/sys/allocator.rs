#![allow(unsafe_code)]

/// Heap memory at the top that the C library may keep instead of giving it back, bytes.
const TRIM_THRESHOLD: libc::c_int = 1 << 20;
/// Blocks from this size on are mapped one by one and so always given back, bytes.
const MMAP_THRESHOLD: libc::c_int = 256 << 10;

/// Keeps the heap small: one arena for all threads, free memory returned early. To be called once, first of all.
pub fn tame_allocator() {
    // SAFETY: mallopt only stores these numbers; no other thread runs yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD);
    }
}

/// Gives free memory back to the kernel, also what lies between used blocks.
pub fn give_memory_back() {
    // SAFETY: the call takes the heap's own lock and touches free memory only.
    unsafe { libc::malloc_trim(0) };
}
