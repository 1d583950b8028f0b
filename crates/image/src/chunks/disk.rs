use super::tables::{L1_OFFSET_AT, OFFSET_MASK, TABLE_BYTES};
use super::{CHUNK, Chunks, slot_at};
use crate::ext4::grow::ReadAt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A disk in the store: a read-only qcow2 that starts within the file of all chunks. Readable while its image's lease lives.
#[derive(Debug, Clone)]
pub struct Disk {
    chunks: Chunks,
    header: u32,
    size: u64,
}

impl Disk {
    pub(crate) fn new(chunks: Chunks, header: u32, size: u64) -> Self {
        Self { chunks, header, size }
    }

    /// The file of all chunks.
    pub fn file(&self) -> &Path {
        self.chunks.path()
    }

    /// Where in that file the disk's qcow2 header lies, bytes. QEMU's `raw` driver with this offset, and `qcow2` on it, read the disk.
    pub fn offset(&self) -> u64 {
        slot_at(self.header)
    }

    /// Length of the disk, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Writes the disk as a plain sparse file at `to`, which must not exist.
    pub fn export(&self, to: &Path) -> io::Result<()> {
        let out = File::create_new(to)?;
        let mut buffer = vec![0; CHUNK];
        for at in (0..self.size).step_by(CHUNK) {
            if let Some(data) = self.data_at(at)? {
                self.chunks.file().read_exact_at(&mut buffer, data)?;
                out.write_all_at(&buffer, at)?;
            }
        }
        out.set_len(self.size)
    }

    /// Parts of the disk that hold data, rising and apart, bytes; between them are zeroes. Known even where the data still arrives.
    pub fn data_ranges(&self) -> io::Result<Vec<Range<u64>>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for at in (0..self.size).step_by(CHUNK) {
            let end = self.size.min(at + CHUNK as u64);
            match (self.data_at(at)?, ranges.last_mut()) {
                (None, _) => {}
                (Some(_), Some(last)) if last.end == at => last.end = end,
                (Some(_), _) => ranges.push(at..end),
            }
        }
        Ok(ranges)
    }

    /// Where the chunk that holds byte `at` lies in the file; `None` if it is all zeroes.
    fn data_at(&self, at: u64) -> io::Result<Option<u64>> {
        let (file, base) = (self.chunks.file(), self.offset());
        let word = |at: u64| {
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at)?;
            io::Result::Ok(u64::from_be_bytes(word) & OFFSET_MASK)
        };
        let l1 = base + word(base + L1_OFFSET_AT as u64)?;
        let l2 = match word(l1 + 8 * (at / TABLE_BYTES))? {
            0 => return Ok(None),
            offset => base + offset,
        };
        let data = word(l2 + 8 * (at % TABLE_BYTES / CHUNK as u64))?;
        Ok((data != 0).then_some(base + data))
    }
}

impl ReadAt for Disk {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let within = at % CHUNK as u64;
        let len = (self.size.saturating_sub(at)).min(CHUNK as u64 - within).min(buffer.len() as u64);
        let buffer = &mut buffer[..len as usize];
        match self.data_at(at)? {
            _ if buffer.is_empty() => {}
            Some(data) => self.chunks.file().read_exact_at(buffer, data + within)?,
            None => buffer.fill(0),
        }
        Ok(buffer.len())
    }
}
