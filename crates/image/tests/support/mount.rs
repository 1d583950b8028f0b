//! Reads a converted disk back: mounted by the kernel where that is possible, so that what is seen is what a guest sees.

use super::Exported;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use warren_image::Disk;

/// What is seen of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub kind: &'static str,
    pub mode: u32,
    pub owner: (u32, u32),
    pub links: u64,
    pub size: u64,
    pub mtime: (i64, i64),
    pub device: u64,
    pub inode: u64,
    pub blocks: u64,
}

/// A disk that is mounted read-only until this goes. Needs root, as these tests do.
pub struct Mounted {
    dir: tempfile::TempDir,
    _disk: Exported,
}

impl Mounted {
    pub fn new(disk: &Disk) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = Exported::new(disk);
        let mount = ["-o", "loop,ro,noload"];
        let status = Command::new("mount").args(mount).arg(disk.path()).arg(dir.path()).status().unwrap();
        assert!(status.success(), "mounting needs root and a loop device");
        Self { dir, _disk: disk }
    }

    pub fn path(&self, inside: impl AsRef<[u8]>) -> PathBuf {
        self.dir.path().join(OsStr::from_bytes(inside.as_ref()))
    }

    pub fn read(&self, inside: impl AsRef<[u8]>) -> Vec<u8> {
        std::fs::read(self.path(inside)).unwrap()
    }

    pub fn exists(&self, inside: impl AsRef<[u8]>) -> bool {
        self.path(inside).symlink_metadata().is_ok()
    }

    pub fn link(&self, inside: impl AsRef<[u8]>) -> Vec<u8> {
        std::fs::read_link(self.path(inside)).unwrap().into_os_string().into_vec()
    }

    pub fn seen(&self, inside: impl AsRef<[u8]>) -> Seen {
        let m = self.path(inside).symlink_metadata().unwrap();
        let t = m.file_type();
        let kind = match () {
            () if t.is_dir() => "dir",
            () if t.is_symlink() => "symlink",
            () if t.is_char_device() => "char",
            () if t.is_block_device() => "block",
            () if t.is_fifo() => "fifo",
            () if t.is_socket() => "socket",
            () => "file",
        };
        Seen {
            kind,
            mode: m.mode() & 0o7777,
            owner: (m.uid(), m.gid()),
            links: m.nlink(),
            size: m.size(),
            mtime: (m.mtime(), m.mtime_nsec()),
            device: m.rdev(),
            inode: m.ino(),
            blocks: m.blocks(),
        }
    }

    /// Names in a directory, `lost+found` left out.
    pub fn names(&self, inside: impl AsRef<[u8]>) -> Vec<Vec<u8>> {
        let entries = std::fs::read_dir(self.path(inside)).unwrap();
        let mut names: Vec<Vec<u8>> = entries.map(|e| e.unwrap().file_name().into_vec()).collect();
        names.retain(|name| name != b"lost+found");
        names.sort();
        names
    }

    /// Extended attributes that this user may read.
    pub fn xattrs(&self, inside: impl AsRef<[u8]>) -> BTreeMap<String, Vec<u8>> {
        let path = self.path(inside);
        let mut names = vec![0u8; 4096];
        let len = rustix::fs::llistxattr(&path, &mut names[..]).unwrap();
        let names = names[..len].split(|b| *b == 0).filter(|n| !n.is_empty());
        names
            .map(|name| {
                let name = std::str::from_utf8(name).unwrap();
                let mut value = vec![0u8; 8192];
                let len = rustix::fs::lgetxattr(&path, name, &mut value[..]).unwrap();
                value.truncate(len);
                (name.to_owned(), value)
            })
            .collect()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.dir.path()).status();
    }
}

/// A small file system in memory, for as long as this lives.
pub struct Tmpfs {
    dir: tempfile::TempDir,
}

impl Tmpfs {
    pub fn new(options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path()).status().unwrap();
        assert!(status.success(), "mounting needs root");
        Self { dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.dir.path()).status();
    }
}
