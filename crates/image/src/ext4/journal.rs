//! An empty jbd2 journal: its superblock, and zeroes that stay holes in the output.

use super::layout::BLOCK;

const MIB: u64 = 1 << 20;

/// Bytes of the journal of a file system of `blocks` blocks. It cannot grow later, the file system does.
pub(super) fn journal_bytes(blocks: u64) -> u64 {
    match blocks * BLOCK as u64 {
        size if size < 1 << 30 => 16 * MIB,
        size if size < 4 << 30 => 32 * MIB,
        _ => 64 * MIB,
    }
}

/// The first block of an empty journal of `blocks` blocks. Unlike the rest of ext4 it is big-endian.
pub(super) fn superblock(blocks: u32, uuid: &[u8; 16]) -> Vec<u8> {
    let mut out = vec![0; BLOCK];
    let mut put = |at: usize, value: u32| out[at..at + 4].copy_from_slice(&value.to_be_bytes());
    put(0x00, 0xC03B_3998);
    put(0x04, 4); // superblock, version 2
    put(0x0C, BLOCK as u32);
    put(0x10, blocks);
    put(0x14, 1); // first block of log
    put(0x18, 1); // first commit expected; start at 0x1C is 0: nothing to replay
    put(0x40, 1); // users
    out[0x30..0x40].copy_from_slice(uuid);
    out
}
