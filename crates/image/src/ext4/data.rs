//! Streams blocks to the output file, front to back, in large writes.

use super::alloc::{Cursor, Run};
use super::extent::FILE_BLOCKS_MAX;
use super::layout::{BLOCK, BLOCKS_MAX};
use super::tree::FileData;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes gathered before a write.
const WRITE_LEN: usize = 1 << 20;
/// Largest file, bytes.
const FILE_BYTES_MAX: u64 = FILE_BLOCKS_MAX * BLOCK as u64;

/// Gathers consecutive bytes into large writes.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    at: u64,
    pending: Vec<u8>,
    written: u64,
}

impl Output {
    fn new(file: File) -> Self {
        Self { file, at: 0, pending: Vec::with_capacity(WRITE_LEN), written: 0 }
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

    /// Writes what is pending and gives the file back, with the number of bytes written.
    pub(super) fn finish(mut self) -> io::Result<(File, u64)> {
        self.flush()?;
        Ok((self.file, self.written))
    }

    fn flush(&mut self) -> io::Result<()> {
        let pending = std::mem::take(&mut self.pending);
        let done = self.write(&pending);
        self.pending = pending;
        self.pending.clear();
        done
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

/// A file whose data arrives.
#[derive(Debug, Default)]
pub struct OpenFile {
    data: FileData,
    /// Where the next byte of the current run goes, and how many more fit.
    at: u64,
    room: u64,
}

/// Places file data on free blocks and writes it.
#[derive(Debug)]
pub(super) struct DataWriter {
    /// The output.
    pub out: Output,
    /// What is free.
    pub cursor: Cursor,
}

impl DataWriter {
    /// A writer into an empty file.
    pub(super) fn new(file: File) -> Self {
        Self { out: Output::new(file), cursor: Cursor::new() }
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
        let run: Run = self.cursor.take(want.div_ceil(BLOCK) as u64);
        if self.cursor.next() >= BLOCKS_MAX || logical + run.len >= FILE_BLOCKS_MAX {
            return Err(too_large());
        }
        file.data.extents.push(logical as u32, run);
        file.at = run.start * BLOCK as u64;
        file.room = run.len * BLOCK as u64;
        Ok(())
    }
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "larger than an ext4 file or file system can be")
}
