//! The pages of a memory that differ from what it started from, as a file.
//!
//! ```text
//! magic (8) | length of the memory, bytes (8) | number of runs (8) | runs: first page (8), number of pages (8) ... | pages, from a multiple of 4096 on
//! ```
//! Numbers are little-endian. The file may come from a VMM that a guest has taken over: everything in it is checked.

use crate::memory::PAGE;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

const MAGIC: [u8; 8] = *b"WRNDELT1";
const HEAD_LEN: u64 = 24;
const RUN_LEN: u64 = 16;
/// Bytes moved at once.
const COPY_LEN: usize = 1 << 20;

/// Pages in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

/// Why a delta cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeltaError {
    /// It is not what it should be.
    #[error("the memory delta is broken: {0}")]
    Broken(&'static str),
    /// It cannot be read, or the memory cannot be written.
    #[error("read the memory delta: {0}")]
    Io(#[from] io::Error),
}

/// A delta that has been read up to its pages.
#[derive(Debug)]
pub struct Delta {
    file: File,
    memory_len: u64,
    runs: Vec<Run>,
}

/// Where the pages start, bytes.
fn pages_at(runs: usize) -> u64 {
    (HEAD_LEN + runs as u64 * RUN_LEN).next_multiple_of(PAGE)
}

/// Number of pages of all runs.
pub(crate) fn page_count(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.count).sum()
}

/// Writes all that comes before the pages.
pub(crate) fn write_head(out: &mut dyn Write, memory_len: u64, runs: &[Run]) -> io::Result<()> {
    let mut head = Vec::with_capacity(pages_at(runs.len()) as usize);
    head.extend_from_slice(&MAGIC);
    head.extend_from_slice(&memory_len.to_le_bytes());
    head.extend_from_slice(&(runs.len() as u64).to_le_bytes());
    for run in runs {
        head.extend_from_slice(&run.first.to_le_bytes());
        head.extend_from_slice(&run.count.to_le_bytes());
    }
    head.resize(pages_at(runs.len()) as usize, 0);
    out.write_all(&head)
}

/// Reads the runs of a memory of `memory_len` bytes, and checks that the pages in `file_len` bytes are just theirs.
fn parse_runs(bytes: &[u8], memory_len: u64, file_len: u64) -> Result<Vec<Run>, DeltaError> {
    let pages = memory_len / PAGE;
    let mut next_free = 0;
    let mut runs = Vec::with_capacity(bytes.len() / RUN_LEN as usize);
    for run in bytes.as_chunks::<{ RUN_LEN as usize }>().0 {
        let number = |at: usize| run[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let (first, count) = (number(0), number(8));
        let end = first.checked_add(count).filter(|end| first >= next_free && count > 0 && *end <= pages);
        next_free = end.ok_or(DeltaError::Broken("its pages are not in order within the memory"))?;
        runs.push(Run { first, count });
    }
    if pages_at(runs.len()) + page_count(&runs) * PAGE == file_len {
        Ok(runs)
    } else {
        Err(DeltaError::Broken("it is not as long as its pages are"))
    }
}

impl Delta {
    /// Reads and checks all but the pages. `memory_len` is the length that the memory must have, bytes.
    pub fn open(file: File, memory_len: u64) -> Result<Self, DeltaError> {
        let file_len = file.metadata()?.len();
        let mut head = [0; HEAD_LEN as usize];
        file.read_exact_at(&mut head, 0)?;
        let number = |at: usize| head[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        if head[..8] != MAGIC || number(8) != memory_len {
            return Err(DeltaError::Broken("it is none of a memory of this size"));
        }
        let count = number(16);
        // No more runs than the file, or the memory, has room for.
        if count > memory_len / PAGE || count > file_len / RUN_LEN {
            return Err(DeltaError::Broken("it has more runs than room"));
        }
        let mut bytes = vec![0; (count * RUN_LEN) as usize];
        file.read_exact_at(&mut bytes, HEAD_LEN)?;
        let runs = parse_runs(&bytes, memory_len, file_len)?;
        Ok(Self { file, memory_len, runs })
    }

    /// Number of pages in it.
    pub fn pages(&self) -> u64 {
        page_count(&self.runs)
    }

    /// Puts its pages into `memory`, a file of the memory's length.
    pub fn apply(&self, memory: &File) -> Result<(), DeltaError> {
        let mut from = pages_at(self.runs.len());
        let mut buffer = vec![0; COPY_LEN];
        for run in &self.runs {
            let (mut at, end) = (run.first * PAGE, (run.first + run.count) * PAGE);
            while at < end {
                let part = &mut buffer[..(end - at).min(COPY_LEN as u64) as usize];
                self.file.read_exact_at(part, from)?;
                memory.write_all_at(part, at)?;
                at += part.len() as u64;
                from += part.len() as u64;
            }
        }
        Ok(())
    }

    /// Writes to `out` what deltas that lie on each other, the lowest first, are together. They must be of one memory.
    pub fn merge(deltas: &[Delta], out: &mut dyn Write) -> Result<(), DeltaError> {
        let Some(memory_len) = deltas.first().map(|delta| delta.memory_len) else {
            return Err(DeltaError::Broken("there is none"));
        };
        // Of each page, the uppermost delta that has it, counted from 1, and where.
        let mut found = vec![(0u32, 0u64); (memory_len / PAGE) as usize];
        for (number, delta) in (1..).zip(deltas) {
            let mut from = pages_at(delta.runs.len());
            for page in delta.runs.iter().flat_map(|run| run.first..run.first + run.count) {
                if let Some(slot) = found.get_mut(page as usize) {
                    *slot = (number, from);
                }
                from += PAGE;
            }
        }
        let mut runs: Vec<Run> = Vec::new();
        for (page, _) in (0..).zip(&found).filter(|(_, (number, _))| *number > 0) {
            match runs.last_mut() {
                Some(run) if run.first + run.count == page => run.count += 1,
                _ => runs.push(Run { first: page, count: 1 }),
            }
        }
        write_head(out, memory_len, &runs)?;
        let mut page = [0; PAGE as usize];
        for (number, from) in found.into_iter().filter(|(number, _)| *number > 0) {
            deltas[number as usize - 1].file.read_exact_at(&mut page, from)?;
            out.write_all(&page)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = 16 * PAGE;

    /// A delta whose pages hold `fill`.
    fn delta(runs: &[(u64, u64)], fill: u8) -> Vec<u8> {
        let runs: Vec<Run> = runs.iter().map(|&(first, count)| Run { first, count }).collect();
        let mut out = Vec::new();
        write_head(&mut out, MEMORY, &runs).unwrap();
        out.resize(out.len() + (page_count(&runs) * PAGE) as usize, fill);
        out
    }

    fn file(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn open(bytes: &[u8]) -> Result<Delta, DeltaError> {
        Delta::open(file(bytes), MEMORY)
    }

    fn first_bytes(memory: &File) -> Vec<u8> {
        (0..16)
            .map(|page| {
                let mut byte = [0];
                memory.read_exact_at(&mut byte, page * PAGE + 7).unwrap();
                byte[0]
            })
            .collect()
    }

    #[test]
    fn pages_go_where_they_belong_and_deltas_merge() {
        let memory = file(&[9; MEMORY as usize]);
        let (low, high) = (open(&delta(&[(1, 3), (8, 2)], 1)).unwrap(), open(&delta(&[(3, 2), (15, 1)], 2)).unwrap());
        let mut merged = Vec::new();
        let deltas = [low, high];
        Delta::merge(&deltas, &mut merged).unwrap();
        let wanted = [9, 1, 1, 2, 2, 9, 9, 9, 1, 1, 9, 9, 9, 9, 9, 2];
        open(&merged).unwrap().apply(&memory).unwrap();
        assert_eq!(first_bytes(&memory), wanted);
        let again = file(&[9; MEMORY as usize]);
        deltas.iter().for_each(|delta| delta.apply(&again).unwrap());
        assert_eq!(first_bytes(&again), wanted);
        assert_eq!(open(&merged).unwrap().pages(), 7);
        assert_eq!(open(&delta(&[], 0)).unwrap().pages(), 0);
    }

    #[test]
    fn what_a_hostile_vmm_writes_is_refused() {
        let good = delta(&[(1, 3), (8, 2)], 1);
        let with = |at: usize, number: u64| {
            let mut bytes = good.clone();
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
            bytes
        };
        let bad = [
            good[..good.len() - 1].to_vec(),
            good[..10].to_vec(),
            with(0, 7),
            with(8, MEMORY + PAGE),
            with(16, u64::MAX),
            with(16, 17),
            with(24, 15),
            with(24, u64::MAX),
            with(32, 0),
            with(32, u64::MAX),
            with(40, 2),
        ];
        for (number, bytes) in bad.iter().enumerate() {
            assert!(open(bytes).is_err(), "case {number}");
        }
    }
}
