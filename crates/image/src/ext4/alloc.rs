//! Which block comes next. Blocks are handed out in rising order, so that the output is written front to back.

use super::layout::{BLOCKS_PER_GROUP, group_start, reserved_blocks};

/// Consecutive blocks of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// First block.
    pub start: u64,
    /// Number of blocks.
    pub len: u64,
}

/// Hands out free blocks in rising order and never one that a group reserves at its start.
#[derive(Debug)]
pub(super) struct Cursor {
    next: u64,
    gaps: Vec<Run>,
}

impl Cursor {
    /// A cursor over an empty file system.
    pub(super) fn new() -> Self {
        let mut cursor = Self { next: 0, gaps: Vec::new() };
        cursor.skip_reserved();
        cursor
    }

    /// First block that was never handed out.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Up to `want` consecutive blocks, at least one; a run stays within one group.
    pub(super) fn take(&mut self, want: u64) -> Run {
        let len = want.clamp(1, self.left_in_group());
        self.hand_out(len)
    }

    /// Exactly `len` consecutive blocks of one group. `len` must fit a group beside its reserved blocks.
    pub(super) fn take_whole(&mut self, len: u64) -> Run {
        debug_assert!(len <= BLOCKS_PER_GROUP - 2, "{len} blocks do not fit a group");
        let left = self.left_in_group();
        if left < len {
            self.gaps.push(Run { start: self.next, len: left });
            self.next += left;
            self.skip_reserved();
        }
        self.hand_out(len)
    }

    /// Blocks that were passed over and are free.
    pub(super) fn into_gaps(self) -> Vec<Run> {
        self.gaps
    }

    fn hand_out(&mut self, len: u64) -> Run {
        let run = Run { start: self.next, len };
        self.next += len;
        self.skip_reserved();
        run
    }

    fn left_in_group(&self) -> u64 {
        BLOCKS_PER_GROUP - self.next % BLOCKS_PER_GROUP
    }

    fn skip_reserved(&mut self) {
        let group = self.next / BLOCKS_PER_GROUP;
        self.next = self.next.max(group_start(group) + reserved_blocks(group));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_stay_in_their_group_and_off_its_start() {
        let mut cursor = Cursor::new();
        assert_eq!(cursor.take(u64::MAX), Run { start: 2, len: BLOCKS_PER_GROUP - 2 });
        assert_eq!(cursor.take(1), Run { start: BLOCKS_PER_GROUP + 2, len: 1 });
        assert_eq!(
            cursor.take_whole(BLOCKS_PER_GROUP - 2),
            Run { start: 2 * BLOCKS_PER_GROUP, len: BLOCKS_PER_GROUP - 2 }
        );
        assert_eq!(cursor.into_gaps(), [Run { start: BLOCKS_PER_GROUP + 3, len: BLOCKS_PER_GROUP - 3 }]);
    }
}
