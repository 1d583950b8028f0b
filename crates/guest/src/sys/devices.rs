#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOW('R', 0x03, int[2])`.
const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
/// `_IO('R', 0x07)`.
const RNDRESEEDCRNG: libc::Ioctl = 0x5207;
/// `_IOW('f', 16, __u64)`.
const EXT4_IOC_RESIZE_FS: libc::Ioctl = 0x4008_6610;
/// Most entropy taken in one call, bytes.
const ENTROPY_LEN_MAX: usize = 512;

/// The kernel's `struct rand_pool_info` with room for its data.
#[repr(C)]
struct PoolInfo {
    entropy_bits: libc::c_int,
    len: libc::c_int,
    data: [u8; ENTROPY_LEN_MAX],
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Credits the kernel's random number generator (`random` is an open `/dev/random`) with the first 512 bytes of `entropy`
/// and makes it reseed at once, so that no number drawn from now on is shared with another restore of the same memory.
pub fn add_entropy(random: BorrowedFd<'_>, entropy: &[u8]) -> io::Result<()> {
    let len = entropy.len().min(ENTROPY_LEN_MAX);
    let mut info =
        PoolInfo { entropy_bits: (len * 8) as libc::c_int, len: len as libc::c_int, data: [0; ENTROPY_LEN_MAX] };
    info.data[..len].copy_from_slice(&entropy[..len]);
    // SAFETY: `info` is laid out as the kernel's struct, and `len` bytes of data follow its two numbers.
    check(unsafe { libc::ioctl(random.as_raw_fd(), RNDADDENTROPY, &raw const info) })?;
    // SAFETY: the call takes no argument.
    check(unsafe { libc::ioctl(random.as_raw_fd(), RNDRESEEDCRNG) })
}

/// Grows the mounted ext4 that `root` is the root folder of to `blocks` file system blocks.
pub fn grow_ext4(root: BorrowedFd<'_>, blocks: u64) -> io::Result<()> {
    // SAFETY: the call reads one u64.
    check(unsafe { libc::ioctl(root.as_raw_fd(), EXT4_IOC_RESIZE_FS, &raw const blocks) })
}
