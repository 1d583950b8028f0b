//! Tars and images made in memory, and checks of disks.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod image;
pub mod mount;
pub mod registry;

use std::path::PathBuf;
use std::process::Command;
use warren_image::Disk;

use warren_image::{Ask, Image, Store};
use warren_model::ImageAccess;
use warren_proto::node::ImageError;

/// Asks as somebody without a login of his own.
pub(crate) trait Have {
    fn have(&self, reference: &str) -> impl Future<Output = Result<Image, ImageError>> + Send;
}

impl Have for Store {
    async fn have(&self, reference: &str) -> Result<Image, ImageError> {
        self.ensure(reference, &ImageAccess::default(), Ask::IfStale).await
    }
}

/// Bytes of a tar record.
const RECORD: usize = 512;
/// A time that a plain header can say.
pub const PLAIN_MTIME: &str = "1700000000";

/// One entry of a tar to be made.
#[derive(Clone)]
pub(crate) struct TarFile {
    pub path: Vec<u8>,
    pub kind: u8,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: String,
    pub link: Vec<u8>,
    pub device: (u32, u32),
    pub xattrs: Vec<(&'static str, Vec<u8>)>,
    pub data: Vec<u8>,
    /// Offsets and lengths of stored data, and the length of the file: written as PAX 1.0 sparse.
    pub sparse: Option<(Vec<(usize, usize)>, usize)>,
}

impl TarFile {
    pub(crate) fn new(path: impl AsRef<[u8]>, kind: u8) -> Self {
        Self {
            path: path.as_ref().to_vec(),
            kind,
            mode: if kind == b'5' { 0o755 } else { 0o644 },
            uid: 0,
            gid: 0,
            mtime: "1700000000.123456789".to_owned(),
            link: Vec::new(),
            device: (0, 0),
            xattrs: Vec::new(),
            data: Vec::new(),
            sparse: None,
        }
    }

    pub(crate) fn file(path: impl AsRef<[u8]>, data: &[u8]) -> Self {
        Self { data: data.to_vec(), ..Self::new(path, b'0') }
    }

    pub(crate) fn dir(path: impl AsRef<[u8]>) -> Self {
        Self::new(path, b'5')
    }

    pub(crate) fn symlink(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        Self { link: target.as_ref().to_vec(), ..Self::new(path, b'2') }
    }

    pub(crate) fn hard_link(path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Self {
        Self { link: target.as_ref().to_vec(), ..Self::new(path, b'1') }
    }

    pub(crate) fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    pub(crate) fn owner(self, uid: u32, gid: u32) -> Self {
        Self { uid, gid, ..self }
    }

    pub(crate) fn xattr(mut self, name: &'static str, value: &[u8]) -> Self {
        self.xattrs.push((name, value.to_vec()));
        self
    }
}

/// A whole tar.
pub(crate) fn root_tar(files: &[TarFile]) -> Vec<u8> {
    let mut out = Vec::new();
    files.iter().for_each(|file| put(&mut out, file));
    out.resize(out.len() + 2 * RECORD, 0);
    out
}

fn put(out: &mut Vec<u8>, file: &TarFile) {
    let mut pax = Vec::new();
    let mut data = file.data.clone();
    put_pax(&mut pax, "path", &file.path);
    put_pax(&mut pax, "mtime", file.mtime.as_bytes());
    if !file.link.is_empty() {
        put_pax(&mut pax, "linkpath", &file.link);
    }
    for (name, value) in &file.xattrs {
        put_pax(&mut pax, &format!("SCHILY.xattr.{name}"), value);
    }
    if let Some((segments, size)) = &file.sparse {
        put_pax(&mut pax, "GNU.sparse.major", b"1");
        put_pax(&mut pax, "GNU.sparse.minor", b"0");
        put_pax(&mut pax, "GNU.sparse.name", &file.path);
        put_pax(&mut pax, "GNU.sparse.realsize", size.to_string().as_bytes());
        let mut map = format!("{}\n", segments.len());
        segments.iter().for_each(|(offset, len)| map.push_str(&format!("{offset}\n{len}\n")));
        let mut whole = map.into_bytes();
        whole.resize(whole.len().next_multiple_of(RECORD), 0);
        whole.append(&mut data);
        data = whole;
    }
    let plain = file.link.is_empty() && file.xattrs.is_empty() && file.sparse.is_none() && file.mtime == PLAIN_MTIME;
    if plain && file.path.len() <= 100 {
        put_record(out, &file.path, file.kind, file, data.len());
    } else {
        put_record(out, b"pax", b'x', file, pax.len());
        put_data(out, &pax);
        put_record(out, b"entry", file.kind, file, data.len());
    }
    put_data(out, &data);
}

fn put_pax(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let body = key.len() + value.len() + 3;
    let mut len = body + 1;
    while len != body + len.to_string().len() {
        len = body + len.to_string().len();
    }
    out.extend_from_slice(format!("{len} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn put_record(out: &mut Vec<u8>, name: &[u8], kind: u8, file: &TarFile, size: usize) {
    let mut record = [0u8; RECORD];
    let mut text = |at: usize, value: &[u8]| record[at..at + value.len()].copy_from_slice(value);
    text(0, name);
    text(100, format!("{:07o}", file.mode).as_bytes());
    text(108, format!("{:07o}", file.uid).as_bytes());
    text(116, format!("{:07o}", file.gid).as_bytes());
    text(124, format!("{size:011o}").as_bytes());
    text(136, format!("{:011o}", file.mtime.parse::<u64>().unwrap_or(0)).as_bytes());
    text(148, b"        ");
    text(156, &[kind]);
    text(257, b"ustar\x0000");
    text(329, format!("{:07o}", file.device.0).as_bytes());
    text(337, format!("{:07o}", file.device.1).as_bytes());
    let sum: u32 = record.iter().map(|b| u32::from(*b)).sum();
    record[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    out.extend_from_slice(&record);
}

fn put_data(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(RECORD), 0);
}

/// A disk of a store as a plain file, while this lives.
pub(crate) struct Exported {
    dir: tempfile::TempDir,
}

impl Exported {
    pub(crate) fn new(disk: &Disk) -> Self {
        let dir = tempfile::tempdir().unwrap();
        disk.export(&dir.path().join("disk")).unwrap();
        Self { dir }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }
}

/// Fails unless `e2fsck` finds nothing to mend.
pub(crate) fn fsck(disk: &Disk) {
    let check = Command::new("e2fsck").arg("-fn").arg(Exported::new(disk).path()).output().unwrap();
    let said = String::from_utf8_lossy(&check.stdout);
    assert!(check.status.success(), "{said}");
}
