//! What a VM has changed of the memory that it started from.
//!
//! QEMU maps the file of its memory privately, so a page that the guest or QEMU has written is an anonymous page of QEMU's own; a page that is
//! still the file's has not changed. `/proc/PID/pagemap` tells them apart (kernel's `Documentation/admin-guide/mm/pagemap.rst`).

use crate::delta::{Run, page_count};
use crate::sys::read_memory;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
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
const COPY_LEN: u64 = 1 << 20;
/// Parts of a memory that are copied at the same time.
const PARTS: usize = 2;

/// A VM's memory, as its owner reaches it.
pub(crate) struct GuestMemory {
    pid: u32,
    map: File,
    /// Where it lies in QEMU's address space.
    address: u64,
    len: u64,
}

/// A range of a memory, with room for what has changed in it.
#[derive(Debug)]
pub(crate) struct Part {
    range: Range<u64>,
    /// What has changed, in order.
    pub(crate) runs: Vec<Run>,
    /// Its bytes, if they are held.
    pub(crate) pages: Vec<u8>,
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
        let map = File::open(format!("/proc/{pid}/pagemap"))?;
        Ok(Self { pid, map, address: from, len: to - from })
    }

    /// Its length, bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The pages that have changed so far, in order.
    pub(crate) fn changed(&self) -> io::Result<Vec<Run>> {
        self.changed_in(0..self.len / PAGE)
    }

    fn changed_in(&self, Range { start: mut page, end }: Range<u64>) -> io::Result<Vec<Run>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut buffer = vec![0; MAP_READ_LEN];
        while page < end {
            let count = (end - page).min((MAP_READ_LEN / 8) as u64);
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

    /// Parts to be held at the same time, with room for what has changed so far in each, about the same amount, and a quarter more. The room is
    /// written to: it is there when the machine stands still.
    pub(crate) fn parts(&self, changed: &[Run]) -> Vec<Part> {
        let share = page_count(changed).div_ceil(PARTS as u64).max(1);
        let mut parts: Vec<Part> = Vec::with_capacity(PARTS);
        let (mut start, mut count) = (0, 0);
        let room = |count: u64| vec![0; ((count + count / 4) * PAGE) as usize];
        for run in changed {
            count += run.count;
            if count >= share && parts.len() + 1 < PARTS {
                let end = run.first + run.count;
                parts.push(Part { range: start..end, runs: Vec::new(), pages: room(count) });
                (start, count) = (end, 0);
            }
        }
        parts.push(Part { range: start..self.len / PAGE, runs: Vec::new(), pages: room(count) });
        parts
    }

    /// Finds what has changed in a part, and takes its bytes if they are at most `most`. Whether it has.
    pub(crate) fn hold(&self, part: &mut Part, most: u64) -> io::Result<bool> {
        part.runs = self.changed_in(part.range.clone())?;
        let len = page_count(&part.runs) * PAGE;
        let held = len <= most;
        part.pages.resize(if held { len as usize } else { 0 }, 0);
        if held {
            let ranges: Vec<_> =
                part.runs.iter().map(|run| (self.address + run.first * PAGE, run.count * PAGE)).collect();
            read_memory(self.pid, &ranges, &mut part.pages)?;
        }
        Ok(held)
    }

    /// Writes the bytes of these pages to `out`, one after the other.
    pub(crate) fn copy(&self, runs: &[Run], out: &mut dyn Write) -> io::Result<()> {
        let mut buffer = vec![0; COPY_LEN as usize];
        for run in runs {
            let (mut at, end) = (run.first * PAGE, (run.first + run.count) * PAGE);
            while at < end {
                let part = &mut buffer[..(end - at).min(COPY_LEN) as usize];
                read_memory(self.pid, &[(self.address + at, part.len() as u64)], part)?;
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
