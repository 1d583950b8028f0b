//! An empty qcow2 overlay. What it lies on is told to QEMU when it is opened, and nowhere in the file. Written here because `qemu-img create` costs a process on each sandbox's way to its first command.
//!
//! Format: QEMU's `docs/interop/qcow2.txt`, version 3.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

const CLUSTER_BITS: u32 = 16;
const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// Bytes of one piece that an overlay can start with.
pub const OVERLAY_PIECE: u64 = CLUSTER;
/// Most pieces: they and their tables are counted by one refcount block.
const PIECES_MAX: usize = 8192;
const REFCOUNT_TABLE_AT: u64 = CLUSTER;
const REFCOUNT_BLOCK_AT: u64 = 2 * CLUSTER;
const L1_TABLE_AT: u64 = 3 * CLUSTER;
/// Flag of a table entry: the cluster has one user and may be written in place.
const COPIED: u64 = 1 << 63;
/// Bytes of guest disk that one L1 entry maps: a cluster of L2 entries, 8 bytes each.
const PER_L1_ENTRY: u64 = CLUSTER / 8 * CLUSTER;
/// Refcounts are 16 bits wide (order 4).
const REFCOUNT_ORDER: u32 = 4;
const HEADER_LEN: u32 = 104;
/// Where the header holds the virtual size, bytes.
const SIZE_AT: u64 = 24;
/// Largest virtual disk: its L1 table fits in one cluster. Bytes.
const SIZE_MAX: u64 = CLUSTER / 8 * PER_L1_ENTRY;
/// Why an overlay could not be made.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// Size is zero, not a multiple of 512, or over what one L1 cluster maps.
    #[error("a disk of {0} bytes cannot be made: it must be a multiple of 512 up to {SIZE_MAX}")]
    Size(u64),
    /// Pieces are not whole clusters in ascending order within the disk.
    #[error("what the disk is to start with is not made of whole clusters in order")]
    Pieces,
    /// The file system refused.
    #[error("write {path}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// The first cluster's content.
fn header(size: u64) -> Vec<u8> {
    let l1_entries = size.div_ceil(PER_L1_ENTRY) as u32;
    let mut out = Vec::with_capacity(HEADER_LEN as usize + 8);
    out.extend_from_slice(b"QFI\xfb");
    let word32 = |out: &mut Vec<u8>, v: u32| out.extend_from_slice(&v.to_be_bytes());
    let word64 = |out: &mut Vec<u8>, v: u64| out.extend_from_slice(&v.to_be_bytes());
    word32(&mut out, 3); // version
    word64(&mut out, 0); // no name of what it lies on
    word32(&mut out, 0); // of no length
    word32(&mut out, CLUSTER_BITS);
    word64(&mut out, size);
    word32(&mut out, 0); // no encryption
    word32(&mut out, l1_entries);
    word64(&mut out, L1_TABLE_AT);
    word64(&mut out, REFCOUNT_TABLE_AT);
    word32(&mut out, 1); // its clusters
    word32(&mut out, 0); // internal snapshots
    word64(&mut out, 0); // their table
    word64(&mut out, 0); // incompatible features
    word64(&mut out, 0); // compatible features
    word64(&mut out, 0); // autoclear features
    word32(&mut out, REFCOUNT_ORDER);
    word32(&mut out, HEADER_LEN);
    word64(&mut out, 0); // end of extensions
    out
}

/// Makes `path` a qcow2 of `size` bytes, with `pieces` written into it: clusters of
/// [`OVERLAY_PIECE`] bytes by offset, ascending. Fails if `path` exists.
///
/// Layout: header, refcount table, refcount block, L1 table, one cluster each, then an L2 table before the first piece of each
/// part of the disk that needs one; the file is sparse.
pub fn create_overlay(path: &Path, size: u64, pieces: &[(u64, &[u8])]) -> Result<(), OverlayError> {
    if size == 0 || !size.is_multiple_of(512) || size > SIZE_MAX {
        return Err(OverlayError::Size(size));
    }
    let sound = |pair: &[(u64, &[u8])]| pair[0].0 < pair[1].0;
    let fits =
        |piece: &(u64, &[u8])| piece.0.is_multiple_of(CLUSTER) && piece.1.len() as u64 == CLUSTER && piece.0 < size;
    if !pieces.iter().all(fits) || !pieces.windows(2).all(sound) || pieces.len() > PIECES_MAX {
        return Err(OverlayError::Pieces);
    }
    write(path, &header(size), pieces).map_err(|source| OverlayError::Io { path: path.display().to_string(), source })
}

/// The size that a qcow2's guest sees, bytes.
pub(crate) fn virtual_size(path: &Path) -> std::io::Result<u64> {
    let mut size = [0; 8];
    std::fs::File::open(path)?.read_exact_at(&mut size, SIZE_AT)?;
    Ok(u64::from_be_bytes(size))
}

fn write(path: &Path, header: &[u8], pieces: &[(u64, &[u8])]) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all_at(header, 0)?;
    file.write_all_at(&(REFCOUNT_BLOCK_AT).to_be_bytes(), REFCOUNT_TABLE_AT)?;
    let mut clusters = 4;
    let mut l2 = None;
    for (offset, bytes) in pieces {
        let l1_index = offset / PER_L1_ENTRY;
        let table = match l2 {
            Some((index, table)) if index == l1_index => table,
            _ => {
                let table = clusters * CLUSTER;
                clusters += 1;
                file.write_all_at(&(table | COPIED).to_be_bytes(), L1_TABLE_AT + 8 * l1_index)?;
                l2 = Some((l1_index, table));
                table
            }
        };
        let data = clusters * CLUSTER;
        clusters += 1;
        file.write_all_at(&(data | COPIED).to_be_bytes(), table + 8 * (offset % PER_L1_ENTRY / CLUSTER))?;
        file.write_all_at(bytes, data)?;
    }
    let refcounts: Vec<u8> = (0..clusters).flat_map(|_| 1u16.to_be_bytes()).collect();
    file.write_all_at(&refcounts, REFCOUNT_BLOCK_AT)?;
    file.set_len(clusters * CLUSTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::overlay_node;
    use std::process::Command;
    use warren_proto::shim::{DiskBase, ImageDisk};

    fn check(overlay: &Path) {
        let check = Command::new("qemu-img").arg("check").arg(overlay).output().unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    }

    /// What a guest reads that has `overlay` on `image`.
    fn read_through(overlay: &Path, image: ImageDisk) -> Vec<u8> {
        let raw = overlay.with_extension("read");
        let node = overlay_node("root", overlay, &DiskBase { image, layers: Vec::new() });
        let source = format!("json:{node}");
        let convert = Command::new("qemu-img").args(["convert", "-O", "raw", &source]).arg(&raw).output().unwrap();
        assert!(convert.status.success(), "{}", String::from_utf8_lossy(&convert.stderr));
        std::fs::read(&raw).unwrap()
    }

    #[test]
    fn qemu_img_finds_it_sound_and_reads_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base,odd \"name\".raw");
        std::fs::write(&base, vec![7u8; 1 << 20]).unwrap();
        for size in [1 << 20, 5 << 30, 3 << 40] {
            let overlay = dir.path().join(format!("{size}.qcow2"));
            create_overlay(&overlay, size, &[]).unwrap();
            check(&overlay);
            let info = Command::new("qemu-img").args(["info", "--output=json"]).arg(&overlay).output().unwrap();
            let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
            assert_eq!(info["virtual-size"], serde_json::json!(size));
            assert_eq!(virtual_size(&overlay).unwrap(), size);
            assert!(info["backing-filename"].is_null());
        }
        let overlay = dir.path().join(format!("{}.qcow2", 1 << 20));
        assert_eq!(read_through(&overlay, ImageDisk::Raw(base.clone())), std::fs::read(&base).unwrap());
    }

    #[test]
    fn impossible_sizes_are_refused_and_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for size in [0, 1, 513, u64::MAX, SIZE_MAX + 512] {
            let path = dir.path().join("x");
            assert!(matches!(create_overlay(&path, size, &[]), Err(OverlayError::Size(_))));
            assert!(!path.exists());
        }
    }

    #[test]
    fn pieces_lie_over_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let (base, overlay) = (dir.path().join("base"), dir.path().join("overlay"));
        std::fs::write(&base, vec![7u8; 1 << 20]).unwrap();
        let (a, b) = ([1u8; CLUSTER as usize], [2u8; CLUSTER as usize]);
        let size = 2 << 30;
        create_overlay(&overlay, size, &[(0, &a), (CLUSTER, &b), (1 << 30, &a)]).unwrap();
        check(&overlay);
        let read = read_through(&overlay, ImageDisk::Raw(base));
        assert_eq!(
            [0, CLUSTER, 2 * CLUSTER, 1 << 20, 1 << 30, (1 << 30) + CLUSTER].map(|at| read[at as usize]),
            [1, 2, 7, 0, 1, 0]
        );
        for bad in [&[(1u64, &a[..])][..], &[(0, &a[..9])], &[(CLUSTER, &a[..]), (0, &a[..])], &[(size, &a[..])]] {
            let path = dir.path().join("bad");
            assert!(matches!(create_overlay(&path, size, bad), Err(OverlayError::Pieces)));
        }
    }

    #[test]
    fn an_image_may_start_within_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, file) = (dir.path().join("inner"), dir.path().join("odd, \"name\""));
        create_overlay(&inner, 1 << 20, &[(CLUSTER, &[7; CLUSTER as usize])]).unwrap();
        std::fs::write(&file, [vec![0; 3 << 16], std::fs::read(&inner).unwrap()].concat()).unwrap();
        let overlay = dir.path().join("overlay");
        create_overlay(&overlay, 2 << 20, &[]).unwrap();
        let read = read_through(&overlay, ImageDisk::Within { file, offset: 3 << 16 });
        assert_eq!([0, CLUSTER as usize, 2 * CLUSTER as usize].map(|at| read[at]), [0, 7, 0]);
    }
}
