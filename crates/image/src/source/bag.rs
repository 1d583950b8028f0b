//! Named files in a directory or in a tar.

use super::OpenLayer;
use super::archive::ArchiveError;
use crate::convert::decompressed;
use crate::tar::{EntryKind, Reader, TarError};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files that an image archive may hold.
const FILES_MAX: usize = 100_000;
/// Links from one layer of an old docker-archive to another that are followed.
const LINKS_FOLLOWED_MAX: usize = 8;

/// Where the parts of an image are.
pub(super) enum Bag {
    /// Files of a directory.
    Directory(PathBuf),
    /// Parts of an uncompressed tar.
    Tar { path: PathBuf, file: Arc<File>, entries: HashMap<Vec<u8>, Place> },
}

/// Where an entry of a tar is.
pub(super) enum Place {
    Data { offset: u64, len: u64 },
    Link(Vec<u8>),
}

impl Bag {
    /// A directory.
    pub(super) fn directory(path: &Path) -> Self {
        Self::Directory(path.to_owned())
    }

    /// A tar; a compressed one is unpacked to `scratch` first.
    pub(super) fn tar(path: &Path, scratch: &Path) -> Result<Self, ArchiveError> {
        let read = |error| ArchiveError::Read { path: path.to_owned(), error };
        let source = decompressed(File::open(path).map_err(read)?).map_err(read)?;
        let plain = if source.compressed { scratch } else { path };
        if source.compressed {
            let mut out = File::create(scratch).map_err(read)?;
            let mut reader = source.reader;
            io::copy(&mut reader, &mut out).map_err(read)?;
        }
        let file = File::open(plain).map_err(read)?;
        let entries = index(&file)?;
        Ok(Self::Tar { path: path.to_owned(), file: Arc::new(file), entries })
    }

    /// A small file; `None` if it is not there.
    pub(super) fn read(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>, ArchiveError> {
        let Some((len, open)) = self.open(name)? else { return Ok(None) };
        if len > max {
            return Err(ArchiveError::TooLarge(name.to_owned()));
        }
        let mut bytes = Vec::new();
        let done = open().and_then(|r| r.take(max).read_to_end(&mut bytes));
        done.map_err(|error| ArchiveError::Read { path: self.path(name), error })?;
        Ok(Some(bytes))
    }

    /// Length and content of a file; `None` if it is not there.
    pub(super) fn open(&self, name: &str) -> Result<Option<(u64, OpenLayer)>, ArchiveError> {
        match self {
            Self::Directory(dir) => open_file(dir.join(name)),
            Self::Tar { file, entries, .. } => {
                let Some((offset, len)) = find(entries, name.as_bytes()) else { return Ok(None) };
                let slice = Slice { file: file.clone(), at: offset, end: offset + len };
                Ok(Some((len, Box::new(move || Ok(Box::new(slice))))))
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::Directory(dir) => dir.join(name),
            Self::Tar { path, .. } => path.clone(),
        }
    }
}

fn open_file(path: PathBuf) -> Result<Option<(u64, OpenLayer)>, ArchiveError> {
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ArchiveError::Read { path, error }),
    };
    // A pipe would never end.
    if !metadata.is_file() {
        return Ok(None);
    }
    Ok(Some((metadata.len(), Box::new(move || Ok(Box::new(File::open(path)?))))))
}

fn index(file: &File) -> Result<HashMap<Vec<u8>, Place>, ArchiveError> {
    let mut entries = HashMap::new();
    let mut reader = Reader::new(file);
    while let Some(entry) = reader.next_entry()? {
        let name = normal(&entry.path, b"");
        let place = match entry.kind {
            EntryKind::File => {
                let Some((offset, len)) = reader.stored_range() else { continue };
                Place::Data { offset, len }
            }
            EntryKind::Symlink(target) => Place::Link(normal(&target, &name)),
            EntryKind::HardLink(target) => Place::Link(normal(&target, b"")),
            _ => continue,
        };
        if entries.len() >= FILES_MAX {
            return Err(TarError::TooLong("the list of files").into());
        }
        entries.insert(name, place);
    }
    Ok(entries)
}

fn find(entries: &HashMap<Vec<u8>, Place>, name: &[u8]) -> Option<(u64, u64)> {
    let mut name = normal(name, b"");
    for _ in 0..LINKS_FOLLOWED_MAX {
        match entries.get(&name)? {
            Place::Data { offset, len } => return Some((*offset, *len)),
            Place::Link(target) => name.clone_from(target),
        }
    }
    None
}

/// `path` seen from the directory of `from`, without `.` and `..`. Only ever a key of the index.
fn normal(path: &[u8], from: &[u8]) -> Vec<u8> {
    let dir = from.iter().rposition(|b| *b == b'/').map_or(&b""[..], |slash| &from[..slash]);
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in dir.split(|b| *b == b'/').chain(path.split(|b| *b == b'/')) {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// A part of a file, read without moving the file's own position.
struct Slice {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for Slice {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let want = buf.len().min(left);
        let len = self.file.read_at(&mut buf[..want], self.at)?;
        if len == 0 && want > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += len as u64;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_between_layers() {
        let mut entries = HashMap::new();
        entries.insert(b"a/layer.tar".to_vec(), Place::Data { offset: 5, len: 7 });
        entries.insert(b"b/layer.tar".to_vec(), Place::Link(normal(b"../a/layer.tar", b"b/layer.tar")));
        entries.insert(b"loop".to_vec(), Place::Link(b"loop".to_vec()));
        assert_eq!(find(&entries, b"./b/layer.tar"), Some((5, 7)));
        assert_eq!(find(&entries, b"loop"), None);
        assert_eq!(find(&entries, b"missing"), None);
    }
}
