//! How large the file system becomes. Pure arithmetic.

use super::journal::journal_bytes;
use super::layout::{
    BLOCK, BLOCKS_MAX, BLOCKS_PER_GROUP, INODES_PER_BLOCK, INODES_PER_GROUP_MAX, blocks_for, group_count,
};

/// Inodes of a group if the content does not need more: one for 16 KiB.
const INODES_PER_GROUP_MIN: u64 = 8192;
/// Free space beside a tenth of the content, bytes.
const SLACK_BYTES: u64 = 64 << 20;
/// Free inodes beside a tenth of those in use.
const SLACK_INODES: u64 = 1024;
/// The size is a multiple of this: whole groups, so that `grow` has no bitmap to mend. Blocks (128 MiB).
const ROUND_BLOCKS: u64 = BLOCKS_PER_GROUP;
/// The same for file systems without room to write, blocks (1 MiB).
const ROUND_BLOCKS_TIGHT: u64 = 256;

/// What the content needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Need {
    /// Blocks from the start of the disk that data has gone over.
    pub blocks: u64,
    /// Inodes, reserved ones included.
    pub inodes: u64,
    /// Whether to leave room and make a journal, or to be as small as can be and read-only.
    pub writable: bool,
}

/// The shape of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// Blocks.
    pub blocks: u64,
    /// Groups.
    pub groups: u64,
    /// Inodes of each group.
    pub inodes_per_group: u64,
    /// Blocks of each group's inode table.
    pub table_blocks: u64,
    /// Blocks of the journal; 0 is none.
    pub journal_blocks: u64,
}

/// The content does not fit any ext4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("larger than the largest ext4 file system")]
pub struct TooLarge;

/// The smallest shape that holds `need`, its own tables and some room.
pub(super) fn plan(need: Need) -> Result<Plan, TooLarge> {
    let round = if need.writable { ROUND_BLOCKS } else { ROUND_BLOCKS_TIGHT };
    let slack = if need.writable { blocks_for(SLACK_BYTES) + need.blocks / 10 } else { 0 };
    let inodes = need.inodes + if need.writable { SLACK_INODES + need.inodes / 10 } else { 0 };
    let mut blocks = need.blocks;
    loop {
        let groups = group_count(blocks).max(inodes.div_ceil(INODES_PER_GROUP_MAX));
        let shape = shape(blocks, groups, inodes, need.writable);
        let wanted = (need.blocks + metadata_blocks(&shape) + slack).next_multiple_of(round);
        // Enough groups for the inodes, and a last group that is more than a few blocks.
        let wanted = wanted.max((groups - 1) * BLOCKS_PER_GROUP + round);
        if wanted >= BLOCKS_MAX {
            return Err(TooLarge);
        }
        // Fewer blocks than tried also end it: the shape was made for more.
        if wanted <= blocks {
            return Ok(shape);
        }
        blocks = wanted;
    }
}

fn shape(blocks: u64, groups: u64, inodes: u64, writable: bool) -> Plan {
    let per_group = inodes.div_ceil(groups).max(INODES_PER_GROUP_MIN);
    let inodes_per_group = per_group.next_multiple_of(8 * INODES_PER_BLOCK).min(INODES_PER_GROUP_MAX);
    Plan {
        blocks,
        groups,
        inodes_per_group,
        table_blocks: inodes_per_group / INODES_PER_BLOCK,
        journal_blocks: if writable { journal_bytes(blocks) / BLOCK as u64 } else { 0 },
    }
}

/// Blocks for journal, bitmaps and tables, with what is lost where a table does not fit the rest of a group.
fn metadata_blocks(plan: &Plan) -> u64 {
    let own = plan.journal_blocks + plan.groups * (2 + plan.table_blocks);
    let groups_crossed = 1 + own / (BLOCKS_PER_GROUP - plan.table_blocks - 2);
    own + groups_crossed * (plan.table_blocks + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(blocks: u64, inodes: u64, writable: bool) -> Plan {
        plan(Need { blocks, inodes, writable }).unwrap()
    }

    #[test]
    fn a_small_image_is_small() {
        let plan = of(2000, 100, true);
        assert_eq!(plan.groups, 1);
        assert_eq!(plan.blocks % ROUND_BLOCKS, 0);
        assert_eq!(plan.blocks, BLOCKS_PER_GROUP, "{plan:?}");
        assert!(of(2000, 100, false).blocks < 4000);
    }

    #[test]
    fn many_small_files_get_their_inodes() {
        for inodes in [100_000, 1_000_000, 10_000_000] {
            let plan = of(1000, inodes, true);
            assert!(plan.groups * plan.inodes_per_group > inodes + inodes / 10);
            assert!(plan.inodes_per_group <= INODES_PER_GROUP_MAX);
            assert!(group_count(plan.blocks) == plan.groups);
        }
    }

    #[test]
    fn everything_fits_at_any_size() {
        for shift in 8..30 {
            let plan = of(3 << shift, 5000, true);
            assert!(plan.blocks >= (3 << shift) + metadata_blocks(&plan), "{plan:?}");
            assert_eq!(group_count(plan.blocks), plan.groups);
        }
        assert_eq!(plan(Need { blocks: BLOCKS_MAX - 1, inodes: 11, writable: true }), Err(TooLarge));
    }
}
