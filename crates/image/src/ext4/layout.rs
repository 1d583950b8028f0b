//! Where things lie in the file system: block groups, superblock copies, descriptor blocks. Pure arithmetic.
//!
//! Descriptors follow `meta_bg`: each run of 64 groups keeps its own descriptor block. So the blocks that are taken in a
//! group do not depend on the final size of the file system, and file data can be placed before that size is known.

/// Bytes of a block.
pub(super) const BLOCK: usize = 4096;
/// Bytes of a piece: what disks share with each other, and what lies over an image, comes in pieces. All are aligned to it.
pub(super) const PIECE: u64 = 64 << 10;
/// Blocks of a piece.
pub(super) const BLOCKS_PER_PIECE: u64 = PIECE / BLOCK as u64;
/// Blocks of a group.
pub(super) const BLOCKS_PER_GROUP: u64 = 32_768;
/// Most blocks of a file system, 16 TiB.
pub(super) const BLOCKS_MAX: u64 = 1 << 32;
/// Bytes of an inode on disk.
pub(super) const INODE_SIZE: usize = 256;
/// Inodes in one block.
pub(super) const INODES_PER_BLOCK: u64 = (BLOCK / INODE_SIZE) as u64;
/// Most inodes of a group: their bitmap is one block.
pub(super) const INODES_PER_GROUP_MAX: u64 = 8 * BLOCK as u64;
/// Bytes of a group descriptor (the `64bit` feature).
pub(super) const DESCRIPTOR_SIZE: usize = 64;
/// Groups whose descriptors share a block.
pub(super) const GROUPS_PER_META: u64 = (BLOCK / DESCRIPTOR_SIZE) as u64;
/// Inode of the root directory.
pub(super) const ROOT_INODE: u32 = 2;
/// Inode of the journal.
pub(super) const JOURNAL_INODE: u32 = 8;
/// First inode that is not reserved.
pub(super) const FIRST_INODE: u32 = 11;

/// Whether `group` starts with a copy of the superblock (`sparse_super`): 0, 1 and powers of 3, 5, 7.
pub(super) fn has_superblock(group: u64) -> bool {
    group <= 1 || [3, 5, 7].iter().any(|base| is_power(group, *base))
}

/// Whether `group` holds a copy of the descriptors of its 64 groups: the first, second and last of them do.
pub(super) fn has_descriptors(group: u64) -> bool {
    matches!(group % GROUPS_PER_META, 0 | 1) || group % GROUPS_PER_META == GROUPS_PER_META - 1
}

/// Blocks at the start of `group` that no file may use.
pub(super) fn reserved_blocks(group: u64) -> u64 {
    u64::from(has_superblock(group)) + u64::from(has_descriptors(group))
}

/// Block of the descriptor copy in `group`, if it has one.
pub(super) fn descriptor_block(group: u64) -> Option<u64> {
    has_descriptors(group).then(|| group_start(group) + u64::from(has_superblock(group)))
}

/// First block of `group`.
pub(super) fn group_start(group: u64) -> u64 {
    group * BLOCKS_PER_GROUP
}

/// Groups of a file system of `blocks` blocks; the last may be short.
pub(super) fn group_count(blocks: u64) -> u64 {
    blocks.div_ceil(BLOCKS_PER_GROUP)
}

/// Blocks that hold `bytes` bytes.
pub(super) fn blocks_for(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK as u64)
}

fn is_power(mut n: u64, base: u64) -> bool {
    while n > 1 && n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn superblock_copies_as_in_the_kernel() {
        let groups: Vec<u64> = (0..130).filter(|g| has_superblock(*g)).collect();
        assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
    }

    #[test]
    fn descriptor_copies() {
        assert_eq!(descriptor_block(0), Some(1));
        assert_eq!(descriptor_block(1), Some(BLOCKS_PER_GROUP + 1));
        assert_eq!(descriptor_block(2), None);
        assert_eq!(descriptor_block(63), Some(63 * BLOCKS_PER_GROUP));
        assert_eq!(descriptor_block(64), Some(64 * BLOCKS_PER_GROUP));
        assert_eq!(reserved_blocks(0), 2);
        assert_eq!(reserved_blocks(3), 1);
        assert_eq!(reserved_blocks(4), 0);
    }
}
