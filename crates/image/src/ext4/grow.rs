//! Growing a file system before anybody mounts it, by rewriting a handful of blocks.
//!
//! A guest that grows its root online pays for each new group in emulated instructions. New groups are empty, so all that a larger
//! file system needs is other counts in the superblock and more group descriptors; the kernel makes the bitmaps of a
//! group marked `BLOCK_UNINIT` itself when it first looks.

use super::bytes::PutLe;
use super::group::Group;
use super::layout::{
    BLOCK, BLOCKS_PER_GROUP, DESCRIPTOR_SIZE, GROUPS_PER_META, INODES_PER_BLOCK, PIECE, descriptor_block, group_start,
    reserved_blocks,
};
use super::superblock::SUPERBLOCK_SIZE;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes of a group: sizes are rounded to it, so that no bitmap has a tail to mend.
pub const GROUP_BYTES: u64 = BLOCKS_PER_GROUP * BLOCK as u64;
/// Largest size that is reached this way, bytes; beyond it the guest's kernel grows the rest.
pub const GROWN_BYTES_MAX: u64 = 256 << 30;
/// Where the superblock starts, bytes.
const SUPERBLOCK_AT: usize = 1024;

/// Bytes that differ from the disk that was grown: [`super::PIECE`] bytes at an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where, in bytes from the start of the disk.
    pub offset: u64,
    /// What.
    pub bytes: Vec<u8>,
}

/// A disk that can be read.
pub trait ReadAt {
    /// As [`FileExt::read_at`].
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl ReadAt for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

/// The disk cannot be grown.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// It cannot be read.
    #[error("read the disk: {0}")]
    Io(#[from] io::Error),
    /// It is none that this crate made writable.
    #[error("the disk holds no file system of ours")]
    Foreign,
}

/// What of the superblock matters here.
struct Counts {
    blocks: u64,
    free_blocks: u64,
    inodes: u32,
    free_inodes: u32,
    inodes_per_group: u32,
    uuid: [u8; 16],
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
}

impl Counts {
    fn read(superblock: &[u8]) -> Result<Counts, GrowError> {
        let wide = |lo, hi| u64::from(u32_at(superblock, hi)) << 32 | u64::from(u32_at(superblock, lo));
        let counts = Counts {
            blocks: wide(0x04, 0x150),
            free_blocks: wide(0x0C, 0x158),
            inodes: u32_at(superblock, 0x00),
            free_inodes: u32_at(superblock, 0x10),
            inodes_per_group: u32_at(superblock, 0x28),
            uuid: superblock.get(0x68..0x78).and_then(|b| b.try_into().ok()).ok_or(GrowError::Foreign)?,
        };
        let ours = u32_at(superblock, 0x38) & 0xFFFF == 0xEF53
            && counts.blocks.is_multiple_of(BLOCKS_PER_GROUP)
            && counts.blocks > 0;
        if ours { Ok(counts) } else { Err(GrowError::Foreign) }
    }

    fn write(&self, superblock: &mut [u8]) {
        superblock.put_u32(0x00, self.inodes);
        superblock.put_u32(0x04, self.blocks as u32);
        superblock.put_u32(0x0C, self.free_blocks as u32);
        superblock.put_u32(0x10, self.free_inodes);
        superblock.put_u32(0x150, (self.blocks >> 32) as u32);
        superblock.put_u32(0x158, (self.free_blocks >> 32) as u32);
    }

    /// Adds one empty group, and gives its descriptor. `None` if inodes would overflow.
    fn add_group(&mut self) -> Option<[u8; DESCRIPTOR_SIZE]> {
        let number = self.blocks / BLOCKS_PER_GROUP;
        let table_blocks = u64::from(self.inodes_per_group).div_ceil(INODES_PER_BLOCK);
        let first = group_start(number) + reserved_blocks(number);
        let free_blocks = BLOCKS_PER_GROUP - reserved_blocks(number) - 2 - table_blocks;
        let group = Group {
            block_bitmap: first,
            inode_bitmap: first + 1,
            inode_table: first + 2,
            free_blocks: free_blocks as u32,
            free_inodes: self.inodes_per_group,
            dirs: 0,
            unused_inodes: self.inodes_per_group,
            blocks_untouched: true,
        };
        self.inodes = self.inodes.checked_add(self.inodes_per_group)?;
        self.free_inodes += self.inodes_per_group;
        self.blocks += BLOCKS_PER_GROUP;
        self.free_blocks += free_blocks;
        Some(group.encode(u32::try_from(number).ok()?, self.inodes_per_group, &self.uuid))
    }
}

/// The size that a disk of `asked` bytes gets: whole groups, and never below what the image itself needs.
pub fn rounded_size(image: u64, asked: u64) -> u64 {
    asked.next_multiple_of(GROUP_BYTES).max(image)
}

/// What has to lie over `disk` so that its file system is `size` bytes large, [`rounded_size`] of something.
///
/// Above [`GROWN_BYTES_MAX`], or where inodes run out, it becomes as large as it can; the kernel can go on from there.
pub fn grow(disk: &impl ReadAt, size: u64) -> Result<Vec<Piece>, GrowError> {
    let mut first = piece_at(disk, 0)?;
    let superblock = first.bytes.get(SUPERBLOCK_AT..SUPERBLOCK_AT + SUPERBLOCK_SIZE).ok_or(GrowError::Foreign)?;
    let mut counts = Counts::read(superblock)?;
    let target = size.min(GROWN_BYTES_MAX) / BLOCK as u64;
    let mut pieces: Vec<Piece> = Vec::new();
    while counts.blocks + BLOCKS_PER_GROUP <= target {
        let number = counts.blocks / BLOCKS_PER_GROUP;
        let Some(descriptor) = counts.add_group() else { break };
        let meta_first = number - number % GROUPS_PER_META;
        let block = descriptor_block(meta_first).ok_or(GrowError::Foreign)?;
        let at = block * BLOCK as u64 + number % GROUPS_PER_META * DESCRIPTOR_SIZE as u64;
        let piece = match at / PIECE {
            0 => &mut first,
            index => {
                if pieces.last().is_none_or(|p| p.offset != index * PIECE) {
                    pieces.push(piece_at(disk, index * PIECE)?);
                }
                pieces.last_mut().ok_or(GrowError::Foreign)?
            }
        };
        let within = (at % PIECE) as usize;
        piece.bytes[within..within + DESCRIPTOR_SIZE].copy_from_slice(&descriptor);
    }
    counts.write(&mut first.bytes[SUPERBLOCK_AT..SUPERBLOCK_AT + SUPERBLOCK_SIZE]);
    pieces.insert(0, first);
    Ok(pieces)
}

/// The disk's own bytes there; zeroes behind its end.
fn piece_at(disk: &impl ReadAt, offset: u64) -> io::Result<Piece> {
    let mut bytes = vec![0; PIECE as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match disk.read_at(&mut bytes[filled..], offset + filled as u64)? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(Piece { offset, bytes })
}

#[cfg(test)]
mod tests {
    use super::super::tree::Meta;
    use super::super::{Builder, Options};
    use super::*;
    use std::process::Command;

    fn made(dir: &std::path::Path) -> std::path::PathBuf {
        let path = dir.join("image.ext4");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let options = Options { label: "t".into(), uuid: [9; 16], made_s: 1_700_000_000, writable: true };
        let mut builder = Builder::new(file);
        builder.add_file(b"/a/b", Meta::root(0o644), &mut &[7u8; 100_000][..]).unwrap();
        builder.finish(&options).unwrap();
        path
    }

    #[test]
    fn a_grown_file_system_is_sound_at_any_size() {
        let dir = tempfile::tempdir().unwrap();
        for groups in [1, 2, 8, 40, 63, 64, 65, 200] {
            let path = made(dir.path());
            let disk = File::options().read(true).write(true).open(&path).unwrap();
            let size = rounded_size(disk.metadata().unwrap().len(), groups * GROUP_BYTES);
            for piece in grow(&disk, size).unwrap() {
                disk.write_all_at(&piece.bytes, piece.offset).unwrap();
            }
            disk.set_len(size).unwrap();
            let check = Command::new("e2fsck").arg("-fn").arg(&path).output().unwrap();
            assert!(check.status.success(), "{groups}: {}", String::from_utf8_lossy(&check.stdout));
            let info = Command::new("dumpe2fs").arg("-h").arg(&path).output().unwrap();
            let blocks = format!("{:<26}{}", "Block count:", size / 4096);
            assert!(String::from_utf8_lossy(&info.stdout).contains(&blocks), "{groups}");
        }
    }

    #[test]
    fn what_is_not_ours_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert!(matches!(grow(&file, 1 << 30), Err(GrowError::Foreign)));
        file.write_all_at(&[0xFF; 8192], 0).unwrap();
        assert!(matches!(grow(&file, 1 << 30), Err(GrowError::Foreign)));
    }
}
