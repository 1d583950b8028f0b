//! The superblock.

use super::bytes::PutLe;
use super::layout::{BLOCKS_PER_GROUP, DESCRIPTOR_SIZE, FIRST_INODE, INODE_SIZE, JOURNAL_INODE};

/// Bytes of the superblock.
pub(super) const SUPERBLOCK_SIZE: usize = 1024;
/// Longest label, bytes.
pub(super) const LABEL_LEN_MAX: usize = 16;

const HAS_JOURNAL: u32 = 0x4;
const COMPAT: u32 = 0x8 /* ext_attr */ | 0x20 /* dir_index */;
const INCOMPAT: u32 = 0x2 /* filetype */ | 0x10 /* meta_bg */ | 0x40 /* extent */ | 0x80 /* 64bit */ | 0x200 /* flex_bg */;
const RO_COMPAT: u32 = 0x1 /* sparse_super */ | 0x2 /* large_file */ | 0x8 /* huge_file */ | 0x10 /* gdt_csum */
    | 0x20 /* dir_nlink */ | 0x40 /* extra_isize */;
/// Directory hashes treat bytes as unsigned, on every architecture.
const FLAG_UNSIGNED_HASH: u32 = 0x2;
/// `user_xattr` and `acl` without being asked for.
const DEFAULT_MOUNT_OPTIONS: u32 = 0xC;
const HASH_HALF_MD4: u8 = 1;
/// Groups whose metadata the kernel keeps together when it grows the file system: 2^4.
const LOG_GROUPS_PER_FLEX: u8 = 4;

/// What a superblock says of a whole file system.
#[derive(Debug, Clone)]
pub(super) struct Superblock {
    /// Inodes in all groups.
    pub inodes: u32,
    /// Inodes of one group.
    pub inodes_per_group: u32,
    /// Blocks.
    pub blocks: u64,
    /// Blocks not in use.
    pub free_blocks: u64,
    /// Inodes not in use.
    pub free_inodes: u32,
    /// Identity.
    pub uuid: [u8; 16],
    /// Seed of directory hashes, as 4 little-endian words.
    pub hash_seed: [u32; 4],
    /// Name, at most [`LABEL_LEN_MAX`] bytes.
    pub label: Vec<u8>,
    /// Time of making, seconds since 1970.
    pub made_s: u32,
    /// `i_block` and size of the journal, if there is one.
    pub journal: Option<([u8; 60], u64)>,
    /// KiB written while it was made.
    pub written_kib: u64,
}

impl Superblock {
    /// The copy that lies in group `group`.
    pub(super) fn encode(&self, group: u64) -> [u8; SUPERBLOCK_SIZE] {
        let mut out = [0; SUPERBLOCK_SIZE];
        self.put_counts(&mut out);
        self.put_identity(&mut out, group);
        if let Some((i_block, size)) = &self.journal {
            out.put_u32(0xE0, JOURNAL_INODE);
            out[0xFD] = 1;
            out[0x10C..0x148].copy_from_slice(i_block);
            out.put_u32(0x148, (size >> 32) as u32);
            out.put_u32(0x14C, *size as u32);
        }
        out
    }

    fn put_counts(&self, out: &mut [u8]) {
        out.put_u32(0x00, self.inodes);
        out.put_u32(0x04, self.blocks as u32);
        out.put_u32(0x150, (self.blocks >> 32) as u32);
        out.put_u32(0x0C, self.free_blocks as u32);
        out.put_u32(0x158, (self.free_blocks >> 32) as u32);
        out.put_u32(0x10, self.free_inodes);
        out.put_u32(0x18, 2); // block size 1024 << 2
        out.put_u32(0x1C, 2); // cluster size, the same
        out.put_u32(0x20, BLOCKS_PER_GROUP as u32);
        out.put_u32(0x24, BLOCKS_PER_GROUP as u32);
        out.put_u32(0x28, self.inodes_per_group);
        out.put_u64(0x178, self.written_kib);
    }

    fn put_identity(&self, out: &mut [u8], group: u64) {
        out.put_u32(0x30, self.made_s);
        out.put_u16(0x36, 0xFFFF); // never checked because of a number of mounts
        out.put_u16(0x38, 0xEF53);
        out.put_u16(0x3A, 1); // clean
        out.put_u16(0x3C, 1); // on errors: continue
        out.put_u32(0x40, self.made_s);
        out.put_u32(0x4C, 1); // revision with variable inode sizes; creator OS at 0x48 is 0, Linux
        out.put_u32(0x54, FIRST_INODE);
        out.put_u16(0x58, INODE_SIZE as u16);
        out.put_u16(0x5A, group as u16);
        out.put_u32(0x5C, COMPAT | if self.journal.is_some() { HAS_JOURNAL } else { 0 });
        out.put_u32(0x60, INCOMPAT);
        out.put_u32(0x64, RO_COMPAT);
        out[0x68..0x78].copy_from_slice(&self.uuid);
        let label = &self.label[..self.label.len().min(LABEL_LEN_MAX)];
        out[0x78..0x78 + label.len()].copy_from_slice(label);
        for (i, word) in self.hash_seed.iter().enumerate() {
            out.put_u32(0xEC + 4 * i, *word);
        }
        out[0xFC] = HASH_HALF_MD4;
        out.put_u16(0xFE, DESCRIPTOR_SIZE as u16);
        out.put_u32(0x100, DEFAULT_MOUNT_OPTIONS);
        out.put_u32(0x108, self.made_s);
        out.put_u16(0x15C, 32); // least and wanted extra size of inodes
        out.put_u16(0x15E, 32);
        out.put_u32(0x160, FLAG_UNSIGNED_HASH);
        out[0x174] = LOG_GROUPS_PER_FLEX;
    }
}
