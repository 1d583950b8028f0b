//! Chunks that a disk names before they are here.

use super::{CHUNK, ChunkId, Chunks, Manifest, Part, slot_at};
use crate::store::lock;
use std::io;
use std::os::unix::fs::FileExt;

impl Chunks {
    /// Makes a disk of chunks by name, with room for those that are not here. Synced; to be kept or released like one that was written.
    pub(crate) fn assemble(&self, size: u64, parts: impl Iterator<Item = (u32, ChunkId)>) -> io::Result<Manifest> {
        let mut expected: Vec<Part> = Vec::new();
        let made = self.expect_all(parts, &mut expected).and_then(|()| self.write_tables(size, expected.clone()));
        made.inspect_err(|_| self.release_all(&expected.iter().map(|part| part.id).collect::<Vec<_>>()))
    }

    fn expect_all(&self, parts: impl Iterator<Item = (u32, ChunkId)>, expected: &mut Vec<Part>) -> io::Result<()> {
        let mut index = lock(&self.shared.index);
        for (number, id) in parts {
            let (slot, _) = index.hold(id, &self.shared.file)?;
            expected.push(Part { index: number, slot, id });
        }
        Ok(())
    }

    /// Takes in a chunk that came; `false` if it is not what its name says. One that nobody holds any more is dropped.
    pub(crate) fn arrived(&self, id: &ChunkId, bytes: &[u8; CHUNK]) -> io::Result<bool> {
        if ChunkId::of(bytes) != *id {
            return Ok(false);
        }
        let slot = {
            let mut index = lock(&self.shared.index);
            match index.known.get_mut(id) {
                // Held while it is written, so that its slot stays its own.
                Some(known) if !known.here => {
                    known.holders += 1;
                    known.slot
                }
                _ => return Ok(true),
            }
        };
        let written = self.write(slot, bytes);
        if written.is_ok() {
            self.now_here(id);
        }
        self.release_all(&[*id]);
        written.map(|()| true)
    }

    /// Whether a chunk is here.
    pub(crate) fn is_here(&self, id: &ChunkId) -> bool {
        lock(&self.shared.index).known.get(id).is_some_and(|known| known.here)
    }

    /// Waits until a chunk is here.
    pub(crate) async fn until_here(&self, id: &ChunkId) {
        loop {
            let mut changed = std::pin::pin!(self.shared.arrivals.notified());
            changed.as_mut().enable();
            if self.is_here(id) {
                return;
            }
            changed.await;
        }
    }

    /// Reads within the chunk in a slot.
    pub(crate) fn read_part(&self, slot: u32, within: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.shared.file.read_exact_at(buffer, slot_at(slot) + within)
    }

    pub(super) fn now_here(&self, id: &ChunkId) {
        if let Some(known) = lock(&self.shared.index).known.get_mut(id) {
            known.here = true;
        }
        self.shared.arrivals.notify_waiters();
    }
}
