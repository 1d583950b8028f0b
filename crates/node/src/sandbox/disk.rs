//! A sandbox's disk: an overlay on its image, as large as was asked for from the first moment.

use std::path::Path;
use warren_image::Disk;
use warren_image::ext4::PIECE;
use warren_image::ext4::grow::{GrowError, grow, rounded_size};
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
}

/// Makes `overlay` on the disk of an image. `disk_mib` is rounded up to whole block groups, 128 MiB.
pub(crate) fn make(overlay: &Path, image: &Disk, disk_mib: u64) -> Result<(), DiskError> {
    let size = rounded_size(image.size(), disk_mib << 20);
    let pieces = grow(image, size)?;
    let pieces: Vec<(u64, &[u8])> = pieces.iter().map(|p| (p.offset, p.bytes.as_slice())).collect();
    let backing = Backing::Within { file: image.file(), offset: image.offset() };
    Ok(create_overlay(overlay, backing, size, &pieces)?)
}
