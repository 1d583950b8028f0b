//! The output of a build, kept in a file up to a limit, and its last words in memory.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// Last words that an error shows, bytes.
const TAIL_LEN_MAX: usize = 2048;
/// Ends a file that has no room for more.
const CUT: &[u8] = b"\n==> the rest of the output is not kept\n";

/// Where output goes. A disk that takes nothing more loses the log, not the build.
pub(super) struct Log {
    file: Option<File>,
    left: u64,
    tail: Vec<u8>,
}

impl Log {
    /// Appends to `path`, up to `len_max` bytes in all.
    pub(super) fn open(path: &Path, len_max: u64) -> Self {
        let opened = OpenOptions::new().append(true).create(true).open(path);
        let file = opened.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "no log of a build")).ok();
        let len = file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |meta| meta.len());
        Self { file, left: len_max.saturating_sub(len), tail: Vec::new() }
    }

    /// Adds output.
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.tail.extend_from_slice(piece);
        let surplus = self.tail.len().saturating_sub(TAIL_LEN_MAX);
        self.tail.drain(..surplus);
        let Some(file) = &mut self.file else { return };
        let kept = usize::try_from(self.left).unwrap_or(usize::MAX).min(piece.len());
        self.left -= kept as u64;
        let written = file.write_all(&piece[..kept]).and_then(|()| match kept < piece.len() {
            true => file.write_all(CUT),
            false => Ok(()),
        });
        if written.is_err() || kept < piece.len() {
            self.file = None;
        }
    }

    /// The last words, as text.
    pub(super) fn tail(&self) -> String {
        let text = String::from_utf8_lossy(&self.tail);
        text.chars().filter(|c| !c.is_control() || *c == '\n').collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_bounded_over_all_attempts_and_knows_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        Log::open(&path, 10).add(b"12345");
        let mut log = Log::open(&path, 10);
        log.add(b"67890");
        log.add(b"and more\x1b[0m");
        log.add(b"!");
        assert_eq!(std::fs::read(&path).unwrap(), [b"1234567890", CUT].concat());
        assert_eq!(log.tail(), "67890and more[0m!");
        log.add(&[b'x'; 5000]);
        assert_eq!(log.tail().len(), TAIL_LEN_MAX);
    }
}
