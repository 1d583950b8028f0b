//! Where the bytes of a file system go.

use rustix::fs::{FallocateFlags, fallocate};
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Takes the bytes of one disk. What was never written reads as zeroes.
pub trait Target: Debug {
    /// Writes `bytes` at byte `at`, over what was there.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// The bytes there do not matter any more. A hint: they may stay.
    fn forget(&mut self, at: u64, len: u64);

    /// Nothing more comes; the disk has `size` bytes.
    fn end(&mut self, size: u64) -> io::Result<()>;
}

/// A plain file, which must be empty. It is not synced.
impl Target for File {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn forget(&mut self, at: u64, len: u64) {
        // Where the host's file system makes no holes, the blocks just stay.
        let _ = fallocate(self, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len);
    }

    fn end(&mut self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }
}
