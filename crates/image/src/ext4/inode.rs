//! Inodes, 256 bytes each.

use super::bytes::PutLe;
use super::layout::{BLOCK, INODE_SIZE};
use super::tree::Meta;

/// Bytes at the end of an inode for extended attributes.
pub(super) const XATTR_ROOM: usize = INODE_SIZE - EXTRA_END;
/// The inode's data is mapped by extents.
pub(super) const FLAG_EXTENTS: u32 = 0x8_0000;
/// The directory is a hash tree.
pub(super) const FLAG_INDEX: u32 = 0x1000;

const EXTRA_SIZE: u16 = 32;
const EXTRA_END: usize = 128 + EXTRA_SIZE as usize;
/// Last second that the 34 bits of a time can say.
const TIME_MAX: i64 = (1 << 34) - (1 << 31) - 1;

/// Everything in an inode.
#[derive(Debug, Clone)]
pub(super) struct Inode {
    /// File type bits, `S_IFMT`.
    pub format: u16,
    /// Owner, mode, time.
    pub meta: Meta,
    /// Length, bytes.
    pub size: u64,
    /// Names; 1 for a directory with too many subdirectories.
    pub links: u16,
    /// Blocks of data, tree and attributes.
    pub blocks: u64,
    /// Flags.
    pub flags: u32,
    /// Extent root, link target or device number.
    pub i_block: [u8; 60],
    /// Block with more extended attributes; 0 is none.
    pub xattr_block: u64,
    /// Extended attributes in the inode.
    pub xattrs: [u8; XATTR_ROOM],
}

impl Inode {
    /// The inode's bytes.
    pub(super) fn encode(&self) -> [u8; INODE_SIZE] {
        let mut out = [0; INODE_SIZE];
        let sectors = self.blocks * (BLOCK as u64 / 512);
        out.put_u16(0x00, self.format | (self.meta.mode & 0o7777));
        out.put_u16(0x02, self.meta.uid as u16);
        out.put_u16(0x78, (self.meta.uid >> 16) as u16);
        out.put_u16(0x18, self.meta.gid as u16);
        out.put_u16(0x7A, (self.meta.gid >> 16) as u16);
        out.put_u32(0x04, self.size as u32);
        out.put_u32(0x6C, (self.size >> 32) as u32);
        out.put_u16(0x1A, self.links);
        out.put_u32(0x1C, sectors as u32);
        out.put_u16(0x74, (sectors >> 32) as u16);
        out.put_u32(0x20, self.flags);
        out[0x28..0x64].copy_from_slice(&self.i_block);
        out.put_u32(0x68, self.xattr_block as u32);
        out.put_u16(0x76, (self.xattr_block >> 32) as u16);
        out.put_u16(0x80, EXTRA_SIZE);
        let (seconds, extra) = encode_time(self.meta.mtime_s, self.meta.mtime_ns);
        // Access, change, modification, creation: an image knows one time.
        for (at, extra_at) in [(0x08, 0x8C), (0x0C, 0x84), (0x10, 0x88), (0x90, 0x94)] {
            out.put_u32(at, seconds);
            out.put_u32(extra_at, extra);
        }
        out[EXTRA_END..].copy_from_slice(&self.xattrs);
        out
    }
}

/// Low 32 bits of the seconds; nanoseconds with two more bits of seconds. Times out of range become the nearest one.
fn encode_time(seconds: i64, nanos: u32) -> (u32, u32) {
    let seconds = seconds.clamp(i64::from(i32::MIN), TIME_MAX);
    let low = seconds as i32;
    let epoch = ((seconds - i64::from(low)) >> 32) as u32 & 3;
    (low as u32, nanos.min(999_999_999) << 2 | epoch)
}

/// `i_block` of a device: the old 16-bit number where it fits, else the new form.
pub(super) fn device_block(major: u32, minor: u32) -> [u8; 60] {
    let mut out = [0; 60];
    if major < 256 && minor < 256 {
        out.put_u32(0, major << 8 | minor);
    } else {
        out.put_u32(4, (minor & 0xFF) | (major & 0xFFF) << 8 | (minor & 0xF_FF00) << 12);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_after_2038() {
        assert_eq!(encode_time(-1, 5), (u32::MAX, 5 << 2));
        assert_eq!(encode_time(0x8000_0000, 0), (0x8000_0000, 1));
        assert_eq!(encode_time(i64::MAX, 0), (0x7FFF_FFFF, 3));
        assert_eq!(encode_time(i64::MIN, 0), (0x8000_0000, 0));
    }

    #[test]
    fn device_numbers() {
        assert_eq!(device_block(1, 3)[..4], [3, 1, 0, 0]);
        assert_eq!(device_block(259, 0x12345)[4..8], 0x1231_0345_u32.to_le_bytes());
    }
}
