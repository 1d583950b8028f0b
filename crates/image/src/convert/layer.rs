//! What an entry of a layer does to the tree below it: whiteouts, replacement, paths that try to get out. Pure.
//!
//! As in Docker with overlay2: a layer sees its own symbolic links, and a directory of a layer covers a link or file of
//! the layers below. Links are resolved inside the root, so that nothing gets out of it.

use crate::ext4::{Entry, Kind, Meta, NodeId, ROOT, Tree, TreeError, Xattr};
use crate::limits::{LINK_TARGET_LEN_MAX, LINKS_FOLLOWED_MAX};

const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Notes of aufs to itself.
const AUFS: &[u8] = b".wh..wh.";

/// Whether names that start with `.wh.` mean something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marks {
    /// A layer of an image: they remove what lies below.
    Whiteouts,
    /// A plain root file system: they are names like others.
    Literal,
}

/// An entry that no image may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// `..` leads out of the root.
    #[error("the path leads out of the image")]
    Escapes,
    /// A part of the path is a file of the same layer.
    #[error("a part of the path is not a directory")]
    NotADirectory,
    /// Symbolic links in a circle, or too many.
    #[error("more than {LINKS_FOLLOWED_MAX} symbolic links in the path")]
    TooManyLinks,
    /// The target of a hard link is not there.
    #[error("a hard link to {0:?}, which is not there")]
    NoTarget(String),
    /// The target of a symbolic link is empty or too long.
    #[error("the target of a symbolic link must have 1 to {LINK_TARGET_LEN_MAX} bytes")]
    BadTarget,
    /// The root is not a directory.
    #[error("the root must be a directory")]
    BadRoot,
    /// The tree is out of bounds.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

/// One layer being applied.
#[derive(Debug)]
pub struct Layer<'t> {
    /// What is below and what the layer added so far.
    pub tree: &'t mut Tree,
    /// Number of the layer, from 0.
    pub number: u16,
    /// Whether there are whiteouts.
    pub marks: Marks,
}

impl Layer<'_> {
    /// Adds a node, or does what a whiteout says.
    pub fn put(&mut self, path: &[u8], meta: Meta, xattrs: Option<Box<[Xattr]>>, kind: Kind) -> Result<(), ApplyError> {
        if let Kind::Symlink(target) = &kind
            && !(1..=LINK_TARGET_LEN_MAX).contains(&target.len())
        {
            return Err(ApplyError::BadTarget);
        }
        let parts = clean(path)?;
        let Some((name, parents)) = parts.split_last() else {
            return self.set_root(meta, xattrs, &kind);
        };
        if self.marks == Marks::Whiteouts && name.starts_with(WHITEOUT) {
            return self.whiteout(parents, name);
        }
        let dir = self.make_parents(parents)?;
        let existing = self.tree.lookup(dir, name);
        match existing {
            Some(entry) if matches!((&kind, self.kind(entry)), (Kind::Dir(_), Kind::Dir(_))) => {
                self.tree.touch(dir, name, self.number);
                let node = self.tree.node_mut(entry.node);
                node.meta = meta;
                node.xattrs = xattrs;
            }
            _ => {
                self.tree.add(dir, name, self.number, meta, xattrs, kind)?;
            }
        }
        Ok(())
    }

    /// Gives the file at `target`, of this layer or one below, one more name, and the attributes of this entry: container runtimes set
    /// them on the file after they made the link. A symbolic link only changes its owner.
    pub fn hard_link(&mut self, path: &[u8], target: &[u8], meta: Meta) -> Result<(), ApplyError> {
        let parts = clean(path)?;
        let (name, parents) = parts.split_last().ok_or(ApplyError::BadRoot)?;
        if self.marks == Marks::Whiteouts && name.starts_with(WHITEOUT) {
            return self.whiteout(parents, name);
        }
        let target_parts = clean(target)?;
        let missing = || ApplyError::NoTarget(String::from_utf8_lossy(target).into_owned());
        let (target_name, target_parents) = target_parts.split_last().ok_or_else(missing)?;
        let target_dir = self.walk(target_parents, Missing::Refuse)?.ok_or_else(missing)?;
        let node = self.tree.lookup(target_dir, target_name).ok_or_else(missing)?.node;
        let dir = self.make_parents(parents)?;
        self.tree.link(dir, name, self.number, node)?;
        let file = self.tree.node_mut(node);
        file.meta = match file.kind {
            Kind::Symlink(_) => Meta { uid: meta.uid, gid: meta.gid, ..file.meta },
            _ => meta,
        };
        Ok(())
    }

    fn set_root(&mut self, meta: Meta, xattrs: Option<Box<[Xattr]>>, kind: &Kind) -> Result<(), ApplyError> {
        let Kind::Dir(_) = kind else { return Err(ApplyError::BadRoot) };
        let root = self.tree.node_mut(ROOT);
        root.meta = meta;
        root.xattrs = xattrs;
        Ok(())
    }

    /// Removes what layers below have; what this layer added stays, in whichever order the two come.
    fn whiteout(&mut self, parents: &[&[u8]], mark: &[u8]) -> Result<(), ApplyError> {
        let dir = self.make_parents(parents)?;
        if mark == OPAQUE {
            self.tree.retain_layer(dir, self.number);
            return Ok(());
        }
        if mark.starts_with(AUFS) {
            return Ok(());
        }
        let name = &mark[WHITEOUT.len()..];
        match self.tree.lookup(dir, name) {
            Some(entry) if entry.layer == self.number => self.tree.retain_layer(entry.node, self.number),
            Some(_) => {
                self.tree.unlink(dir, name);
            }
            None => {}
        }
        Ok(())
    }

    fn make_parents(&mut self, parts: &[&[u8]]) -> Result<NodeId, ApplyError> {
        self.walk(parts, Missing::Make)?.ok_or(ApplyError::NotADirectory)
    }

    /// The directory at `parts`, links followed inside the root. `None` if it is not there and is not to be made.
    fn walk(&mut self, parts: &[&[u8]], missing: Missing) -> Result<Option<NodeId>, ApplyError> {
        let mut path = vec![ROOT];
        let mut open: Vec<Vec<u8>> = parts.iter().rev().map(|p| p.to_vec()).collect();
        let mut followed = 0;
        while let Some(name) = open.pop() {
            let dir = *path.last().unwrap_or(&ROOT);
            if name == b".." {
                // As in a chroot: above the root is the root.
                path.truncate(path.len().saturating_sub(1).max(1));
                continue;
            }
            let found = self.tree.lookup(dir, &name);
            if let Some(target) = found.and_then(|entry| self.followed_target(entry, missing)) {
                followed += 1;
                if followed > LINKS_FOLLOWED_MAX {
                    return Err(ApplyError::TooManyLinks);
                }
                if target.starts_with(b"/") {
                    path.truncate(1);
                }
                open.extend(target.split(|b| *b == b'/').rev().filter(|p| is_part(p)).map(<[u8]>::to_vec));
                continue;
            }
            match self.enter(dir, &name, found, missing)? {
                Some(node) => path.push(node),
                None => return Ok(None),
            }
        }
        Ok(path.last().copied())
    }

    /// Target of a link that a path goes through. One from a layer below is covered by the directory that is being made.
    fn followed_target(&self, entry: Entry, missing: Missing) -> Option<Vec<u8>> {
        match self.kind(entry) {
            Kind::Symlink(target) if missing == Missing::Refuse || entry.layer == self.number => Some(target.to_vec()),
            _ => None,
        }
    }

    /// The directory `name` in `dir`, made if need be.
    fn enter(
        &mut self,
        dir: NodeId,
        name: &[u8],
        found: Option<Entry>,
        missing: Missing,
    ) -> Result<Option<NodeId>, ApplyError> {
        let make = missing == Missing::Make;
        match found {
            Some(entry) if matches!(self.kind(entry), Kind::Dir(_)) => {
                if make {
                    self.tree.touch(dir, name, self.number);
                }
                Ok(Some(entry.node))
            }
            _ if !make => Ok(None),
            Some(entry) if entry.layer == self.number => Err(ApplyError::NotADirectory),
            _ => Ok(Some(self.tree.add(dir, name, self.number, Meta::root(0o755), None, Kind::dir())?)),
        }
    }

    fn kind(&self, entry: Entry) -> &Kind {
        &self.tree.node(entry.node).kind
    }
}

/// What to do about a directory that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Refuse,
}

/// The parts of a path, cleaned as text: `a/../b` is `b`; a `..` that goes above the root is refused, as Docker does.
fn clean(path: &[u8]) -> Result<Vec<&[u8]>, ApplyError> {
    let absolute = path.starts_with(b"/");
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|b| *b == b'/').filter(|p| is_part(p)) {
        if part != b".." {
            parts.push(part);
        } else if parts.pop().is_none() && !absolute {
            return Err(ApplyError::Escapes);
        }
    }
    Ok(parts)
}

fn is_part(part: &[u8]) -> bool {
    !part.is_empty() && part != b"."
}

#[cfg(test)]
#[path = "layer_tests.rs"]
mod tests;
