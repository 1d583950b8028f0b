//! Pieces of disks, each kept once however many disks hold it.
//!
//! All chunks lie in one sparse file, in slots of 64 KiB. A disk is a read-only qcow2 whose header and tables lie in slots too, so
//! that QEMU reads it as it is, and the host's page cache holds a chunk once for all disks that share it. What is whole on disk is said
//! by manifests, which the store keeps beside: a slot that no manifest names is free, whatever it holds. Chunks are
//! synced before the manifest that names them is written, and go after it has gone.

mod arriving;
mod disk;
mod id;
mod manifest;
mod slots;
mod tables;
mod writer;

pub use disk::Disk;
pub(crate) use id::ChunkId;
pub(crate) use manifest::{Manifest, Part};
pub(crate) use tables::{DISK_SIZE_MAX, ENTRIES, TABLE_BYTES};
pub(crate) use writer::Writer;

use crate::ext4::PIECE;
use crate::store::lock;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use slots::Slots;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Bytes of a chunk, and of a slot: a piece of a file system.
pub(crate) const CHUNK: usize = PIECE as usize;
/// Slots that the file grows by.
const GROWTH: u32 = 1024;
/// Bytes that are left out where they are zero: a block of most file systems.
const BLOCK: usize = 4096;

/// Where a slot lies in the file, bytes.
fn slot_at(slot: u32) -> u64 {
    u64::from(slot) * CHUNK as u64
}

/// All chunks of a store. A clone is another handle.
#[derive(Debug, Clone)]
pub(crate) struct Chunks {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    file: File,
    index: Mutex<Index>,
    /// Told when a chunk has come that was missing.
    arrivals: Notify,
}

#[derive(Debug, Default)]
struct Index {
    slots: Slots,
    /// Length of the file.
    file_slots: u32,
    known: HashMap<ChunkId, Known>,
}

#[derive(Debug)]
struct Known {
    slot: u32,
    /// Manifests and writers that hold it; one that holds it twice counts twice.
    holders: u32,
    /// Whether its bytes are in the slot; else they are awaited.
    here: bool,
}

/// What is free if disks go, without letting them go.
#[derive(Debug)]
pub(crate) struct Trial {
    chunks: Chunks,
    released: HashMap<ChunkId, u32>,
}

impl Trial {
    /// Bytes that are free if this disk goes after those before it.
    pub(crate) fn release(&mut self, manifest: &Manifest) -> u64 {
        let index = lock(&self.chunks.shared.index);
        let mut free = 0;
        for part in &manifest.parts {
            let released = self.released.entry(part.id).or_default();
            *released += 1;
            free += u64::from(index.known.get(&part.id).is_some_and(|known| known.holders == *released));
        }
        free * CHUNK as u64
    }
}

impl Chunks {
    /// Opens the file, made if need be. Until [`Chunks::sweep`] it only learns what is in use, by [`Chunks::adopt`].
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        Ok(Self {
            shared: Arc::new(Shared { path: path.to_owned(), file, index: Mutex::default(), arrivals: Notify::new() }),
        })
    }

    /// Learns of a disk that was there before. `false`, and nothing is changed, if it says another thing than those before it.
    /// Of one that was `arriving`, chunks that no disk before it has are looked at; those that are not what they are called are awaited.
    pub(crate) fn adopt(&self, manifest: &Manifest, arriving: bool) -> bool {
        let mut index = lock(&self.shared.index);
        let own: Vec<u32> = std::iter::once(manifest.header).chain(manifest.tables.iter().copied()).collect();
        let fits = own.iter().all(|slot| !index.slots.is_taken(*slot))
            && manifest.parts.iter().all(|part| match index.known.get(&part.id) {
                Some(known) => known.slot == part.slot,
                None => !index.slots.is_taken(part.slot),
            });
        if !fits {
            return false;
        }
        for slot in own {
            index.slots.mark(slot);
        }
        for part in &manifest.parts {
            index.slots.mark(part.slot);
            let known = index.known.entry(part.id).or_insert_with(|| {
                let here = !arriving || self.read(part.slot).is_ok_and(|bytes| ChunkId::of(&bytes) == part.id);
                Known { slot: part.slot, holders: 0, here }
            });
            known.holders += 1;
        }
        true
    }

    /// Frees what no adopted disk names: what a kill left of disks that were never whole. Bytes of the ranges that were freed.
    pub(crate) fn sweep(&self) -> io::Result<u64> {
        let file = &self.shared.file;
        let end = {
            let mut index = lock(&self.shared.index);
            index.file_slots = index.slots.end();
            slot_at(index.file_slots)
        };
        let mut freed = file.metadata()?.len().saturating_sub(end);
        file.set_len(end)?;
        let mut at = 0;
        while let Some((from, to)) = next_data(file, at)? {
            let first = u32::try_from(from / CHUNK as u64).map_err(io::Error::other)?;
            let last = u32::try_from(to.div_ceil(CHUNK as u64)).map_err(io::Error::other)?;
            let lost: Vec<u32> = {
                let index = lock(&self.shared.index);
                (first..last).filter(|slot| !index.slots.is_taken(*slot)).collect()
            };
            freed += lost.len() as u64 * CHUNK as u64;
            lost.chunk_by(|a, b| a + 1 == *b).for_each(|run| {
                self.punch(run[0], run.len());
            });
            at = slot_at(last);
        }
        Ok(freed)
    }

    /// Begins a disk.
    pub(crate) fn writer(&self) -> Writer {
        Writer::new(self.clone())
    }

    /// A disk that is in the store.
    pub(crate) fn disk(&self, header: u32, size: u64) -> Disk {
        Disk::new(self.clone(), header, size)
    }

    /// Gives up what a disk holds. Its manifest must be gone.
    pub(crate) fn release(&self, manifest: &Manifest) {
        self.give_back(std::iter::once(manifest.header).chain(manifest.tables.iter().copied()).collect());
        let ids: Vec<ChunkId> = manifest.parts.iter().map(|part| part.id).collect();
        self.release_all(&ids);
    }

    /// Bytes of all chunks, as many as they take at most.
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.shared.index).known.len() as u64 * CHUNK as u64
    }

    /// To find out what would be free if disks went.
    pub(crate) fn trial(&self) -> Trial {
        Trial { chunks: self.clone(), released: HashMap::new() }
    }

    fn path(&self) -> &Path {
        &self.shared.path
    }

    fn file(&self) -> &File {
        &self.shared.file
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.shared.file.sync_data()
    }

    /// Puts a chunk into the store unless it is there, and holds it.
    fn put(&self, bytes: &[u8; CHUNK]) -> io::Result<(ChunkId, u32)> {
        let id = ChunkId::of(bytes);
        let (slot, here) = lock(&self.shared.index).hold(id, &self.shared.file)?;
        if here {
            return Ok((id, slot));
        }
        // Awaited until it is written. Whoever puts the same at the same time writes the same.
        match self.write(slot, bytes) {
            Ok(()) => {
                self.now_here(&id);
                Ok((id, slot))
            }
            Err(error) => {
                self.release_all(&[id]);
                Err(error)
            }
        }
    }

    /// Holds a chunk once more. Its slot.
    fn hold(&self, id: ChunkId) -> io::Result<u32> {
        lock(&self.shared.index).hold(id, &self.shared.file).map(|(slot, _)| slot)
    }

    /// Gives up one hold on each; those that nobody holds any more go.
    fn release_all(&self, ids: &[ChunkId]) {
        let mut gone = Vec::new();
        {
            let mut index = lock(&self.shared.index);
            for id in ids {
                if let Entry::Occupied(mut entry) = index.known.entry(*id) {
                    entry.get_mut().holders -= 1;
                    if entry.get().holders == 0 {
                        gone.push(entry.remove().slot);
                    }
                }
            }
        }
        self.give_back(gone);
    }

    fn take_for_tables(&self, count: usize) -> io::Result<(u32, Vec<u32>)> {
        let mut index = lock(&self.shared.index);
        let header = index.slots.take_header().ok_or_else(full)?;
        let mut tables = Vec::new();
        while tables.len() < count {
            match index.take_slot(&self.shared.file) {
                Ok(slot) => tables.push(slot),
                Err(error) => {
                    tables.iter().chain([&header]).for_each(|slot| index.slots.free(*slot));
                    return Err(error);
                }
            }
        }
        Ok((header, tables))
    }

    /// First the bytes go, then the slots are free: a chunk is written only where zeroes are.
    fn give_back(&self, mut slots: Vec<u32>) {
        slots.sort_unstable();
        // Slots that could not be emptied stay taken until the next start.
        let emptied = slots.chunk_by(|a, b| a + 1 == *b).filter(|run| self.punch(run[0], run.len()));
        let emptied: Vec<u32> = emptied.flatten().copied().collect();
        let mut index = lock(&self.shared.index);
        emptied.into_iter().for_each(|slot| index.slots.free(slot));
    }

    /// Whether the slots hold zeroes now.
    fn punch(&self, first: u32, count: usize) -> bool {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = fallocate(&self.shared.file, flags, slot_at(first), (count * CHUNK) as u64);
        // Where the host's file system makes no holes, zeroes do.
        let mut slots = first..first + count as u32;
        let emptied =
            punched.is_ok() || slots.all(|slot| self.shared.file.write_all_at(&[0; CHUNK], slot_at(slot)).is_ok());
        if !emptied {
            tracing::warn!(first, count, "chunks that are not needed cannot be removed");
        }
        emptied
    }

    /// The chunk in a slot.
    pub(crate) fn read(&self, slot: u32) -> io::Result<Box<[u8; CHUNK]>> {
        let mut bytes = Box::new([0; CHUNK]);
        self.shared.file.read_exact_at(&mut bytes[..], slot_at(slot))?;
        Ok(bytes)
    }

    /// Writes to a slot that holds zeroes; blocks of zeroes are left out and take no space.
    fn write(&self, slot: u32, bytes: &[u8]) -> io::Result<()> {
        let mut at = slot_at(slot);
        let blocks: Vec<&[u8]> = bytes.chunks(BLOCK).collect();
        let mut rest = bytes;
        for run in blocks.chunk_by(|a, b| is_zero(a) == is_zero(b)) {
            let (now, later) = rest.split_at(run.iter().map(|block| block.len()).sum());
            if !is_zero(now) {
                self.shared.file.write_all_at(now, at)?;
            }
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }
}

impl Index {
    /// Holds a chunk, with a slot of its own if it is new. Its slot, and whether it is here.
    fn hold(&mut self, id: ChunkId, file: &File) -> io::Result<(u32, bool)> {
        if let Some(known) = self.known.get_mut(&id) {
            known.holders += 1;
            return Ok((known.slot, known.here));
        }
        let slot = self.take_slot(file)?;
        self.known.insert(id, Known { slot, holders: 1, here: false });
        Ok((slot, false))
    }

    /// Takes a free slot, and makes the file long enough to hold it.
    fn take_slot(&mut self, file: &File) -> io::Result<u32> {
        let slot = self.slots.take().ok_or_else(full)?;
        if slot < self.file_slots {
            return Ok(slot);
        }
        let slots = slot.saturating_add(GROWTH);
        match file.set_len(slot_at(slots)) {
            Ok(()) => {
                self.file_slots = slots;
                Ok(slot)
            }
            Err(error) => {
                self.slots.free(slot);
                Err(error)
            }
        }
    }
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the image store has no slot left")
}

/// The next range that is no hole, from `at` on.
fn next_data(file: &File, at: u64) -> io::Result<Option<(u64, u64)>> {
    let from = match seek(file, SeekFrom::Data(at)) {
        Ok(from) => from,
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some((from, seek(file, SeekFrom::Hole(from))?)))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
