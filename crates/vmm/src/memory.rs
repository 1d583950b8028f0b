//! What a VM has changed of the memory that it started from.
//!
//! QEMU maps the file of its memory privately, so a page that the guest or QEMU has written is an anonymous page of QEMU's own; a page that is
//! still the file's has not changed. `/proc/PID/pagemap` tells them apart (kernel's `Documentation/admin-guide/mm/pagemap.rst`).

use crate::delta::{Run, page_count};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4096;
/// Bit of a page map entry: the page is in memory.
const PRESENT: u64 = 1 << 63;
/// The page is swapped out.
const SWAPPED: u64 = 1 << 62;
/// The page is a file's, or of shared memory.
const FILE_PAGE: u64 = 1 << 61;
/// Bytes of page map read at once.
const MAP_READ_LEN: usize = 256 << 10;
/// Bytes of memory copied at once.
const COPY_LEN: usize = 1 << 20;

/// A VM's memory, as its owner reaches it.
pub(crate) struct GuestMemory {
    pages: File,
    map: File,
    /// Where it lies in QEMU's address space.
    address: u64,
    len: u64,
}

/// `ADDRESS-END FLAGS OFFSET DEVICE INODE PATH` of `/proc/PID/maps`: the range, if it maps `inode` from its start.
fn range_of(line: &str, inode: u64) -> Option<(u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (range, _flags, offset, _device) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (from, to) = range.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    (words.next()?.parse() == Ok(inode) && hex(offset) == Some(0)).then_some((hex(from)?, hex(to)?))
}

impl GuestMemory {
    /// Of the QEMU with `pid`, that started from the file with `inode`.
    pub(crate) fn open(pid: u32, inode: u64) -> io::Result<Self> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let (from, to) = maps
            .lines()
            .find_map(|line| range_of(line, inode))
            .ok_or_else(|| io::Error::other("the VM does not map the file that its memory started from"))?;
        Ok(Self {
            pages: File::open(format!("/proc/{pid}/mem"))?,
            map: File::open(format!("/proc/{pid}/pagemap"))?,
            address: from,
            len: to - from,
        })
    }

    /// Its length, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The pages that have changed so far, in order.
    pub(crate) fn changed(&self) -> io::Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut buffer = vec![0; MAP_READ_LEN];
        let (mut page, pages) = (0, self.len / PAGE);
        while page < pages {
            let count = (pages - page).min((MAP_READ_LEN / 8) as u64);
            let entries = &mut buffer[..count as usize * 8];
            self.map.read_exact_at(entries, (self.address / PAGE + page) * 8)?;
            for entry in entries.as_chunks::<8>().0 {
                let entry = u64::from_le_bytes(*entry);
                if entry & (PRESENT | SWAPPED) != 0 && entry & FILE_PAGE == 0 {
                    match runs.last_mut() {
                        Some(run) if run.first + run.count == page => run.count += 1,
                        _ => runs.push(Run { first: page, count: 1 }),
                    }
                }
                page += 1;
            }
        }
        Ok(runs)
    }

    /// Reads the bytes of these pages, one after the other, in place of what is in `held`: what that has room for already costs nothing more.
    pub(crate) fn hold(&self, runs: &[Run], held: &mut Vec<u8>) -> io::Result<()> {
        held.resize((page_count(runs) * PAGE) as usize, 0);
        let mut rest = held.as_mut_slice();
        for run in runs {
            let (part, later) = rest.split_at_mut((run.count * PAGE) as usize);
            self.pages.read_exact_at(part, self.address + run.first * PAGE)?;
            rest = later;
        }
        Ok(())
    }

    /// Writes the bytes of these pages to `out`, one after the other.
    pub(crate) fn copy(&self, runs: &[Run], out: &mut dyn Write) -> io::Result<()> {
        let mut buffer = vec![0; COPY_LEN];
        for run in runs {
            let (mut at, end) = (run.first * PAGE, (run.first + run.count) * PAGE);
            while at < end {
                let part = &mut buffer[..(end - at).min(COPY_LEN as u64) as usize];
                self.pages.read_exact_at(part, self.address + at)?;
                out.write_all(part)?;
                at += part.len() as u64;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_found_by_inode_and_offset() {
        let line = "7f0000000000-7f0020000000 rw-p 00000000 00:01 4242      /memfd:warren-template (deleted)";
        assert_eq!(range_of(line, 4242), Some((0x7f00_0000_0000, 0x7f00_2000_0000)));
        assert_eq!(range_of(line, 42), None);
        assert_eq!(range_of(&line.replace("00000000 00:01", "00001000 00:01"), 4242), None);
        assert_eq!(range_of("55d0-55e0 r-xp", 4242), None);
    }
}
