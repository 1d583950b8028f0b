//! Which block comes next. Blocks are handed out in rising order, so that the output is written front to back.

use super::layout::{BLOCKS_PER_GROUP, BLOCKS_PER_PIECE, group_start, reserved_blocks};

/// Consecutive blocks of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// First block.
    pub start: u64,
    /// Number of blocks.
    pub len: u64,
}

impl Run {
    /// Its first blocks, at most `len`, and what is left.
    pub(super) fn split(self, len: u64) -> (Run, Option<Run>) {
        let len = self.len.min(len);
        let rest = Run { start: self.start + len, len: self.len - len };
        (Run { len, ..self }, (rest.len > 0).then_some(rest))
    }
}

/// Hands out free blocks in rising order and never one that a group reserves at its start.
#[derive(Debug)]
pub(super) struct Cursor {
    next: u64,
    gaps: Vec<Run>,
    /// What is left of the piece that small files share now.
    shared: Option<Run>,
}

impl Cursor {
    /// A cursor over an empty file system.
    pub(super) fn new() -> Self {
        let mut cursor = Self { next: 0, gaps: Vec::new(), shared: None };
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

    /// Up to `want` consecutive blocks from the start of a piece on; whole pieces, so that nothing else begins in the last one.
    pub(super) fn take_aligned(&mut self, want: u64) -> Run {
        while !self.next.is_multiple_of(BLOCKS_PER_PIECE) {
            // Groups are whole pieces: this ends in the group, or at the start of the next.
            let gap = Run { start: self.next, len: BLOCKS_PER_PIECE - self.next % BLOCKS_PER_PIECE };
            self.gaps.push(gap);
            self.next = after_reserved(gap.start + gap.len);
        }
        self.take(want.max(1).next_multiple_of(BLOCKS_PER_PIECE))
    }

    /// `len` consecutive blocks, at most a piece, of the piece that small files share; of a new one if they do not fit.
    pub(super) fn take_shared(&mut self, len: u64) -> Run {
        let len = len.clamp(1, BLOCKS_PER_PIECE);
        let piece = match self.shared.take() {
            Some(piece) if piece.len >= len => piece,
            left => {
                left.into_iter().for_each(|left| self.give_back(left));
                self.take_aligned(BLOCKS_PER_PIECE)
            }
        };
        let (run, left) = piece.split(len);
        self.shared = left;
        run
    }

    /// Small files that come now share no piece with earlier ones, if that piece is filled to at least `blocks`.
    pub(super) fn end_shared(&mut self, blocks: u64) {
        if let Some(left) = self.shared.take_if(|left| BLOCKS_PER_PIECE - left.len >= blocks) {
            self.give_back(left);
        }
    }

    /// Blocks that were handed out and not needed.
    pub(super) fn give_back(&mut self, run: Run) {
        if run.len == 0 {
            return;
        }
        if self.next == after_reserved(run.start + run.len) {
            self.next = run.start;
        } else {
            self.gaps.push(run);
        }
    }

    /// Exactly `len` consecutive blocks of one group. `len` must fit a group beside its reserved blocks.
    pub(super) fn take_whole(&mut self, len: u64) -> Run {
        debug_assert!(len <= BLOCKS_PER_GROUP - 2, "{len} blocks do not fit a group");
        let left = self.left_in_group();
        if left < len {
            self.give_back(Run { start: self.next, len: left });
            self.next += left;
            self.skip_reserved();
        }
        self.hand_out(len)
    }

    /// Blocks that were passed over and are free.
    pub(super) fn into_gaps(mut self) -> Vec<Run> {
        self.end_shared(0);
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
        self.next = after_reserved(self.next);
    }
}

/// The first block from `block` on that its group does not reserve.
fn after_reserved(block: u64) -> u64 {
    let group = block / BLOCKS_PER_GROUP;
    block.max(group_start(group) + reserved_blocks(group))
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

    #[test]
    fn small_files_share_a_piece_until_it_is_full() {
        let mut cursor = Cursor::new();
        let starts = [10, 4, 4].map(|len| cursor.take_shared(len).start);
        assert_eq!(starts, [16, 26, 32]);
        assert_eq!(cursor.take_aligned(20), Run { start: 48, len: 32 });
        assert_eq!(cursor.take_shared(12).start, 36);
        cursor.take_shared(3);
        cursor.end_shared(BLOCKS_PER_PIECE / 2);
        assert_eq!(cursor.take_shared(8).start, 83, "the piece was not half full");
        cursor.end_shared(BLOCKS_PER_PIECE / 2);
        assert_eq!(cursor.take_shared(1).start, 96);
        let gaps: u64 = cursor.into_gaps().iter().map(|run| run.len).sum();
        assert_eq!(gaps, 14 + 2 + 5);
    }

    #[test]
    fn aligned_runs_keep_off_the_start_of_a_group() {
        let mut cursor = Cursor::new();
        cursor.take_aligned(BLOCKS_PER_GROUP);
        assert_eq!(cursor.next(), BLOCKS_PER_GROUP + 2);
        assert_eq!(cursor.take_aligned(1), Run { start: BLOCKS_PER_GROUP + 16, len: 16 });
    }
}
