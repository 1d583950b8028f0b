//! An empty qcow2 overlay on an image. Written here because `qemu-img create` costs a process on each sandbox's way to its first command.
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
const EXTENSION_BACKING_FORMAT: u32 = 0xE279_2ACA;
/// Longest backing file name that the format allows, bytes.
const BACKING_LEN_MAX: usize = 1023;

/// Longest that reads wait for a server that went away, seconds: a node's restart.
const RECONNECT_WAIT_SECS_MAX: u64 = 3600;

/// What an overlay lies on.
#[derive(Debug, Clone, Copy)]
pub enum Backing<'a> {
    /// A raw disk.
    Raw(&'a Path),
    /// A layer that a VMM wrote: a qcow2, relative to the folder of the overlay.
    Layer(&'a Path),
    /// A qcow2 that starts somewhere within a file.
    Within {
        /// The file; its name must be UTF-8.
        file: &'a Path,
        /// Where its header is, bytes.
        offset: u64,
    },
    /// A raw disk that a server of network block devices has, on a unix socket; relative to the VM's folder. While the server is away, reads wait.
    Served(&'a Path),
}

impl Backing<'_> {
    /// As QEMU takes it: name and format.
    fn name(&self) -> Option<(Vec<u8>, &'static str)> {
        use std::os::unix::ffi::OsStrExt;
        match self {
            Backing::Raw(path) => Some((path.as_os_str().as_bytes().to_vec(), "raw")),
            Backing::Layer(path) => Some((path.as_os_str().as_bytes().to_vec(), "qcow2")),
            Backing::Within { file, offset } => {
                let file = serde_json::json!({"driver": "file", "filename": file.to_str()?, "locking": "off"});
                let raw = serde_json::json!({"driver": "raw", "offset": offset, "file": file});
                let node = serde_json::json!({"driver": "qcow2", "file": raw});
                Some((format!("json:{node}").into_bytes(), "qcow2"))
            }
            Backing::Served(socket) => {
                let server = serde_json::json!({"type": "unix", "path": socket.to_str()?});
                let nbd =
                    serde_json::json!({"driver": "nbd", "server": server, "reconnect-delay": RECONNECT_WAIT_SECS_MAX});
                let node = serde_json::json!({"driver": "raw", "file": nbd});
                Some((format!("json:{node}").into_bytes(), "raw"))
            }
        }
    }
}

/// Why an overlay could not be made.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// Size is zero, not a multiple of 512, or over what one L1 cluster maps.
    #[error("a disk of {0} bytes cannot be made: it must be a multiple of 512 up to {SIZE_MAX}")]
    Size(u64),
    /// The backing file's name is too long for the format, or not one that QEMU can be told.
    #[error("backing file name is over {BACKING_LEN_MAX} bytes, or not UTF-8")]
    BackingName,
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
    word32(&mut out, EXTENSION_BACKING_FORMAT);
    word32(&mut out, backing_format.len() as u32);
    out.extend_from_slice(backing_format);
    out.resize(HEADER_LEN as usize + extension_len - 8, 0);
    word64(&mut out, 0); // end of extensions
    out.extend_from_slice(backing);
    out
}

/// Makes `path` a qcow2 of `size` bytes over `backing`, with `pieces` written into it: clusters of
/// [`OVERLAY_PIECE`] bytes by offset, ascending. Fails if `path` exists.
///
/// Layout: header, refcount table, refcount block, L1 table, one cluster each, then an L2 table before the first piece of each
/// part of the disk that needs one; the file is sparse.
pub fn create_overlay(
    path: &Path,
    backing: Backing<'_>,
    size: u64,
    pieces: &[(u64, &[u8])],
) -> Result<(), OverlayError> {
    if size == 0 || !size.is_multiple_of(512) || size > SIZE_MAX {
        return Err(OverlayError::Size(size));
    }
    let (name, format) =
        backing.name().filter(|(name, _)| name.len() <= BACKING_LEN_MAX).ok_or(OverlayError::BackingName)?;
    let sound = |pair: &[(u64, &[u8])]| pair[0].0 < pair[1].0;
    let fits =
        |piece: &(u64, &[u8])| piece.0.is_multiple_of(CLUSTER) && piece.1.len() as u64 == CLUSTER && piece.0 < size;
    if !pieces.iter().all(fits) || !pieces.windows(2).all(sound) || pieces.len() > PIECES_MAX {
        return Err(OverlayError::Pieces);
    }
    write(path, &header(&name, format.as_bytes(), size), pieces)
        .map_err(|source| OverlayError::Io { path: path.display().to_string(), source })
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
    use std::process::Command;

    #[test]
    fn qemu_img_finds_it_sound_and_reads_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base,odd name.raw");
        std::fs::write(&base, vec![7u8; 1 << 20]).unwrap();
        for size in [1 << 20, 5 << 30, 3 << 40] {
            let overlay = dir.path().join(format!("{size}.qcow2"));
            create_overlay(&overlay, Backing::Raw(&base), size, &[]).unwrap();
            let check = Command::new("qemu-img").arg("check").arg(&overlay).output().unwrap();
            assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
            let info = Command::new("qemu-img").args(["info", "--output=json"]).arg(&overlay).output().unwrap();
            let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
            assert_eq!(info["virtual-size"], serde_json::json!(size));
            assert_eq!(virtual_size(&overlay).unwrap(), size);
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
            assert!(matches!(
                create_overlay(&path, Backing::Raw(Path::new("/b")), size, &[]),
                Err(OverlayError::Size(_))
            ));
            assert!(!path.exists());
        }
    }

    #[test]
    fn pieces_lie_over_the_image() {
        let dir = tempfile::tempdir().unwrap();
        let (base, overlay, raw) = (dir.path().join("base"), dir.path().join("overlay"), dir.path().join("raw"));
        std::fs::write(&base, vec![7u8; 1 << 20]).unwrap();
        let (a, b) = ([1u8; CLUSTER as usize], [2u8; CLUSTER as usize]);
        let size = 2 << 30;
        create_overlay(&overlay, Backing::Raw(&base), size, &[(0, &a), (CLUSTER, &b), (1 << 30, &a)]).unwrap();
        let check = Command::new("qemu-img").arg("check").arg(&overlay).output().unwrap();
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
        assert!(
            Command::new("qemu-img").args(["convert", "-O", "raw"]).args([&overlay, &raw]).status().unwrap().success()
        );
        let read = |at: u64| {
            let mut byte = [0];
            std::fs::File::open(&raw).unwrap().read_exact_at(&mut byte, at).unwrap();
            byte[0]
        };
        assert_eq!([0, CLUSTER, 2 * CLUSTER, 1 << 20, 1 << 30, (1 << 30) + CLUSTER].map(read), [1, 2, 7, 0, 1, 0]);
        for bad in [&[(1u64, &a[..])][..], &[(0, &a[..9])], &[(CLUSTER, &a[..]), (0, &a[..])], &[(size, &a[..])]] {
            let path = dir.path().join("bad");
            assert!(matches!(create_overlay(&path, Backing::Raw(&base), size, bad), Err(OverlayError::Pieces)));
        }
    }

    #[test]
    fn an_image_may_start_within_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (inner, file) = (dir.path().join("inner"), dir.path().join("odd, \"name\""));
        create_overlay(&inner, Backing::Raw(Path::new("/dev/null")), 1 << 20, &[(CLUSTER, &[7; CLUSTER as usize])])
            .unwrap();
        let mut bytes = std::fs::read(&inner).unwrap();
        // Without a backing file of its own.
        bytes[8..20].fill(0);
        std::fs::write(&file, [vec![0; 3 << 16], bytes].concat()).unwrap();
        let (overlay, raw) = (dir.path().join("overlay"), dir.path().join("raw"));
        create_overlay(&overlay, Backing::Within { file: &file, offset: 3 << 16 }, 2 << 20, &[]).unwrap();
        assert!(
            Command::new("qemu-img").args(["convert", "-O", "raw"]).args([&overlay, &raw]).status().unwrap().success()
        );
        let read = std::fs::read(&raw).unwrap();
        assert_eq!([0, CLUSTER as usize, 2 * CLUSTER as usize].map(|at| read[at]), [0, 7, 0]);
    }
}
