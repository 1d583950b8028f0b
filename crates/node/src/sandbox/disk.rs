//! A sandbox's disk: an overlay on its image, as large as was asked for from the first moment.

use super::arriving::Blocking;
use std::path::{Path, PathBuf};
use warren_image::Image;
use warren_image::ext4::PIECE;
use warren_image::ext4::grow::{GrowError, ReadAt, grow, rounded_size};
use warren_vmm::{Backing, OVERLAY_PIECE, OverlayError, create_overlay};

// A piece of the grown file system is one piece of an overlay.
const _: () = assert!(PIECE == OVERLAY_PIECE);

/// Why a disk could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error("read the image's disk: {0}")]
    Grow(#[from] GrowError),
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    #[error(transparent)]
    Failed(#[from] tokio::task::JoinError),
}

/// Makes `overlay` on the disk of an image, through `socket` if the image is still arriving. `disk_mib` is rounded up to whole block
/// groups, 128 MiB. Waits for the parts of the disk that say how large it is.
pub(crate) async fn make(overlay: PathBuf, image: Image, socket: &'static str, disk_mib: u64) -> Result<(), DiskError> {
    let runtime = tokio::runtime::Handle::current();
    let made = tokio::task::spawn_blocking(move || match image.arrival {
        Some(arrival) => {
            let size = arrival.size();
            lay_over(&overlay, Backing::Served(Path::new(socket)), &Blocking(arrival, runtime), size, disk_mib)
        }
        None => {
            let disk = &image.disk;
            let backing = Backing::Within { file: disk.file(), offset: disk.offset() };
            lay_over(&overlay, backing, disk, disk.size(), disk_mib)
        }
    });
    made.await?
}

fn lay_over(
    overlay: &Path,
    backing: Backing<'_>,
    image: &impl ReadAt,
    image_size: u64,
    disk_mib: u64,
) -> Result<(), DiskError> {
    let size = rounded_size(image_size, disk_mib << 20);
    let pieces = grow(image, size)?;
    let pieces: Vec<(u64, &[u8])> = pieces.iter().map(|p| (p.offset, p.bytes.as_slice())).collect();
    Ok(create_overlay(overlay, backing, size, &pieces)?)
}
