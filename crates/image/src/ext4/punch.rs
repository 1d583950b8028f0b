//! Gives the blocks of overwritten files back to the host.

use super::alloc::Run;
use super::layout::BLOCK;
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;

/// Makes holes of `runs`. Best effort: where the host's file system cannot, the blocks just stay.
pub(super) fn punch(file: &File, mut runs: Vec<Run>) {
    runs.sort_unstable();
    for run in join(runs) {
        let (at, len) = (run.start * BLOCK as u64, run.len * BLOCK as u64);
        if fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, len).is_err() {
            return;
        }
    }
}

fn join(sorted: Vec<Run>) -> Vec<Run> {
    let mut out: Vec<Run> = Vec::new();
    for run in sorted {
        match out.last_mut() {
            Some(last) if last.start + last.len == run.start => last.len += run.len,
            _ => out.push(run),
        }
    }
    out
}
