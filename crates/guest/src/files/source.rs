use super::aligned::Aligned;
use bytes::Bytes;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};
use std::fs::File;
use std::io;
use warren_proto::guest::exchange::ALIGN;

/// A file that is sent, block by block.
///
/// What is in the page cache is copied from there at once. What is not comes straight from the disk, beside the agent's thread:
/// filling the cache first doubles the kernel's work, and a file that is downloaded is seldom read again.
pub(super) struct Source {
    file: File,
    offset: u64,
}

impl Source {
    /// Reads `file` from `offset` on.
    pub(super) fn new(file: File, offset: u64) -> Self {
        Self { file, offset }
    }

    /// The next block, of at most `len` bytes; empty at the end of the file.
    pub(super) async fn next(mut self, len: usize) -> io::Result<(Self, Bytes)> {
        let block = match self.read_cached(len) {
            Some(block) => block,
            None => {
                let file = self.file;
                let work = move || {
                    let mut block = Aligned::new(len.next_multiple_of(ALIGN));
                    let len = read_disk(&file, self.offset, block.bytes_mut())?;
                    Ok((file, block.into_bytes(len)))
                };
                let read = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)));
                let (file, block) = read?;
                self.file = file;
                block
            }
        };
        let block = block.slice(..block.len().min(len));
        self.offset += block.len() as u64;
        Ok((self, block))
    }

    fn read_cached(&self, len: usize) -> Option<Bytes> {
        let mut block = vec![0; len];
        let len = read_cached(&self.file, self.offset, &mut block)?;
        block.truncate(len);
        Some(block.into())
    }
}

/// What the page cache holds at `offset`; `None` where it holds nothing, or the file system cannot tell.
pub(super) fn read_cached(file: &File, offset: u64, block: &mut [u8]) -> Option<usize> {
    preadv2(file, &mut [IoSliceMut::new(block)], offset, ReadWriteFlags::NOWAIT).ok()
}

/// Reads into `block`, which is aligned, past the page cache where that works.
pub(super) fn read_disk(file: &File, offset: u64, block: &mut [u8]) -> io::Result<usize> {
    if offset.is_multiple_of(ALIGN as u64) && set_direct(file, true).is_ok() {
        let read = rustix::io::pread(file, &mut *block, offset);
        set_direct(file, false)?;
        match read {
            Err(Errno::INVAL) => {}
            read => return Ok(read?),
        }
    }
    Ok(rustix::io::pread(file, block, offset)?)
}

/// Fails on file systems that know no such reads and writes.
pub(super) fn set_direct(file: &File, direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(fcntl_setfl(file, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK_LEN: usize = 256 << 10;

    #[tokio::test]
    async fn a_file_comes_whole_from_any_offset() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let data: Vec<u8> = (0..3 * BLOCK_LEN + 77).map(|n| (n / 5) as u8).collect();
        std::fs::write(&path, &data).unwrap();
        for (offset, drop_cache) in [(0, false), (0, true), (4096, true), (1, true), (data.len() as u64, false)] {
            let file = File::open(&path).unwrap();
            if drop_cache {
                file.sync_all().unwrap();
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            }
            let mut source = Source::new(file, offset);
            let mut read = Vec::new();
            loop {
                let (rest, block) = source.next(BLOCK_LEN).await.unwrap();
                if block.is_empty() {
                    break;
                }
                read.extend_from_slice(&block);
                source = rest;
            }
            assert!(read == data[offset as usize..], "from {offset}");
        }
    }

    #[tokio::test]
    async fn no_more_is_read_than_asked_for_and_files_without_length_are_read() {
        let (_, block) = Source::new(File::open("/proc/self/status").unwrap(), 0).next(5).await.unwrap();
        assert_eq!(&block[..], b"Name:");
    }
}
