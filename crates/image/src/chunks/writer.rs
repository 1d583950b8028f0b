use super::manifest::{Manifest, Part};
use super::tables::{self, DISK_SIZE_MAX, ENTRIES, TABLE_BYTES};
use super::{CHUNK, ChunkId, Chunks};
use crate::ext4::Target;
use std::collections::BTreeMap;
use std::io;

/// Chunks of a disk that are kept in memory because more may be written to them.
const OPEN_MAX: usize = 64;

type Bytes = Box<[u8; CHUNK]>;

/// A disk that is being written. Unless it is committed, what it put into the store goes with it.
#[derive(Debug)]
pub(crate) struct Writer {
    chunks: Chunks,
    /// In the store, by index.
    stored: BTreeMap<u32, (ChunkId, u32)>,
    /// Not written to their end yet.
    open: BTreeMap<u32, Bytes>,
    size: u64,
}

impl Writer {
    pub(super) fn new(chunks: Chunks) -> Self {
        Self { chunks, stored: BTreeMap::new(), open: BTreeMap::new(), size: 0 }
    }

    /// Writes header and tables, and syncs everything.
    pub(crate) fn commit(mut self) -> io::Result<Manifest> {
        let parts: Vec<Part> =
            self.stored.iter().map(|(index, (id, slot))| Part { index: *index, slot: *slot, id: *id }).collect();
        let manifest = self.chunks.write_tables(self.size, parts)?;
        // From now on the manifest holds what was stored.
        self.stored.clear();
        Ok(manifest)
    }

    /// Takes over a chunk of another disk, which must be held meanwhile.
    pub(crate) fn share(&mut self, part: &Part) -> io::Result<()> {
        self.drop_stored(part.index);
        let slot = self.chunks.hold(part.id)?;
        self.stored.insert(part.index, (part.id, slot));
        Ok(())
    }

    fn seal(&mut self, index: u32, bytes: &[u8; CHUNK]) -> io::Result<()> {
        self.drop_stored(index);
        if bytes.iter().any(|byte| *byte != 0) {
            let stored = self.chunks.put(bytes)?;
            self.stored.insert(index, stored);
        }
        Ok(())
    }

    fn drop_stored(&mut self, index: u32) {
        if let Some((id, _)) = self.stored.remove(&index) {
            self.chunks.release_all(&[id]);
        }
    }

    /// Writes within one chunk.
    fn write_part(&mut self, index: u32, within: usize, part: &[u8]) -> io::Result<()> {
        if let Ok(whole) = <&[u8; CHUNK]>::try_from(part) {
            self.open.remove(&index);
            return self.seal(index, whole);
        }
        let mut bytes = match (self.open.remove(&index), self.stored.get(&index)) {
            (Some(bytes), _) => bytes,
            (None, Some((_, slot))) => self.chunks.read(*slot)?,
            (None, None) => Box::new([0; CHUNK]),
        };
        let end = within + part.len();
        bytes[within..end].copy_from_slice(part);
        if end == CHUNK {
            return self.seal(index, &bytes);
        }
        self.open.insert(index, bytes);
        match self.open.len() {
            // Writes rise, so that the lowest is the one that waits the longest.
            OPEN_MAX.. => self.seal_lowest(),
            _ => Ok(()),
        }
    }

    fn seal_lowest(&mut self) -> io::Result<()> {
        match self.open.pop_first() {
            Some((index, bytes)) => self.seal(index, &bytes),
            None => Ok(()),
        }
    }
}

impl Target for Writer {
    fn write_at(&mut self, at: u64, mut bytes: &[u8]) -> io::Result<()> {
        if at + bytes.len() as u64 > DISK_SIZE_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the disk is larger than the store can hold"));
        }
        let mut at = at;
        while !bytes.is_empty() {
            let within = (at % CHUNK as u64) as usize;
            let (part, rest) = bytes.split_at(bytes.len().min(CHUNK - within));
            self.write_part((at / CHUNK as u64) as u32, within, part)?;
            at += part.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// Chunks that lie there whole go; others keep what they hold, and stay equal to those of disks that still need it.
    fn forget(&mut self, at: u64, len: u64) {
        let (first, end) = (at.div_ceil(CHUNK as u64), (at + len) / CHUNK as u64);
        for index in first..end {
            self.open.remove(&(index as u32));
            self.drop_stored(index as u32);
        }
    }

    fn end(&mut self, size: u64) -> io::Result<()> {
        while !self.open.is_empty() {
            self.seal_lowest()?;
        }
        self.size = size;
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let ids: Vec<ChunkId> = std::mem::take(&mut self.stored).into_values().map(|(id, _)| id).collect();
        self.chunks.release_all(&ids);
    }
}

impl Chunks {
    /// Puts header and tables of a disk beside its chunks, and syncs everything. On an error the chunks stay held by the caller.
    pub(super) fn write_tables(&self, size: u64, parts: Vec<Part>) -> io::Result<Manifest> {
        let mut manifest = Manifest { size, header: 0, tables: Vec::new(), parts };
        let count = 1 + size.div_ceil(TABLE_BYTES) as usize;
        (manifest.header, manifest.tables) = self.take_for_tables(count)?;
        let written = self.fill_tables(&manifest).and_then(|()| self.sync());
        match written {
            Ok(()) => Ok(manifest),
            Err(error) => {
                self.give_back(std::iter::once(manifest.header).chain(manifest.tables).collect());
                Err(error)
            }
        }
    }

    fn fill_tables(&self, manifest: &Manifest) -> io::Result<()> {
        let Some((l1, l2s)) = manifest.tables.split_first() else { return Ok(()) };
        self.write(*l1, &tables::table(manifest.header, l2s.iter().copied().enumerate()))?;
        for (number, slot) in l2s.iter().enumerate() {
            let first = (number * ENTRIES) as u32;
            let from = manifest.parts.partition_point(|part| part.index < first);
            let to = manifest.parts.partition_point(|part| u64::from(part.index) < u64::from(first) + ENTRIES as u64);
            let entries = manifest.parts[from..to].iter().map(|part| ((part.index - first) as usize, part.slot));
            self.write(*slot, &tables::table(manifest.header, entries))?;
        }
        self.write(manifest.header, &tables::header(manifest.header, *l1, manifest.size))
    }
}
