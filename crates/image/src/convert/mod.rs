//! Layers to a root file system: one pass over each layer, data straight to its final place.

mod compression;
mod hashing;
mod layer;

pub use compression::{Decompressed, decompressed};
pub use hashing::{HashingReader, Sha256Hex};
pub use layer::{ApplyError, Layer, Marks};

use crate::ext4::{
    ACL_ACCESS, Builder, Ext4Error, FileData, Kind, OpenFile, Options, Placement, Summary, Target, Xattr, follow_mode,
    xattr_supported,
};
use crate::tar::{Entry, EntryKind, Piece, Reader, TarError};
use std::io::{self, Read};

/// A layer could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The tar is damaged or cannot be read.
    #[error(transparent)]
    Tar(#[from] TarError),
    /// An entry that no image may have.
    #[error("{path:?}: {problem}")]
    Entry {
        /// Path of the entry, made printable.
        path: String,
        /// What is wrong.
        problem: ApplyError,
    },
    /// The output failed.
    #[error("writing the disk failed")]
    Write(#[source] io::Error),
    /// The file system could not be made.
    #[error(transparent)]
    Ext4(#[from] Ext4Error),
}

/// A root file system that grows layer by layer.
#[derive(Debug)]
pub struct Root<T> {
    builder: Builder<T>,
    layers: u16,
}

impl<T: Target> Root<T> {
    /// Starts an empty one in an empty target.
    pub fn new(target: T) -> Self {
        Self { builder: Builder::new(target), layers: 0 }
    }

    /// Applies one uncompressed tar on top of what is there and reads it to its very end.
    pub fn apply(&mut self, tar: impl Read, marks: Marks) -> Result<(), ConvertError> {
        let mut reader = Reader::new(tar);
        let mut parent = Vec::new();
        self.builder.start_layer();
        while let Some(entry) = reader.next_entry()? {
            if parent_of(&entry.path) != parent {
                self.builder.start_directory();
                parent = parent_of(&entry.path).to_vec();
            }
            let data = match entry.kind {
                EntryKind::File => self.copy(&mut reader)?,
                _ => FileData::default(),
            };
            let layer = Layer { tree: self.builder.tree_mut(), number: self.layers, marks };
            let path = entry.path.clone();
            add(layer, entry, data).map_err(|problem| ConvertError::Entry { path: printable(&path), problem })?;
        }
        self.layers += 1;
        Ok(reader.drain()?)
    }

    /// Writes all metadata and gives the target back.
    pub fn finish(self, options: &Options) -> Result<(T, Summary), ConvertError> {
        Ok(self.builder.finish(options)?)
    }

    fn copy<R: Read>(&mut self, reader: &mut Reader<R>) -> Result<FileData, ConvertError> {
        let size = reader.file_size();
        let mut file = OpenFile::new(Placement::of_size(size), size);
        while let Some(piece) = reader.next_piece()? {
            match piece {
                Piece::Bytes(bytes) => self.builder.append(&mut file, bytes),
                Piece::Hole(len) => self.builder.append_hole(&mut file, len),
            }
            .map_err(ConvertError::Write)?;
        }
        self.builder.end(file).map_err(ConvertError::Write)
    }
}

fn add(mut layer: Layer<'_>, entry: Entry, data: FileData) -> Result<(), ApplyError> {
    let kind = match entry.kind {
        EntryKind::HardLink(target) => return layer.hard_link(&entry.path, &target, entry.meta),
        EntryKind::File => Kind::File(data),
        EntryKind::Dir => Kind::dir(),
        EntryKind::Symlink(target) => Kind::Symlink(target.into()),
        EntryKind::CharDevice(major, minor) => Kind::CharDevice(major, minor),
        EntryKind::BlockDevice(major, minor) => Kind::BlockDevice(major, minor),
        EntryKind::Fifo => Kind::Fifo,
    };
    let xattrs = kept_xattrs(entry.xattrs, &kind, entry.meta.mode);
    layer.put(&entry.path, entry.meta, xattrs, kind)
}

/// Attributes that Linux would let a file of this kind have; Docker drops the others too.
fn kept_xattrs(xattrs: Vec<Xattr>, kind: &Kind, mode: u16) -> Option<Box<[Xattr]>> {
    let user = matches!(kind, Kind::File(_) | Kind::Dir(_));
    let acl = !matches!(kind, Kind::Symlink(_));
    let mut kept: Vec<Xattr> = xattrs
        .into_iter()
        .filter(|x| xattr_supported(&x.name))
        .filter(|x| (user || !x.name.starts_with(b"user.")) && (acl || !x.name.starts_with(b"system.")))
        .collect();
    for access in kept.iter_mut().filter(|x| *x.name == *ACL_ACCESS) {
        follow_mode(&mut access.value, mode);
    }
    if kept.is_empty() { None } else { Some(kept.into()) }
}

fn parent_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
    &path[..end]
}

fn printable(path: &[u8]) -> String {
    const SHOWN_MAX: usize = 200;
    let cut = &path[..path.len().min(SHOWN_MAX)];
    String::from_utf8_lossy(cut).into_owned()
}
