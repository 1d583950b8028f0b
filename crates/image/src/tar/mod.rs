//! Reads tar streams: ustar, GNU and PAX with long names, sparse files and extended attributes.
//!
//! The `tar` crate leaves PAX sparse files to its user and buffers differently; here the bytes of a file go from one
//! buffer straight to the disk. Everything is parsed as hostile.

mod header;
mod number;
mod pax;
mod reader;
mod sparse;

pub use reader::{Piece, Reader};

use crate::ext4::{Meta, Xattr};
use std::io;

/// One entry of a tar.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Path as written: not cleaned, no NUL in it.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Owner, mode, time.
    pub meta: Meta,
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
}

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file; its data follows.
    File,
    /// A directory.
    Dir,
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// One more name for the file at this path.
    HardLink(Vec<u8>),
    /// A character device: major, minor.
    CharDevice(u32, u32),
    /// A block device: major, minor.
    BlockDevice(u32, u32),
    /// A named pipe.
    Fifo,
}

/// A tar stream cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// The source failed.
    #[error("reading failed")]
    Read(#[source] io::Error),
    /// The stream ends within an entry.
    #[error("the tar is cut off")]
    CutOff,
    /// Not a tar header.
    #[error("not a tar, or a damaged one: {0}")]
    BadHeader(&'static str),
    /// An entry of a kind that no image has.
    #[error("entry {path:?} has the unknown type {kind:?}")]
    UnknownKind {
        /// Where.
        path: String,
        /// Type byte.
        kind: char,
    },
    /// Extended headers, names or sparse maps over their limit.
    #[error("{0} is over its limit")]
    TooLong(&'static str),
}
