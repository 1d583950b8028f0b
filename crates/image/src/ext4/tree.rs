//! The file tree in memory: names, owners, modes, where the data lies. Values only.

use super::extent::{Extent, Extents};
use std::collections::BTreeMap;

/// Most nodes of a tree.
pub const NODES_MAX: usize = 10_000_000;
/// Most names of one file; ext4's own limit.
pub const LINKS_MAX: u32 = 65_000;
/// Longest name, bytes.
pub const NAME_LEN_MAX: usize = 255;

/// A node of the tree, valid until it is unlinked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

/// The root directory; always there.
pub const ROOT: NodeId = NodeId(0);

/// Owner, mode and time of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits with setuid, setgid and sticky: `0o7777`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Modification time, seconds since 1970.
    pub mtime_s: i64,
    /// And nanoseconds.
    pub mtime_ns: u32,
}

impl Meta {
    /// Root's, with `mode`, at time 0.
    pub fn root(mode: u16) -> Self {
        Self { mode, uid: 0, gid: 0, mtime_s: 0, mtime_ns: 0 }
    }
}

/// An extended attribute: full name such as `user.x`, and value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Xattr {
    /// Name with its prefix.
    pub name: Box<[u8]>,
    /// Value as `getxattr` gives it.
    pub value: Box<[u8]>,
}

/// Content of a regular file, already on disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileData {
    /// Length, bytes.
    pub size: u64,
    /// Where.
    pub extents: Extents,
}

/// What a name of a directory leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The node.
    pub node: NodeId,
    /// Number of the layer that wrote the name, from 0.
    pub layer: u16,
}

/// What a node is.
#[derive(Debug)]
pub enum Kind {
    /// A directory and its names.
    Dir(BTreeMap<Box<[u8]>, Entry>),
    /// A regular file.
    File(FileData),
    /// A symbolic link and its target.
    Symlink(Box<[u8]>),
    /// A character device: major, minor.
    CharDevice(u32, u32),
    /// A block device: major, minor.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl Kind {
    /// An empty directory.
    pub fn dir() -> Self {
        Self::Dir(BTreeMap::new())
    }
}

/// One inode to be.
#[derive(Debug)]
pub struct Node {
    /// Owner, mode, time.
    pub meta: Meta,
    /// Extended attributes; none is the rule.
    pub xattrs: Option<Box<[Xattr]>>,
    /// What it is.
    pub kind: Kind,
    /// Names that lead here; 0 once it is gone. A directory has one.
    pub links: u32,
}

/// The tree cannot take another node or name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// More than [`NODES_MAX`].
    #[error("more than {NODES_MAX} files")]
    TooManyNodes,
    /// More than [`LINKS_MAX`].
    #[error("more than {LINKS_MAX} hard links to one file")]
    TooManyLinks,
    /// Empty, too long, `.`, `..`, or with a `/` or NUL in it.
    #[error("not a file name")]
    BadName,
    /// The parent is not a directory.
    #[error("not a directory")]
    NotADirectory,
    /// A directory has one name only.
    #[error("a hard link to a directory")]
    DirectoryLink,
}

/// The whole tree.
#[derive(Debug)]
pub struct Tree {
    nodes: Vec<Node>,
    freed: Vec<Extent>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// Only a root directory, 0755 root.
    pub fn new() -> Self {
        let root = Node { meta: Meta::root(0o755), xattrs: None, kind: Kind::dir(), links: 1 };
        Self { nodes: vec![root], freed: Vec::new() }
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// A node, to change its metadata.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[id.0 as usize]
    }

    /// Nodes ever made, gone ones included.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Position of a node in tables of [`Tree::node_count`] items.
    pub fn index(id: NodeId) -> usize {
        id.0 as usize
    }

    /// What `name` in `dir` leads to.
    pub fn lookup(&self, dir: NodeId, name: &[u8]) -> Option<Entry> {
        match &self.node(dir).kind {
            Kind::Dir(names) => names.get(name).copied(),
            _ => None,
        }
    }

    /// Adds a new node under a name, whatever was there before being unlinked.
    pub fn add(
        &mut self,
        dir: NodeId,
        name: &[u8],
        layer: u16,
        meta: Meta,
        xattrs: Option<Box<[Xattr]>>,
        kind: Kind,
    ) -> Result<NodeId, TreeError> {
        if self.nodes.len() >= NODES_MAX {
            return Err(TreeError::TooManyNodes);
        }
        let node = NodeId(self.nodes.len() as u32);
        self.put(dir, name, Entry { node, layer })?;
        self.nodes.push(Node { meta, xattrs, kind, links: 1 });
        Ok(node)
    }

    /// Gives `node` one more name, whatever was there before being unlinked.
    pub fn link(&mut self, dir: NodeId, name: &[u8], layer: u16, node: NodeId) -> Result<(), TreeError> {
        if matches!(self.node(node).kind, Kind::Dir(_)) {
            return Err(TreeError::DirectoryLink);
        }
        if self.node(node).links >= LINKS_MAX {
            return Err(TreeError::TooManyLinks);
        }
        // First the new link, so that replacing a name of the same file does not free it.
        self.node_mut(node).links += 1;
        let done = self.put(dir, name, Entry { node, layer });
        if done.is_err() {
            self.release(node);
        }
        done
    }

    /// Marks an existing name as written by `layer`.
    pub fn touch(&mut self, dir: NodeId, name: &[u8], layer: u16) {
        if let Kind::Dir(names) = &mut self.node_mut(dir).kind
            && let Some(entry) = names.get_mut(name)
        {
            entry.layer = layer;
        }
    }

    /// Removes a name, with all below it if it is a directory. Whether it was there.
    pub fn unlink(&mut self, dir: NodeId, name: &[u8]) -> bool {
        let Kind::Dir(names) = &mut self.node_mut(dir).kind else { return false };
        let Some(entry) = names.remove(name) else { return false };
        self.release(entry.node);
        true
    }

    /// Removes all names below `dir` that were not written by `layer`.
    pub fn retain_layer(&mut self, dir: NodeId, layer: u16) {
        let mut open = vec![dir];
        while let Some(id) = open.pop() {
            let Kind::Dir(names) = &mut self.node_mut(id).kind else { continue };
            let mut gone = Vec::new();
            names.retain(|_, entry| {
                let kept = entry.layer == layer;
                if kept {
                    open.push(entry.node)
                } else {
                    gone.push(entry.node)
                }
                kept
            });
            for node in gone {
                self.release(node);
            }
        }
    }

    /// Data blocks of files that are gone, since the last call.
    pub fn take_freed(&mut self) -> Vec<Extent> {
        std::mem::take(&mut self.freed)
    }

    fn put(&mut self, dir: NodeId, name: &[u8], entry: Entry) -> Result<(), TreeError> {
        let bad = name.is_empty() || name.len() > NAME_LEN_MAX || name == b"." || name == b"..";
        if bad || name.iter().any(|b| matches!(b, 0 | b'/')) {
            return Err(TreeError::BadName);
        }
        let Kind::Dir(names) = &mut self.node_mut(dir).kind else { return Err(TreeError::NotADirectory) };
        if let Some(old) = names.insert(name.into(), entry) {
            self.release(old.node);
        }
        Ok(())
    }

    /// Takes one link from a node; a node without links is gone, and so is what is below it. Not recursive: trees are deep.
    fn release(&mut self, id: NodeId) {
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let node = self.node_mut(id);
            node.links = node.links.saturating_sub(1);
            if node.links > 0 {
                continue;
            }
            node.xattrs = None;
            match std::mem::replace(&mut node.kind, Kind::Fifo) {
                Kind::Dir(names) => open.extend(names.into_values().map(|e| e.node)),
                Kind::File(data) => self.freed.extend_from_slice(data.extents.as_slice()),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ext4::alloc::Run;

    fn file(start: u64) -> Kind {
        let mut extents = Extents::default();
        extents.push(0, Run { start, len: 1 });
        Kind::File(FileData { size: 1, extents })
    }

    #[test]
    fn a_file_lives_until_its_last_name_goes() {
        let mut tree = Tree::new();
        let a = tree.add(ROOT, b"a", 0, Meta::root(0o644), None, file(7)).unwrap();
        tree.link(ROOT, b"b", 0, a).unwrap();
        tree.link(ROOT, b"a", 1, a).unwrap();
        assert_eq!(tree.node(a).links, 2);
        assert!(tree.unlink(ROOT, b"a"));
        assert!(tree.take_freed().is_empty());
        assert!(tree.unlink(ROOT, b"b"));
        assert_eq!(tree.take_freed()[0].start, 7);
        assert!(!tree.unlink(ROOT, b"b"));
    }

    #[test]
    fn opaque_keeps_what_its_layer_wrote() {
        let mut tree = Tree::new();
        let dir = tree.add(ROOT, b"d", 1, Meta::root(0o755), None, Kind::dir()).unwrap();
        tree.add(dir, b"old", 0, Meta::root(0o644), None, Kind::Fifo).unwrap();
        let sub = tree.add(dir, b"sub", 1, Meta::root(0o755), None, Kind::dir()).unwrap();
        tree.add(sub, b"old", 0, Meta::root(0o644), None, Kind::Fifo).unwrap();
        tree.add(sub, b"new", 1, Meta::root(0o644), None, Kind::Fifo).unwrap();
        tree.retain_layer(dir, 1);
        assert!(tree.lookup(dir, b"old").is_none());
        assert!(tree.lookup(sub, b"old").is_none());
        assert!(tree.lookup(sub, b"new").is_some());
    }

    #[test]
    fn bad_names_are_refused() {
        let mut tree = Tree::new();
        for name in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert_eq!(tree.add(ROOT, name, 0, Meta::root(0), None, Kind::Fifo), Err(TreeError::BadName));
        }
        assert!(tree.add(ROOT, &[0xff; 255], 0, Meta::root(0), None, Kind::Fifo).is_ok());
    }
}
