//! Group descriptors, 64 bytes each.

use super::bytes::PutLe;
use super::checksum::crc16;
use super::layout::DESCRIPTOR_SIZE;

/// No inode of the group is in use; its bitmap and table need not be read.
const INODE_UNINIT: u16 = 0x1;
/// The block bitmap is not written: the kernel makes it when it first looks.
const BLOCK_UNINIT: u16 = 0x2;
/// The unused part of the inode table is zero already.
const INODE_ZEROED: u16 = 0x4;

/// What is known of one group.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Group {
    /// Block of the block bitmap.
    pub block_bitmap: u64,
    /// Block of the inode bitmap.
    pub inode_bitmap: u64,
    /// First block of the inode table.
    pub inode_table: u64,
    /// Free blocks.
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories among its inodes.
    pub dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub unused_inodes: u32,
    /// No block of the group is in use but its own metadata, and its block bitmap is not written.
    pub blocks_untouched: bool,
}

impl Group {
    /// The descriptor of group number `number`, with its checksum.
    pub(super) fn encode(&self, number: u32, inodes_per_group: u32, uuid: &[u8; 16]) -> [u8; DESCRIPTOR_SIZE] {
        let flags = if self.unused_inodes == inodes_per_group { INODE_UNINIT | INODE_ZEROED } else { INODE_ZEROED };
        let flags = flags | if self.blocks_untouched { BLOCK_UNINIT } else { 0 };
        let mut out = [0; DESCRIPTOR_SIZE];
        for (lo, hi, value) in [(0, 32, self.block_bitmap), (4, 36, self.inode_bitmap), (8, 40, self.inode_table)] {
            out.put_u32(lo, value as u32);
            out.put_u32(hi, (value >> 32) as u32);
        }
        for (lo, hi, value) in
            [(12, 44, self.free_blocks), (14, 46, self.free_inodes), (16, 48, self.dirs), (28, 50, self.unused_inodes)]
        {
            out.put_u16(lo, value as u16);
            out.put_u16(hi, (value >> 16) as u16);
        }
        out.put_u16(18, flags);
        let crc = crc16(crc16(0xFFFF, uuid), &number.to_le_bytes());
        let crc = crc16(crc16(crc, &out[..30]), &out[32..]);
        out.put_u16(30, crc);
        out
    }
}
