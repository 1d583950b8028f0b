//! Streams blocks to the output, front to back, in large writes.

use super::alloc::{Cursor, Run};
use super::extent::FILE_BLOCKS_MAX;
use super::layout::{BLOCK, BLOCKS_MAX, PIECE, blocks_for};
use super::target::Target;
use super::tree::FileData;
use std::io;

/// Bytes gathered before a write.
const WRITE_LEN: usize = 1 << 20;
/// Largest file, bytes.
const FILE_BYTES_MAX: u64 = FILE_BLOCKS_MAX * BLOCK as u64;

/// Gathers consecutive bytes into large writes.
#[derive(Debug)]
pub(super) struct Output<T> {
    target: T,
    at: u64,
    pending: Vec<u8>,
    written: u64,
}

impl<T: Target> Output<T> {
    fn new(target: T) -> Self {
        Self { target, at: 0, pending: Vec::with_capacity(WRITE_LEN), written: 0 }
    }

    /// Writes `bytes` at byte `at`; cheap when it follows what came before.
    pub(super) fn write_at(&mut self, at: u64, mut bytes: &[u8]) -> io::Result<()> {
        if at != self.at + self.pending.len() as u64 {
            self.flush()?;
            self.at = at;
        }
        while !bytes.is_empty() {
            let room = WRITE_LEN - self.pending.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            if self.pending.is_empty() && now.len() == WRITE_LEN {
                self.write(now)?;
            } else {
                self.pending.extend_from_slice(now);
                if self.pending.len() == WRITE_LEN {
                    self.flush()?;
                }
            }
            bytes = later;
        }
        Ok(())
    }

    /// Writes what is pending and gives the target back, with the number of bytes written.
    pub(super) fn finish(mut self) -> io::Result<(T, u64)> {
        self.flush()?;
        Ok((self.target, self.written))
    }

    fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let done = self.write(&pending);
        self.pending = pending;
        self.pending.clear();
        done
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.target.write_at(self.at, bytes)?;
        self.at += bytes.len() as u64;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

/// Where the data of a file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// Right after what came before.
    #[default]
    Dense,
    /// Into a piece of the disk that it shares with the small files around it.
    Shared,
    /// From the start of a piece on, so that equal files make equal pieces wherever they lie.
    Aligned,
}

impl Placement {
    /// For disks that are to share pieces with others: how a file of so many bytes is placed.
    pub fn of_size(bytes: u64) -> Self {
        if bytes < PIECE { Self::Shared } else { Self::Aligned }
    }
}

/// A file whose data arrives.
#[derive(Debug, Default)]
pub struct OpenFile {
    data: FileData,
    placement: Placement,
    /// Bytes that are expected in all; more or fewer may come.
    expected: u64,
    /// Blocks that wait for its data.
    reserved: Option<Run>,
    /// Where the next byte of the current block goes, and how many more fit.
    at: u64,
    room: u64,
}

impl OpenFile {
    /// A file that will have about `expected` bytes.
    pub fn new(placement: Placement, expected: u64) -> Self {
        Self { placement, expected, ..Self::default() }
    }
}

/// Places file data on free blocks and writes it.
#[derive(Debug)]
pub(super) struct DataWriter<T> {
    /// The output.
    pub out: Output<T>,
    /// What is free.
    pub cursor: Cursor,
}

impl<T: Target> DataWriter<T> {
    /// A writer into an empty target.
    pub(super) fn new(target: T) -> Self {
        Self { out: Output::new(target), cursor: Cursor::new() }
    }

    /// Appends `bytes` to `file`. Data of different files must not be interleaved if the output is to be sequential.
    pub(super) fn append(&mut self, file: &mut OpenFile, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if file.room == 0 {
                self.start_run(file, bytes.len())?;
            }
            let len = bytes.len().min(usize::try_from(file.room).unwrap_or(usize::MAX));
            let (now, later) = bytes.split_at(len);
            self.out.write_at(file.at, now)?;
            file.at += len as u64;
            file.room -= len as u64;
            file.data.size += len as u64;
            bytes = later;
        }
        Ok(())
    }

    /// Appends `len` zeroes; whole blocks of them take no space.
    pub(super) fn append_hole(&mut self, file: &mut OpenFile, len: u64) -> io::Result<()> {
        let end = file.data.size.checked_add(len).filter(|end| *end < FILE_BYTES_MAX).ok_or_else(too_large)?;
        let in_block = file.room.min(len);
        self.append_zeroes(file, in_block)?;
        if end > file.data.size {
            let tail = end % BLOCK as u64;
            file.data.size = end - tail;
            file.room = 0;
            self.give_back(file);
            // A file that ends in a hole needs no last block; if data follows, it starts within this one.
            self.append_zeroes(file, tail)?;
        }
        Ok(())
    }

    /// Ends `file`: pads its last block.
    pub(super) fn end(&mut self, mut file: OpenFile) -> io::Result<FileData> {
        let size = file.data.size;
        let padding = file.room;
        self.append_zeroes(&mut file, padding)?;
        self.give_back(&mut file);
        file.data.size = size;
        Ok(file.data)
    }

    /// Writes one block of metadata and says where it is.
    pub(super) fn put_block(&mut self, block: &[u8]) -> io::Result<u64> {
        let at = self.cursor.take(1).start;
        self.out.write_at(at * BLOCK as u64, block)?;
        Ok(at)
    }

    fn append_zeroes(&mut self, file: &mut OpenFile, len: u64) -> io::Result<()> {
        const ZEROES: [u8; BLOCK] = [0; BLOCK];
        debug_assert!(len <= BLOCK as u64);
        self.append(file, &ZEROES[..(len as usize).min(BLOCK)])
    }

    fn start_run(&mut self, file: &mut OpenFile, want: usize) -> io::Result<()> {
        let logical = file.data.size / BLOCK as u64;
        let reserved = match file.reserved.take() {
            Some(reserved) => reserved,
            None => self.reserve(file, want as u64),
        };
        let (run, rest) = reserved.split(blocks_for(want as u64));
        if self.cursor.next() >= BLOCKS_MAX || logical + run.len >= FILE_BLOCKS_MAX {
            return Err(too_large());
        }
        file.reserved = rest;
        file.data.extents.push(logical as u32, run);
        file.at = run.start * BLOCK as u64;
        file.room = run.len * BLOCK as u64;
        Ok(())
    }

    fn reserve(&mut self, file: &OpenFile, want: u64) -> Run {
        let expected = file.expected.saturating_sub(file.data.size).max(want);
        match file.placement {
            Placement::Dense => self.cursor.take(blocks_for(want)),
            Placement::Shared => self.cursor.take_shared(blocks_for(expected)),
            Placement::Aligned => self.cursor.take_aligned(blocks_for(expected)),
        }
    }

    fn give_back(&mut self, file: &mut OpenFile) {
        if let Some(rest) = file.reserved.take() {
            self.cursor.give_back(rest);
        }
    }
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "larger than an ext4 file or file system can be")
}
