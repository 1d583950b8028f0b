use super::aligned::Aligned;
use super::source::set_direct;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use warren_proto::guest::exchange::{ALIGN, PIECE_LEN};

/// Bytes written at once past the page cache: a piece of the exchange disk becomes a block without a copy.
const BLOCK_LEN: usize = PIECE_LEN;
/// Bytes taken at once from the exchange disk without a block of memory. A multiple of [`ALIGN`].
const TAKEN_LEN: usize = 64 << 10;

/// Where the bytes of an upload go.
///
/// The page cache costs the kernel some hundred instructions a page, once when it is filled and once when it is written out; under
/// emulation that is eight times the work of handing the disk the same bytes. So with a block of memory to collect them in, whole
/// blocks go straight to the disk. A file that is shorter than a block, and the end of one that is not, take the usual way.
#[derive(Debug)]
pub(super) struct Sink {
    file: File,
    block: Option<Block>,
    is_direct: bool,
}

/// Bytes that are collected to a block.
#[derive(Debug)]
struct Block {
    memory: Aligned,
    len: usize,
}

impl Sink {
    /// Appends to `file`, which is empty; by blocks if `by_blocks`, which takes half a MiB of memory.
    pub(super) fn new(file: File, by_blocks: bool) -> Self {
        Self { file, block: by_blocks.then(Block::new), is_direct: false }
    }

    /// The file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Appends.
    pub(super) fn write(&mut self, mut data: &[u8]) -> io::Result<()> {
        let Some(mut block) = self.block.take() else { return self.write_out(data) };
        while !data.is_empty() {
            data = &data[block.fill(data)..];
            if block.len == BLOCK_LEN {
                self.write_block(&mut block)?;
            }
        }
        self.block = Some(block);
        Ok(())
    }

    /// Appends `len` bytes, at most a piece, that start at `at` of the exchange disk.
    pub(super) fn take(&mut self, disk: &File, at: u64, len: usize) -> io::Result<()> {
        if let Some(mut block) = self.block.take_if(|block| block.len == 0 && len == BLOCK_LEN) {
            disk.read_exact_at(block.memory.bytes_mut(), at)?;
            block.len = len;
            self.write_block(&mut block)?;
            self.block = Some(block);
            return Ok(());
        }
        let mut memory = Aligned::new(TAKEN_LEN);
        for offset in (0..len).step_by(TAKEN_LEN) {
            let part = TAKEN_LEN.min(len - offset);
            disk.read_exact_at(&mut memory.bytes_mut()[..part.next_multiple_of(ALIGN)], at + offset as u64)?;
            self.write(&memory.bytes()[..part])?;
        }
        Ok(())
    }

    fn write_block(&mut self, block: &mut Block) -> io::Result<()> {
        self.is_direct = self.is_direct || set_direct(&self.file, true).is_ok();
        self.write_out(block.filled())?;
        block.len = 0;
        Ok(())
    }

    /// Writes what is still collected.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let Some(block) = self.block.take() else { return Ok(()) };
        self.leave_direct()?;
        self.write_out(block.filled())
    }

    fn write_out(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            match rustix::io::write(&self.file, data) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => {
                    data = &data[len..];
                    if !data.is_empty() {
                        // What is left is not aligned any more.
                        self.leave_direct()?;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::INVAL) if self.is_direct => self.leave_direct()?,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn leave_direct(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_direct) {
            set_direct(&self.file, false)?;
        }
        Ok(())
    }
}

impl Block {
    fn new() -> Self {
        Self { memory: Aligned::new(BLOCK_LEN), len: 0 }
    }

    /// Takes as much as fits and answers how much that was.
    fn fill(&mut self, data: &[u8]) -> usize {
        let free = &mut self.memory.bytes_mut()[self.len..];
        let len = free.len().min(data.len());
        free[..len].copy_from_slice(&data[..len]);
        self.len += len;
        len
    }

    fn filled(&self) -> &[u8] {
        &self.memory.bytes()[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_sequence_of_parts_is_written_whole() {
        let dir = tempfile::tempdir().unwrap();
        for (parts, len) in [(1, 0), (3, 1), (1, BLOCK_LEN), (7, 300_001), (5, BLOCK_LEN + 1), (40, 65_536)] {
            for by_blocks in [false, true] {
                let path = dir.path().join("file");
                let mut sink = Sink::new(File::create(&path).unwrap(), by_blocks);
                let data: Vec<u8> = (0..parts * len).map(|n| (n / 3) as u8).collect();
                data.chunks(len.max(1)).for_each(|part| sink.write(part).unwrap());
                sink.finish().unwrap();
                assert!(std::fs::read(&path).unwrap() == data, "{parts} × {len}");
            }
        }
    }

    #[test]
    fn pieces_of_the_exchange_disk_are_appended_in_any_length() {
        let dir = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..3 * PIECE_LEN).map(|n| (n / 7) as u8).collect();
        std::fs::write(dir.path().join("disk"), &content).unwrap();
        let disk = File::open(dir.path().join("disk")).unwrap();
        for by_blocks in [false, true] {
            let path = dir.path().join("file");
            let mut sink = Sink::new(File::create(&path).unwrap(), by_blocks);
            let taken =
                [(0, PIECE_LEN), (2, PIECE_LEN), (1, 1), (0, TAKEN_LEN + 3), (1, PIECE_LEN), (2, PIECE_LEN - 1)];
            let mut wanted = Vec::new();
            for (piece, len) in taken {
                let at = piece * PIECE_LEN;
                sink.take(&disk, at as u64, len).unwrap();
                wanted.extend_from_slice(&content[at..at + len]);
            }
            sink.finish().unwrap();
            assert!(std::fs::read(&path).unwrap() == wanted, "by blocks: {by_blocks}");
        }
    }

    #[test]
    fn a_full_disk_is_told() {
        let full = || File::options().write(true).open("/dev/full").unwrap();
        assert_eq!(Sink::new(full(), false).write(b"x").unwrap_err().raw_os_error(), Some(libc::ENOSPC));
        let mut sink = Sink::new(full(), true);
        sink.write(b"x").unwrap();
        assert_eq!(sink.finish().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
}
