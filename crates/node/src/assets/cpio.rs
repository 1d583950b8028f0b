//! The archive format of an initramfs ("newc"); see the kernel's `driver-api/early-userspace/buffer-format`. Pure.

/// An archive that is being written into memory.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inodes: u32,
}

const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_000;

impl Archive {
    /// Adds a directory. Parents come first.
    pub(crate) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    /// Adds a file with its permissions.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, REGULAR | mode, content);
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.pad();
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inodes += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // magic, then inode, mode, uid, gid, links, mtime, size, device major and minor, rdev major and minor, name length, checksum
        let fields = [self.inodes, mode, 0, 0, links, 0, content.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn cpio_reads_it_back() {
        let mut archive = Archive::default();
        archive.directory("lib");
        archive.file("lib/odd", 0o640, b"abc");
        archive.file("init", 0o755, &[1; 4097]);
        let dir = tempfile::tempdir().unwrap();
        let mut cpio =
            Command::new("cpio").args(["-idm", "--quiet"]).current_dir(&dir).stdin(Stdio::piped()).spawn().unwrap();
        cpio.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        assert!(cpio.wait().unwrap().success());
        assert_eq!(std::fs::read(dir.path().join("lib/odd")).unwrap(), b"abc");
        assert_eq!(std::fs::read(dir.path().join("init")).unwrap(), vec![1; 4097]);
    }
}
