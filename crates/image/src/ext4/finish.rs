//! Turns a tree whose data is on disk into a file system: directories, inodes, bitmaps, superblocks.

use super::alloc::Run;
use super::data::{DataWriter, Output};
use super::dir::{self, DirEntry, LOST_FOUND_BLOCKS, TYPE_DIR};
use super::extent::{Extents, build_tree};
use super::group::Group;
use super::inode::{FLAG_EXTENTS, FLAG_INDEX, Inode, XATTR_ROOM, device_block};
use super::journal;
use super::layout::{
    BLOCK, BLOCKS_PER_GROUP, FIRST_INODE, GROUPS_PER_META, INODE_SIZE, JOURNAL_INODE, ROOT_INODE, descriptor_block,
    group_start, has_superblock,
};
use super::plan::{Need, Plan, plan};
use super::runs::joined;
use super::superblock::Superblock;
use super::target::Target;
use super::tree::{Kind, Meta, Node, NodeId, ROOT, Tree};
use super::used::UsedBlocks;
use super::xattr;
use super::{Ext4Error, Options, Summary};
use std::collections::HashMap;
use std::io;

/// Fast symlinks keep their target in the inode.
const FAST_LINK_MAX: usize = 59;
/// A directory with more subdirectories than this has a link count of 1 (`dir_nlink`).
const DIR_LINKS_MAX: u32 = 64_999;

/// What a node got on disk besides the data it came with.
#[derive(Default)]
struct Placed {
    extents: Extents,
    size: u64,
    /// Root of an extent tree with blocks below it, and how many.
    tree: Option<(Box<[u8; 60]>, u64)>,
    xattr_block: u64,
    indexed: bool,
    subdirs: u32,
}

/// Numbers of inodes.
struct Numbering {
    /// Inode by position of the node; 0 is none.
    inodes: Vec<u32>,
    /// Nodes in the order of their inodes, from [`FIRST_INODE`] on.
    order: Vec<NodeId>,
    /// Directories with the inode of their parent.
    dirs: Vec<(NodeId, u32)>,
}

/// The last pass over a tree.
pub(super) struct Finisher<'a, T> {
    tree: Tree,
    data: DataWriter<T>,
    options: &'a Options,
    seed: [u32; 4],
    placed: HashMap<NodeId, Placed>,
}

impl<'a, T: Target> Finisher<'a, T> {
    pub(super) fn new(tree: Tree, data: DataWriter<T>, options: &'a Options) -> Self {
        Self { tree, data, options, seed: hash_seed(&options.uuid), placed: HashMap::new() }
    }

    /// Writes all that is left and gives back the target.
    pub(super) fn run(mut self) -> Result<(T, Summary), Ext4Error> {
        self.ensure_lost_found()?;
        let numbering = self.number();
        self.write_dirs(&numbering)?;
        self.place_rest(&numbering)?;
        let last_inode = FIRST_INODE + numbering.order.len() as u32 - 1;
        let plan = plan(Need {
            blocks: self.data.cursor.next(),
            inodes: u64::from(last_inode),
            writable: self.options.writable,
        })?;
        let journal = self.write_journal(&plan)?;
        let mut groups = self.allocate_tables(&plan, last_inode, &numbering);
        self.write_inodes(&numbering, &plan, &groups, journal.as_ref())?;
        self.write_maps(&plan, last_inode, &mut groups, journal.map(|j| (j.i_block, j.size)))
    }

    fn ensure_lost_found(&mut self) -> Result<(), Ext4Error> {
        let is_dir = self.tree.lookup(ROOT, b"lost+found").map(|e| matches!(self.tree.node(e.node).kind, Kind::Dir(_)));
        if is_dir != Some(true) {
            self.tree.add(ROOT, b"lost+found", 0, Meta::root(0o700), None, Kind::dir())?;
        }
        Ok(())
    }

    /// Files of one directory get neighbouring inodes, then come its subdirectories.
    fn number(&self) -> Numbering {
        let mut inodes = vec![0; self.tree.node_count()];
        inodes[Tree::index(ROOT)] = ROOT_INODE;
        let mut order = Vec::new();
        let mut dirs = Vec::new();
        let mut open = vec![(ROOT, ROOT_INODE)];
        while let Some((id, parent)) = open.pop() {
            dirs.push((id, parent));
            let own = inodes[Tree::index(id)];
            let Kind::Dir(names) = &self.tree.node(id).kind else { continue };
            for entry in names.values() {
                let number = &mut inodes[Tree::index(entry.node)];
                if *number != 0 {
                    continue;
                }
                *number = FIRST_INODE + order.len() as u32;
                order.push(entry.node);
                if matches!(self.tree.node(entry.node).kind, Kind::Dir(_)) {
                    open.push((entry.node, own));
                }
            }
        }
        Numbering { inodes, order, dirs }
    }

    fn write_dirs(&mut self, numbering: &Numbering) -> Result<(), Ext4Error> {
        let lost_found = self.tree.lookup(ROOT, b"lost+found").map(|e| e.node);
        for (id, parent) in &numbering.dirs {
            // The names are not needed again; memory stays flat.
            let Kind::Dir(names) = std::mem::replace(&mut self.tree.node_mut(*id).kind, Kind::dir()) else { continue };
            let entries: Vec<DirEntry<'_>> = names
                .iter()
                .map(|(name, entry)| DirEntry {
                    name,
                    inode: numbering.inodes[Tree::index(entry.node)],
                    file_type: file_type(&self.tree.node(entry.node).kind),
                })
                .collect();
            let subdirs = entries.iter().filter(|e| e.file_type == TYPE_DIR).count() as u32;
            let blocks_min = if lost_found == Some(*id) { LOST_FOUND_BLOCKS } else { 1 };
            let own = numbering.inodes[Tree::index(*id)];
            let blocks = dir::build(own, *parent, &entries, self.seed, blocks_min)?;
            let mut placed = self.write_data(&blocks.bytes)?;
            placed.indexed = blocks.indexed;
            placed.subdirs = subdirs;
            self.placed.insert(*id, placed);
        }
        Ok(())
    }

    fn write_data(&mut self, bytes: &[u8]) -> io::Result<Placed> {
        let mut file = Default::default();
        self.data.append(&mut file, bytes)?;
        let data = self.data.end(file)?;
        Ok(Placed { extents: data.extents, size: data.size, ..Placed::default() })
    }

    /// Long link targets, blocks of extended attributes, blocks of extent trees.
    fn place_rest(&mut self, numbering: &Numbering) -> Result<(), Ext4Error> {
        for id in numbering.order.iter().chain([&ROOT]) {
            let node = self.tree.node(*id);
            let long_target = match &node.kind {
                Kind::Symlink(target) if target.len() > FAST_LINK_MAX => Some(target.clone()),
                _ => None,
            };
            let xattr_block = match &node.xattrs {
                Some(xattrs) => xattr::encode(xattrs)?.block,
                None => None,
            };
            if let Some(target) = long_target {
                let placed = self.write_data(&target)?;
                self.placed.insert(*id, placed);
            }
            if let Some(block) = xattr_block {
                let at = self.data.put_block(&block)?;
                self.placed.entry(*id).or_default().xattr_block = at;
            }
            self.place_extent_tree(*id)?;
        }
        Ok(())
    }

    fn place_extent_tree(&mut self, id: NodeId) -> io::Result<()> {
        let extents = match (&self.tree.node(id).kind, self.placed.get(&id)) {
            (Kind::File(data), _) => data.extents.as_slice(),
            (_, Some(placed)) => placed.extents.as_slice(),
            _ => return Ok(()),
        };
        if extents.len() <= 4 {
            return Ok(());
        }
        let tree = build_tree(extents, || self.data.cursor.take(1).start);
        for (at, block) in &tree.blocks {
            self.data.out.write_at(at * BLOCK as u64, block)?;
        }
        self.placed.entry(id).or_default().tree = Some((Box::new(tree.root), tree.blocks.len() as u64));
        Ok(())
    }

    fn write_journal(&mut self, plan: &Plan) -> io::Result<Option<Inode>> {
        if plan.journal_blocks == 0 {
            return Ok(None);
        }
        let mut extents = Extents::default();
        let mut done = 0;
        while done < plan.journal_blocks {
            let run = self.data.cursor.take(plan.journal_blocks - done);
            extents.push(done as u32, run);
            done += run.len;
        }
        let first = extents.as_slice()[0].start * BLOCK as u64;
        self.data.out.write_at(first, &journal::superblock(done as u32, &self.options.uuid))?;
        // At most 64 MiB: it lies in two groups at most, so the root of the tree is enough.
        let tree = build_tree(extents.as_slice(), || 0);
        let meta = Meta { mtime_s: self.options.made_s.into(), ..Meta::root(0o600) };
        Ok(Some(Inode {
            format: 0o100_000,
            meta,
            size: done * BLOCK as u64,
            links: 1,
            blocks: done,
            flags: FLAG_EXTENTS,
            i_block: tree.root,
            xattr_block: 0,
            xattrs: [0; XATTR_ROOM],
        }))
    }

    fn allocate_tables(&mut self, plan: &Plan, last_inode: u32, numbering: &Numbering) -> Vec<Group> {
        let cursor = &mut self.data.cursor;
        let per_group = plan.inodes_per_group;
        let mut groups: Vec<Group> = (0..plan.groups)
            .map(|g| {
                let used = u64::from(last_inode).saturating_sub(g * per_group).min(per_group);
                let free = (per_group - used) as u32;
                Group { free_inodes: free, unused_inodes: free, ..Group::default() }
            })
            .collect();
        groups.iter_mut().for_each(|g| g.block_bitmap = cursor.take(1).start);
        groups.iter_mut().for_each(|g| g.inode_bitmap = cursor.take(1).start);
        groups.iter_mut().for_each(|g| g.inode_table = cursor.take_whole(plan.table_blocks).start);
        for (id, _) in &numbering.dirs {
            let inode = u64::from(numbering.inodes[Tree::index(*id)]);
            groups[((inode - 1) / per_group) as usize].dirs += 1;
        }
        groups
    }

    fn write_inodes(
        &mut self,
        numbering: &Numbering,
        plan: &Plan,
        groups: &[Group],
        journal: Option<&Inode>,
    ) -> Result<(), Ext4Error> {
        let place = |inode: u32| {
            let index = u64::from(inode - 1);
            let table = groups[(index / plan.inodes_per_group) as usize].inode_table;
            table * BLOCK as u64 + index % plan.inodes_per_group * INODE_SIZE as u64
        };
        let root = self.inode(ROOT)?.encode();
        self.data.out.write_at(place(ROOT_INODE), &root)?;
        if let Some(journal) = journal {
            self.data.out.write_at(place(JOURNAL_INODE), &journal.encode())?;
        }
        for (number, id) in (FIRST_INODE..).zip(&numbering.order) {
            let inode = self.inode(*id)?.encode();
            self.data.out.write_at(place(number), &inode)?;
        }
        Ok(())
    }

    fn inode(&self, id: NodeId) -> Result<Inode, Ext4Error> {
        let node = self.tree.node(id);
        let placed = self.placed.get(&id);
        let mut inode = Inode {
            format: format_bits(&node.kind),
            meta: node.meta,
            size: 0,
            links: links(node, placed),
            blocks: 0,
            flags: 0,
            i_block: [0; 60],
            xattr_block: placed.map_or(0, |p| p.xattr_block),
            xattrs: match &node.xattrs {
                Some(xattrs) => xattr::encode(xattrs)?.in_inode,
                None => [0; XATTR_ROOM],
            },
        };
        inode.blocks = u64::from(inode.xattr_block != 0);
        match (&node.kind, placed) {
            (Kind::File(data), _) => map(&mut inode, &data.extents, data.size, placed),
            (Kind::Symlink(target), _) if target.len() <= FAST_LINK_MAX => {
                inode.size = target.len() as u64;
                inode.i_block[..target.len()].copy_from_slice(target);
            }
            (Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor), _) => {
                inode.i_block = device_block(*major, *minor);
            }
            (_, Some(p)) if p.size > 0 => map(&mut inode, &p.extents, p.size, placed),
            _ => {}
        }
        Ok(inode)
    }

    /// Bitmaps, descriptors, superblocks; then the disk gets its length and the freed blocks are forgotten.
    fn write_maps(
        mut self,
        plan: &Plan,
        last_inode: u32,
        groups: &mut [Group],
        journal: Option<([u8; 60], u64)>,
    ) -> Result<(T, Summary), Ext4Error> {
        let DataWriter { mut out, cursor } = self.data;
        let freed: Vec<Run> =
            self.tree.take_freed().iter().map(|e| Run { start: e.start, len: u64::from(e.len) }).collect();
        let mut used = UsedBlocks::new(plan.blocks, cursor.next());
        let gaps = cursor.into_gaps();
        freed.iter().chain(&gaps).for_each(|run| used.free(*run));
        for (g, group) in groups.iter_mut().enumerate() {
            let (bitmap, free) = used.group_bitmap(g as u64);
            group.free_blocks = free;
            out.write_at(group.block_bitmap * BLOCK as u64, bitmap)?;
            let used_inodes = plan.inodes_per_group as u32 - group.free_inodes;
            out.write_at(group.inode_bitmap * BLOCK as u64, &inode_bitmap(used_inodes, plan.inodes_per_group as u32))?;
        }
        let inodes = plan.groups * plan.inodes_per_group;
        let superblock = Superblock {
            inodes: inodes as u32,
            inodes_per_group: plan.inodes_per_group as u32,
            blocks: plan.blocks,
            free_blocks: groups.iter().map(|g| u64::from(g.free_blocks)).sum(),
            free_inodes: inodes as u32 - last_inode,
            uuid: self.options.uuid,
            hash_seed: self.seed,
            label: self.options.label.as_bytes().to_vec(),
            made_s: self.options.made_s,
            journal,
            written_kib: 0,
        };
        write_descriptors(&mut out, groups, plan, &self.options.uuid)?;
        for g in (0..plan.groups).filter(|g| has_superblock(*g)) {
            let offset = if g == 0 { 1024 } else { 0 };
            out.write_at(group_start(g) * BLOCK as u64 + offset, &superblock.encode(g))?;
        }
        let (mut target, written) = out.finish()?;
        for run in joined(freed) {
            target.forget(run.start * BLOCK as u64, run.len * BLOCK as u64);
        }
        target.end(plan.blocks * BLOCK as u64)?;
        let used_bytes = (plan.blocks - superblock.free_blocks) * BLOCK as u64;
        Ok((target, Summary { size: plan.blocks * BLOCK as u64, used: used_bytes, inodes: last_inode, written }))
    }
}

fn write_descriptors(out: &mut Output<impl Target>, groups: &[Group], plan: &Plan, uuid: &[u8; 16]) -> io::Result<()> {
    for g in 0..plan.groups {
        let Some(at) = descriptor_block(g) else { continue };
        let first = (g - g % GROUPS_PER_META) as usize;
        let mut block = Vec::with_capacity(BLOCK);
        for (number, group) in groups.iter().enumerate().skip(first).take(GROUPS_PER_META as usize) {
            block.extend_from_slice(&group.encode(number as u32, plan.inodes_per_group as u32, uuid));
        }
        block.resize(BLOCK, 0);
        out.write_at(at * BLOCK as u64, &block)?;
    }
    Ok(())
}

fn inode_bitmap(used: u32, per_group: u32) -> Vec<u8> {
    let mut bitmap = vec![0u8; BLOCK];
    let bits = (0..used).chain(per_group..8 * BLOCK as u32);
    bits.for_each(|bit| bitmap[bit as usize / 8] |= 1 << (bit % 8));
    bitmap
}

fn map(inode: &mut Inode, extents: &Extents, size: u64, placed: Option<&Placed>) {
    inode.size = size;
    inode.flags = FLAG_EXTENTS | if placed.is_some_and(|p| p.indexed) { FLAG_INDEX } else { 0 };
    inode.blocks += extents.blocks();
    match placed.and_then(|p| p.tree.as_ref()) {
        Some((root, blocks)) => {
            inode.i_block = **root;
            inode.blocks += blocks;
        }
        // Four extents or fewer: no block is asked for.
        None => inode.i_block = build_tree(extents.as_slice(), || 0).root,
    }
}

fn links(node: &Node, placed: Option<&Placed>) -> u16 {
    match node.kind {
        Kind::Dir(_) => match placed.map_or(0, |p| p.subdirs) + 2 {
            n if n > DIR_LINKS_MAX => 1,
            n => n as u16,
        },
        _ => node.links as u16,
    }
}

fn format_bits(kind: &Kind) -> u16 {
    match kind {
        Kind::Fifo => 0o010_000,
        Kind::CharDevice(..) => 0o020_000,
        Kind::Dir(_) => 0o040_000,
        Kind::BlockDevice(..) => 0o060_000,
        Kind::File(_) => 0o100_000,
        Kind::Symlink(_) => 0o120_000,
        Kind::Socket => 0o140_000,
    }
}

fn file_type(kind: &Kind) -> u8 {
    match kind {
        Kind::File(_) => 1,
        Kind::Dir(_) => TYPE_DIR,
        Kind::CharDevice(..) => 3,
        Kind::BlockDevice(..) => 4,
        Kind::Fifo => 5,
        Kind::Socket => 6,
        Kind::Symlink(_) => 7,
    }
}

/// A seed of our own, never all zero: zero means "the default" to readers.
fn hash_seed(uuid: &[u8; 16]) -> [u32; 4] {
    let mut seed = [0; 4];
    for (word, bytes) in seed.iter_mut().zip(uuid.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) ^ 0x5741_5252;
    }
    if seed == [0; 4] { [1, 2, 3, 4] } else { seed }
}

const _: () = assert!(BLOCKS_PER_GROUP == 8 * BLOCK as u64, "a group's bitmap is one block");
