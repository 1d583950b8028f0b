//! An empty qcow2 overlay on a raw image. Written here because `qemu-img create` costs a process on each sandbox's way to its first command.
//!
//! Format: QEMU's `docs/interop/qcow2.txt`, version 3.

use std::fs::OpenOptions;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// Bytes of guest disk that one L1 entry maps: a cluster of L2 entries, 8 bytes each.
const PER_L1_ENTRY: u64 = CLUSTER / 8 * CLUSTER;
/// Refcounts are 16 bits wide (order 4).
const REFCOUNT_ORDER: u32 = 4;
const HEADER_LEN: u32 = 104;
/// Largest virtual disk: its L1 table fits in one cluster. Bytes.
const SIZE_MAX: u64 = CLUSTER / 8 * PER_L1_ENTRY;
const EXTENSION_BACKING_FORMAT: u32 = 0xE279_2ACA;
/// Longest backing file name that the format allows, bytes.
const BACKING_LEN_MAX: usize = 1023;

/// Why an overlay could not be made.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// Size is zero, not a multiple of 512, or over what one L1 cluster maps.
    #[error("a disk of {0} bytes cannot be made: it must be a multiple of 512 up to {SIZE_MAX}")]
    Size(u64),
    /// The backing file's name is too long for the format.
    #[error("backing file name is over {BACKING_LEN_MAX} bytes")]
    BackingName,
    /// The file system refused.
    #[error("write {path}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Header, backing format extension and backing name: the first cluster's content.
fn header(backing: &[u8], backing_format: &[u8], size: u64) -> Vec<u8> {
    let l1_entries = size.div_ceil(PER_L1_ENTRY) as u32;
    let extension_len = 8 + backing_format.len().next_multiple_of(8) + 8;
    let backing_offset = u64::from(HEADER_LEN) + extension_len as u64;
    let mut out = Vec::with_capacity(256 + backing.len());
    out.extend_from_slice(b"QFI\xfb");
    let word32 = |out: &mut Vec<u8>, v: u32| out.extend_from_slice(&v.to_be_bytes());
    let word64 = |out: &mut Vec<u8>, v: u64| out.extend_from_slice(&v.to_be_bytes());
    word32(&mut out, 3);
    word64(&mut out, backing_offset);
    word32(&mut out, backing.len() as u32);
    word32(&mut out, CLUSTER_BITS);
    word64(&mut out, size);
    word32(&mut out, 0); // no encryption
    word32(&mut out, l1_entries);
    word64(&mut out, 3 * CLUSTER); // L1 table
    word64(&mut out, CLUSTER); // refcount table
    word32(&mut out, 1); // its clusters
    word32(&mut out, 0); // internal snapshots
    word64(&mut out, 0); // their table
    word64(&mut out, 0); // incompatible features
    word64(&mut out, 0); // compatible features
    word64(&mut out, 0); // autoclear features
    word32(&mut out, REFCOUNT_ORDER);
    word32(&mut out, HEADER_LEN);
    word32(&mut out, EXTENSION_BACKING_FORMAT);
    word32(&mut out, backing_format.len() as u32);
    out.extend_from_slice(backing_format);
    out.resize(HEADER_LEN as usize + extension_len - 8, 0);
    word64(&mut out, 0); // end of extensions
    out.extend_from_slice(backing);
    out
}

/// Makes `path` an empty qcow2 of `size` bytes over the raw file `backing`. Fails if `path` exists.
///
/// Layout: header, refcount table, refcount block, L1 table, one cluster each; the file is sparse.
pub fn create_overlay(path: &Path, backing: &Path, size: u64) -> Result<(), OverlayError> {
    use std::os::unix::ffi::OsStrExt;
    if size == 0 || !size.is_multiple_of(512) || size > SIZE_MAX {
        return Err(OverlayError::Size(size));
    }
    let backing = backing.as_os_str().as_bytes();
    if backing.len() > BACKING_LEN_MAX {
        return Err(OverlayError::BackingName);
    }
    write(path, backing, size).map_err(|source| OverlayError::Io { path: path.display().to_string(), source })
}

fn write(path: &Path, backing: &[u8], size: u64) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(&header(backing, b"raw", size))?;
    file.seek(SeekFrom::Start(CLUSTER))?;
    file.write_all(&(2 * CLUSTER).to_be_bytes())?;
    file.seek(SeekFrom::Start(2 * CLUSTER))?;
    for _ in 0..4 {
        file.write_all(&1u16.to_be_bytes())?;
    }
    file.set_len(4 * CLUSTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn qemu_img_finds_it_sound_and_reads_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base,odd name.raw");
        std::fs::write(&base, vec![7u8; 1 << 20]).unwrap();
        for size in [1 << 20, 5 << 30, 3 << 40] {
            let overlay = dir.path().join(format!("{size}.qcow2"));
            create_overlay(&overlay, &base, size).unwrap();
            let check = Command::new("qemu-img").arg("check").arg(&overlay).output().unwrap();
            assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
            let info = Command::new("qemu-img").args(["info", "--output=json"]).arg(&overlay).output().unwrap();
            let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
            assert_eq!(info["virtual-size"], serde_json::json!(size));
            assert_eq!(info["backing-filename-format"], "raw");
        }
        let raw = dir.path().join("out.raw");
        let overlay = dir.path().join(format!("{}.qcow2", 1 << 20));
        let convert = Command::new("qemu-img").args(["convert", "-O", "raw"]).args([&overlay, &raw]).status().unwrap();
        assert!(convert.success());
        assert_eq!(std::fs::read(&raw).unwrap(), std::fs::read(&base).unwrap());
    }

    #[test]
    fn impossible_sizes_are_refused_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for size in [0, 1, 513, u64::MAX, SIZE_MAX + 512] {
            let path = dir.path().join("x");
            assert!(matches!(create_overlay(&path, Path::new("/b"), size), Err(OverlayError::Size(_))));
            assert!(!path.exists());
        }
    }
}
