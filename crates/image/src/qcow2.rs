//! One layer of a disk: a qcow2, version 3, that a VMM wrote over what lies below. Only read, and read as hostile: the VMM may be in the
//! hands of its guest. Format: QEMU's `docs/interop/qcow2.txt`.
//!
//! What it says that it lies on is not looked at: whoever reads it knows.

use crate::chunks::{CHUNK, DISK_SIZE_MAX, ENTRIES, TABLE_BYTES};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

const MAGIC: u32 = 0x5146_49FB;
const VERSION: u32 = 3;
const HEADER_LEN: usize = 104;
const CLUSTER_BITS: u32 = CHUNK.trailing_zeros();
const CLUSTER: u64 = CHUNK as u64;
/// Longest file, bytes: each cluster of the largest disk, with its tables, and room for what was freed.
const FILE_LEN_MAX: u64 = 2 * DISK_SIZE_MAX;
/// Bits of an entry that are an offset.
const OFFSET_MASK: u64 = 0x00FF_FFFF_FFFF_FE00;
/// Flag of an entry: its cluster has one user.
const COPIED: u64 = 1 << 63;
/// Flag of an entry of the second level: reads as zeroes, whatever it leads to.
const ZERO: u64 = 1;

/// What a layer holds of one cluster of the disk, [`CLUSTER`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cluster {
    /// Nothing: what lies below shows.
    Absent,
    /// Zeroes.
    Zero,
    /// Bytes that lie at this offset of the file.
    Data(u64),
}

/// A layer cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The file system refused.
    #[error("read a layer of the disk")]
    Io(#[from] io::Error),
    /// It is not what a VMM of ours leaves.
    #[error("a layer of the disk is damaged: {0}")]
    Malformed(&'static str),
}

/// Where a layer is read from.
pub trait Source {
    /// Length, bytes.
    fn length(&self) -> io::Result<u64>;
    /// As [`FileExt::read_at`].
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
}

impl Source for std::fs::File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, at)
    }
}

impl Source for &[u8] {
    fn length(&self) -> io::Result<u64> {
        Ok((**self).len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let from = usize::try_from(at).unwrap_or(usize::MAX).min((**self).len());
        (&self[from..]).read(buffer)
    }
}

/// A layer.
#[derive(Debug)]
pub struct Layer<S> {
    source: S,
    size: u64,
    /// Where the tables of the second level lie; 0 where there is none.
    tables: Vec<u64>,
    /// One bit for each cluster of the file: whether an entry has led to it.
    used: Vec<u64>,
}

impl<S: Source> Layer<S> {
    /// Reads the header and the table of the first level.
    pub fn open(source: S) -> Result<Self, LayerError> {
        let len = source.length()?;
        let mut header = [0; HEADER_LEN];
        fill(&source, &mut header, 0)?;
        let (size, first_level) = check_header(&header, len)?;
        let mut table = vec![0; 8 * size.div_ceil(TABLE_BYTES) as usize];
        fill(&source, &mut table, first_level)?;
        let mut layer = Self { source, size, tables: Vec::new(), used: vec![0; len.div_ceil(CLUSTER * 64) as usize] };
        for entry in words(&table) {
            let at = layer.take(entry)?;
            layer.tables.push(at);
        }
        Ok(layer)
    }

    /// Length of the disk, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Tables of the second level, each for [`ENTRIES`] clusters of the disk.
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// What table `number` says of each of its clusters; `None` if it says nothing. To be asked once for each.
    pub fn table(&mut self, number: usize) -> Result<Option<Vec<Cluster>>, LayerError> {
        let Some(at) = self.tables.get(number).copied().filter(|at| *at != 0) else { return Ok(None) };
        let mut table = vec![0; 8 * ENTRIES];
        fill(&self.source, &mut table, at)?;
        words(&table).map(|entry| self.cluster(entry)).collect::<Result<_, _>>().map(Some)
    }

    /// The bytes at an offset that [`Layer::table`] gave; zeroes behind the end of the file.
    pub fn read(&self, at: u64) -> io::Result<Box<[u8; CHUNK]>> {
        let mut bytes = Box::new([0; CHUNK]);
        fill(&self.source, &mut bytes[..], at)?;
        Ok(bytes)
    }

    fn cluster(&mut self, entry: u64) -> Result<Cluster, LayerError> {
        let is_zero = entry & ZERO != 0;
        match self.take(entry & !ZERO)? {
            _ if is_zero => Ok(Cluster::Zero),
            0 => Ok(Cluster::Absent),
            at => Ok(Cluster::Data(at)),
        }
    }

    /// Where an entry leads to, 0 being nowhere. Without snapshots within the file each cluster has one user, which bounds what can be read.
    fn take(&mut self, entry: u64) -> Result<u64, LayerError> {
        let at = entry & OFFSET_MASK;
        if entry & !(OFFSET_MASK | COPIED) != 0 || !at.is_multiple_of(CLUSTER) {
            return Err(LayerError::Malformed("an entry of a table has unknown bits"));
        }
        if at == 0 {
            return Ok(0);
        }
        let (word, bit) = ((at / CLUSTER / 64) as usize, 1 << (at / CLUSTER % 64));
        match self.used.get_mut(word) {
            Some(word) if *word & bit == 0 => *word |= bit,
            Some(_) => return Err(LayerError::Malformed("two entries lead to the same place")),
            None => return Err(LayerError::Malformed("an entry leads behind the end of the file")),
        }
        Ok(at)
    }
}

/// The size of the disk, and where the table of the first level is.
fn check_header(header: &[u8; HEADER_LEN], len: u64) -> Result<(u64, u64), LayerError> {
    let narrow = |at: usize| header[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
    let wide = |at: usize| u64::from(narrow(at)) << 32 | u64::from(narrow(at + 4));
    let (size, first_level) = (wide(24), wide(40));
    let rules = [
        (narrow(0) == MAGIC && narrow(4) == VERSION, "it is no qcow2 of version 3"),
        (narrow(20) == CLUSTER_BITS, "its clusters are not of 64 KiB"),
        (size > 0 && size.is_multiple_of(512) && size <= DISK_SIZE_MAX, "its disk has an impossible size"),
        (narrow(32) == 0, "it is encrypted"),
        (u64::from(narrow(36)) >= size.div_ceil(TABLE_BYTES), "its first table is too short"),
        (first_level.is_multiple_of(CLUSTER) && first_level > 0 && first_level < len, "its first table is missing"),
        (narrow(60) == 0, "it has snapshots within"),
        (wide(72) == 0, "it needs features that a VMM of ours does not use"),
        (len <= FILE_LEN_MAX, "it is too long"),
    ];
    match rules.iter().find(|(holds, _)| !holds) {
        None => Ok((size, first_level)),
        Some((_, problem)) => Err(LayerError::Malformed(problem)),
    }
}

/// Fills the whole buffer, with zeroes behind the end.
fn fill(source: &impl Source, buffer: &mut [u8], at: u64) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read_at(&mut buffer[filled..], at.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[filled..].fill(0);
    Ok(())
}

fn words(table: &[u8]) -> impl Iterator<Item = u64> {
    table.chunks_exact(8).map(|word| word.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
#[path = "qcow2_tests.rs"]
mod tests;
