//! Writes ext4 file systems in one pass, without mounting anything.
//!
//! File data goes to its final place as it arrives; names and metadata stay in a [`Tree`] and are written by
//! [`Builder::finish`]. The result passes `e2fsck -fn` and the kernel can grow it while it is mounted.

mod acl;
mod alloc;
mod builder;
mod bytes;
mod checksum;
mod data;
mod dir;
mod extent;
mod finish;
mod from_directory;
mod group;
pub mod grow;
mod hash;
mod inode;
mod journal;
mod layout;
mod plan;
mod runs;
mod superblock;
mod target;
mod tree;
mod used;
mod xattr;

pub use acl::{ACL_ACCESS, follow_mode};
pub use builder::Builder;
pub use data::{OpenFile, Placement};
pub use extent::{Extent, Extents};
pub use from_directory::{ExtraContent, ExtraFile, from_directory};
pub use target::Target;
pub use tree::{
    Entry, FileData, Kind, LINKS_MAX, Meta, NAME_LEN_MAX, NODES_MAX, Node, NodeId, ROOT, Tree, TreeError, Xattr,
};
pub use xattr::{XattrError, supported as xattr_supported};

use std::io;

/// Bytes of a piece: what disks share with each other, and what lies over an image, comes in pieces. All are aligned to it.
pub const PIECE: u64 = layout::PIECE;

/// How the file system is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// Label, at most 16 bytes; longer ones are cut.
    pub label: String,
    /// Identity; also seeds the hashes of directory names.
    pub uuid: [u8; 16],
    /// Time of making, seconds since 1970.
    pub made_s: u32,
    /// With a journal and room to write (64 MiB and a tenth); else as small as can be, to be mounted read-only.
    pub writable: bool,
}

/// What was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Length of the disk, bytes.
    pub size: u64,
    /// Bytes in use by data and metadata; the rest is free.
    pub used: u64,
    /// Inodes in use.
    pub inodes: u32,
    /// Bytes written to the target.
    pub written: u64,
}

/// A file system could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Ext4Error {
    /// Reading content or writing the output failed.
    #[error("input or output failed")]
    Io(#[from] io::Error),
    /// The tree is out of bounds.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Extended attributes that ext4 cannot hold.
    #[error(transparent)]
    Xattr(#[from] XattrError),
    /// A directory with too many names.
    #[error(transparent)]
    Directory(#[from] dir::TooManyNames),
    /// Larger than ext4 can be.
    #[error(transparent)]
    Size(#[from] plan::TooLarge),
    /// Not usable as a path inside the file system.
    #[error("bad path {0:?}")]
    BadPath(String),
}
