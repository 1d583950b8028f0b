//! Little-endian fields at fixed offsets.

/// Writes fields of an on-disk structure.
pub(crate) trait PutLe {
    /// 16 bits at `at`.
    fn put_u16(&mut self, at: usize, value: u16);
    /// 32 bits at `at`.
    fn put_u32(&mut self, at: usize, value: u32);
    /// 64 bits at `at`.
    fn put_u64(&mut self, at: usize, value: u64);
}

impl PutLe for [u8] {
    fn put_u16(&mut self, at: usize, value: u16) {
        self[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, at: usize, value: u32) {
        self[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, at: usize, value: u64) {
        self[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}
