//! Extents: which blocks of the disk hold which blocks of a file, and the tree that says so on disk.

use super::alloc::Run;
use super::layout::BLOCK;

/// Most blocks of one written extent.
pub(super) const EXTENT_BLOCKS_MAX: u64 = 32_768;
/// Most blocks of a file: logical block numbers have 32 bits and the last is not used.
pub(super) const FILE_BLOCKS_MAX: u64 = u32::MAX as u64;

const MAGIC: u16 = 0xF30A;
const ENTRY_SIZE: usize = 12;
const ROOT_ENTRIES: usize = 4;
const BLOCK_ENTRIES: usize = (BLOCK - ENTRY_SIZE) / ENTRY_SIZE;

/// `len` blocks of a file from block `logical` on, which lie at `start` on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First block within the file.
    pub logical: u32,
    /// Number of blocks, at most [`EXTENT_BLOCKS_MAX`].
    pub len: u32,
    /// First block on disk.
    pub start: u64,
}

/// The extents of one file in rising order. Most files have one; those cost no allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Extents {
    /// No data.
    #[default]
    None,
    /// One extent.
    One(Extent),
    /// Several.
    Many(Vec<Extent>),
}

impl Extents {
    /// Appends `run` at block `logical` of the file, joined with the last extent where they touch.
    pub fn push(&mut self, logical: u32, run: Run) {
        if let Some(last) = self.last_mut() {
            let joined = u64::from(last.len) + run.len;
            let touches = u64::from(last.logical) + u64::from(last.len) == u64::from(logical)
                && last.start + u64::from(last.len) == run.start;
            if touches && joined <= EXTENT_BLOCKS_MAX {
                last.len = joined as u32;
                return;
            }
        }
        let extent = Extent { logical, len: run.len as u32, start: run.start };
        match self {
            Self::None => *self = Self::One(extent),
            Self::One(first) => *self = Self::Many(vec![*first, extent]),
            Self::Many(all) => all.push(extent),
        }
    }

    /// All extents.
    pub fn as_slice(&self) -> &[Extent] {
        match self {
            Self::None => &[],
            Self::One(extent) => std::slice::from_ref(extent),
            Self::Many(all) => all,
        }
    }

    /// Blocks of data.
    pub fn blocks(&self) -> u64 {
        self.as_slice().iter().map(|e| u64::from(e.len)).sum()
    }

    fn last_mut(&mut self) -> Option<&mut Extent> {
        match self {
            Self::None => None,
            Self::One(extent) => Some(extent),
            Self::Many(all) => all.last_mut(),
        }
    }
}

/// The extent tree of one file: what goes into its inode, and the blocks below.
#[derive(Debug)]
pub(super) struct ExtentTree {
    /// `i_block` of the inode.
    pub root: [u8; 60],
    /// Blocks of the tree, with their place on disk.
    pub blocks: Vec<(u64, Vec<u8>)>,
}

/// Builds the tree for `extents`. `place` gives a block of the disk for each block of the tree.
pub(super) fn build_tree(extents: &[Extent], mut place: impl FnMut() -> u64) -> ExtentTree {
    let mut level: Vec<(u32, [u8; ENTRY_SIZE])> = extents.iter().map(|e| (e.logical, leaf_entry(e))).collect();
    let mut blocks = Vec::new();
    let mut depth = 0u16;
    while level.len() > ROOT_ENTRIES {
        level = level
            .chunks(BLOCK_ENTRIES)
            .map(|chunk| {
                let at = place();
                let mut block = vec![0; BLOCK];
                fill_node(&mut block, chunk, BLOCK_ENTRIES, depth);
                blocks.push((at, block));
                (chunk[0].0, index_entry(chunk[0].0, at))
            })
            .collect();
        depth += 1;
    }
    let mut root = [0; 60];
    fill_node(&mut root, &level, ROOT_ENTRIES, depth);
    ExtentTree { root, blocks }
}

fn fill_node(node: &mut [u8], entries: &[(u32, [u8; ENTRY_SIZE])], room: usize, depth: u16) {
    node[0..2].copy_from_slice(&MAGIC.to_le_bytes());
    node[2..4].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    node[4..6].copy_from_slice(&(room as u16).to_le_bytes());
    node[6..8].copy_from_slice(&depth.to_le_bytes());
    for (slot, (_, entry)) in node[ENTRY_SIZE..].chunks_exact_mut(ENTRY_SIZE).zip(entries) {
        slot.copy_from_slice(entry);
    }
}

fn leaf_entry(extent: &Extent) -> [u8; ENTRY_SIZE] {
    let mut entry = [0; ENTRY_SIZE];
    entry[0..4].copy_from_slice(&extent.logical.to_le_bytes());
    entry[4..6].copy_from_slice(&(extent.len as u16).to_le_bytes());
    entry[6..8].copy_from_slice(&((extent.start >> 32) as u16).to_le_bytes());
    entry[8..12].copy_from_slice(&(extent.start as u32).to_le_bytes());
    entry
}

fn index_entry(logical: u32, child: u64) -> [u8; ENTRY_SIZE] {
    let mut entry = [0; ENTRY_SIZE];
    entry[0..4].copy_from_slice(&logical.to_le_bytes());
    entry[4..8].copy_from_slice(&(child as u32).to_le_bytes());
    entry[8..10].copy_from_slice(&((child >> 32) as u16).to_le_bytes());
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_up_to_the_longest_extent() {
        let mut extents = Extents::default();
        extents.push(0, Run { start: 10, len: 5 });
        extents.push(5, Run { start: 15, len: 5 });
        assert_eq!(extents.as_slice(), [Extent { logical: 0, len: 10, start: 10 }]);
        extents.push(10, Run { start: 20, len: EXTENT_BLOCKS_MAX });
        assert_eq!(extents.as_slice().len(), 2);
        assert_eq!(extents.blocks(), 10 + EXTENT_BLOCKS_MAX);
    }

    #[test]
    fn trees_grow_a_level_when_the_inode_is_full() {
        let extents = |n: u32| -> Vec<Extent> {
            (0..n).map(|i| Extent { logical: 2 * i, len: 1, start: 100 + 2 * u64::from(i) }).collect()
        };
        let depth = |n: u32| {
            let mut next = 0;
            let tree = build_tree(&extents(n), || {
                next += 1;
                next
            });
            (u16::from_le_bytes([tree.root[6], tree.root[7]]), tree.blocks.len())
        };
        assert_eq!(depth(4), (0, 0));
        assert_eq!(depth(5), (1, 1));
        assert_eq!(depth(341), (1, 2));
        assert_eq!(depth(5 * 340), (2, 6));
    }
}
