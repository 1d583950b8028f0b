//! Which blocks are in use.

use super::alloc::Run;
use super::layout::{BLOCK, BLOCKS_PER_GROUP, group_count, group_start, reserved_blocks};

/// One bit for each block of the file system, and for those that its last group lacks.
#[derive(Debug)]
pub(super) struct UsedBlocks {
    bits: Vec<u8>,
}

impl UsedBlocks {
    /// All blocks under `next` are in use, and those that groups reserve, and those past the end.
    pub(super) fn new(blocks: u64, next: u64) -> Self {
        let groups = group_count(blocks);
        let mut used = Self { bits: vec![0; groups as usize * BLOCK] };
        used.set(0, next, true);
        used.set(blocks, groups * BLOCKS_PER_GROUP, true);
        for g in 0..groups {
            used.set(group_start(g), group_start(g) + reserved_blocks(g), true);
        }
        used
    }

    /// Frees a run.
    pub(super) fn free(&mut self, run: Run) {
        self.set(run.start, run.start + run.len, false);
    }

    /// Bitmap block of a group, and how many of its blocks are free.
    pub(super) fn group_bitmap(&self, group: u64) -> (&[u8], u32) {
        let at = group as usize * BLOCK;
        let bitmap = &self.bits[at..at + BLOCK];
        (bitmap, bitmap.iter().map(|byte| byte.count_zeros()).sum())
    }

    fn set(&mut self, from: u64, to: u64, used: bool) {
        let mut bit = from as usize;
        let to = to as usize;
        while bit < to {
            if bit.is_multiple_of(8) && to - bit >= 8 {
                let whole = (to - bit) / 8;
                self.bits[bit / 8..bit / 8 + whole].fill(if used { 0xFF } else { 0 });
                bit += 8 * whole;
                continue;
            }
            let mask = 1 << (bit % 8);
            if used {
                self.bits[bit / 8] |= mask
            } else {
                self.bits[bit / 8] &= !mask
            }
            bit += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts() {
        let mut used = UsedBlocks::new(40_000, 103);
        assert_eq!(used.group_bitmap(0).1, 32_768 - 103);
        assert_eq!(used.group_bitmap(1).1, 40_000 - 32_768 - 2);
        used.free(Run { start: 10, len: 21 });
        assert_eq!(used.group_bitmap(0).1, 32_768 - 103 + 21);
    }
}
