//! Directory blocks: a plain list for one block, a hash tree (`dir_index`) for more.

use super::bytes::PutLe;
use super::hash::half_md4;
use super::layout::BLOCK;

/// Blocks of a `lost+found`, so that e2fsck need not allocate when it fills it.
pub(super) const LOST_FOUND_BLOCKS: usize = 4;

const ROOT_FANOUT: usize = (BLOCK - 32) / 8;
const NODE_FANOUT: usize = (BLOCK - 8) / 8;
/// Most leaf blocks of a two-level hash tree.
const LEAVES_MAX: usize = ROOT_FANOUT * NODE_FANOUT;

/// A name in a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct DirEntry<'a> {
    /// Its bytes.
    pub name: &'a [u8],
    /// Inode it leads to.
    pub inode: u32,
    /// Type of that inode, as directories spell it.
    pub file_type: u8,
}

/// Type code of directories.
pub(super) const TYPE_DIR: u8 = 2;

/// A directory has too many names for a two-level hash tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a directory with more than {LEAVES_MAX} blocks of names")]
pub struct TooManyNames;

/// The blocks of one directory.
#[derive(Debug)]
pub(super) struct DirBlocks {
    /// All blocks, one after the other.
    pub bytes: Vec<u8>,
    /// Whether they form a hash tree.
    pub indexed: bool,
}

/// Builds the blocks of a directory with `entries` besides `.` and `..`, padded to at least `blocks_min` if they fit one block.
pub(super) fn build(
    own: u32,
    parent: u32,
    entries: &[DirEntry<'_>],
    seed: [u32; 4],
    blocks_min: usize,
) -> Result<DirBlocks, TooManyNames> {
    let dot = DirEntry { name: b".", inode: own, file_type: TYPE_DIR };
    let dot_dot = DirEntry { name: b"..", inode: parent, file_type: TYPE_DIR };
    let total: usize = 24 + entries.iter().map(|e| entry_len(e.name.len())).sum::<usize>();
    if total <= BLOCK {
        let mut block = ListBlock::new();
        block.push(&dot);
        block.push(&dot_dot);
        entries.iter().for_each(|e| block.push(e));
        let mut bytes = block.finish();
        for _ in 1..blocks_min {
            bytes.extend_from_slice(&ListBlock::new().finish());
        }
        return Ok(DirBlocks { bytes, indexed: false });
    }
    let leaves = leaves(entries, seed);
    if leaves.len() > LEAVES_MAX {
        return Err(TooManyNames);
    }
    Ok(DirBlocks { bytes: index(own, parent, leaves), indexed: true })
}

/// Bytes that a name of `len` bytes takes.
fn entry_len(len: usize) -> usize {
    (8 + len).next_multiple_of(4)
}

/// A block that is a list of names.
struct ListBlock {
    bytes: Vec<u8>,
    last: usize,
}

impl ListBlock {
    fn new() -> Self {
        Self { bytes: Vec::with_capacity(BLOCK), last: 0 }
    }

    fn fits(&self, entry: &DirEntry<'_>) -> bool {
        self.bytes.len() + entry_len(entry.name.len()) <= BLOCK
    }

    fn push(&mut self, entry: &DirEntry<'_>) {
        self.last = self.bytes.len();
        let len = entry_len(entry.name.len());
        self.bytes.resize(self.last + len, 0);
        let slot = &mut self.bytes[self.last..];
        slot.put_u32(0, entry.inode);
        slot.put_u16(4, len as u16);
        slot[6] = entry.name.len() as u8;
        slot[7] = entry.file_type;
        slot[8..8 + entry.name.len()].copy_from_slice(entry.name);
    }

    /// The whole block; the last name, or an empty one, reaches to its end.
    fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(BLOCK, 0);
        let reach = (BLOCK - self.last) as u16;
        self.bytes[self.last..].put_u16(4, reach);
        self.bytes
    }
}

struct Leaf {
    /// Least hash in it; the lowest bit says that the leaf before ends with the same hash.
    hash: u32,
    bytes: Vec<u8>,
}

/// Names in the order of their hashes, cut into blocks.
fn leaves(entries: &[DirEntry<'_>], seed: [u32; 4]) -> Vec<Leaf> {
    let mut order: Vec<(u32, u32)> =
        entries.iter().enumerate().map(|(i, e)| (half_md4(e.name, seed), i as u32)).collect();
    order.sort_unstable();
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut open: Option<(u32, ListBlock)> = None;
    let mut last_hash = None;
    for (hash, i) in order {
        let entry = &entries[i as usize];
        if let Some((first, block)) = open.take_if(|(_, block)| !block.fits(entry)) {
            leaves.push(Leaf { hash: first, bytes: block.finish() });
        }
        let first = if last_hash == Some(hash) { hash | 1 } else { hash };
        open.get_or_insert_with(|| (first, ListBlock::new())).1.push(entry);
        last_hash = Some(hash);
    }
    if let Some((first, block)) = open {
        leaves.push(Leaf { hash: first, bytes: block.finish() });
    }
    leaves
}

/// Root, inner nodes if the root cannot hold all leaves, leaves.
fn index(own: u32, parent: u32, leaves: Vec<Leaf>) -> Vec<u8> {
    let inner = if leaves.len() <= ROOT_FANOUT { 0 } else { leaves.len().div_ceil(NODE_FANOUT) };
    let first_leaf = 1 + inner;
    let at: Vec<(u32, u32)> = leaves.iter().enumerate().map(|(i, leaf)| (leaf.hash, (first_leaf + i) as u32)).collect();
    let nodes: Vec<&[(u32, u32)]> = if inner == 0 { Vec::new() } else { at.chunks(NODE_FANOUT).collect() };
    let top: Vec<(u32, u32)> = match inner {
        0 => at.clone(),
        _ => nodes.iter().enumerate().map(|(i, node)| (node[0].0, 1 + i as u32)).collect(),
    };
    let mut out = Vec::with_capacity((first_leaf + leaves.len()) * BLOCK);
    out.extend_from_slice(&index_root(own, parent, inner > 0, &top));
    for node in nodes {
        let mut block = vec![0; BLOCK];
        block.put_u16(4, BLOCK as u16);
        put_index(&mut block[8..], NODE_FANOUT, node);
        out.extend_from_slice(&block);
    }
    leaves.iter().for_each(|leaf| out.extend_from_slice(&leaf.bytes));
    out
}

fn index_root(own: u32, parent: u32, two_levels: bool, top: &[(u32, u32)]) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block.put_u32(0, own);
    block.put_u16(4, 12);
    block[6] = 1;
    block[7] = TYPE_DIR;
    block[8] = b'.';
    block.put_u32(12, parent);
    block.put_u16(16, (BLOCK - 12) as u16);
    block[18] = 2;
    block[19] = TYPE_DIR;
    block[20..22].copy_from_slice(b"..");
    block[28] = 1; // half MD4
    block[29] = 8; // length of this info
    block[30] = u8::from(two_levels);
    put_index(&mut block[32..], ROOT_FANOUT, top);
    block
}

/// Entries of an index block; the first has no hash, the counts lie in its place.
fn put_index(out: &mut [u8], limit: usize, entries: &[(u32, u32)]) {
    for (slot, (hash, block)) in out.chunks_exact_mut(8).zip(entries) {
        slot.put_u32(0, *hash);
        slot.put_u32(4, *block);
    }
    out.put_u16(0, limit as u16);
    out.put_u16(2, entries.len() as u16);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(n: usize) -> Vec<Vec<u8>> {
        (0..n).map(|i| format!("a-file-with-a-name-{i:07}").into_bytes()).collect()
    }

    fn blocks(n: usize) -> DirBlocks {
        let names = names(n);
        let entries: Vec<DirEntry<'_>> = names.iter().map(|name| DirEntry { name, inode: 12, file_type: 1 }).collect();
        build(12, 2, &entries, [1, 2, 3, 4], 1).unwrap()
    }

    #[test]
    fn one_block_is_a_list() {
        let dir = blocks(10);
        assert!(!dir.indexed);
        assert_eq!(dir.bytes.len(), BLOCK);
    }

    #[test]
    fn more_is_an_index() {
        let dir = blocks(1000);
        assert!(dir.indexed);
        assert_eq!(dir.bytes.len() % BLOCK, 0);
        assert_eq!(dir.bytes[30], 0);
        let two = blocks(100_000);
        assert_eq!(two.bytes[30], 1);
    }
}
