//! A sandbox's disk: an overlay on its image, as large as was asked for from the first moment.

use std::fs::File;
use std::path::Path;
use warren_image::ext4::grow::{GrowError, PIECE, grow, rounded_size};
use warren_vmm::{OVERLAY_PIECE, OverlayError, create_overlay};

// A piece of the grown file system is one piece of an overlay.
const _: () = assert!(PIECE == OVERLAY_PIECE);

/// Why a disk could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskError {
    #[error("read the image's disk: {0}")]
    Image(#[from] std::io::Error),
    #[error(transparent)]
    Grow(#[from] GrowError),
    #[error(transparent)]
    Overlay(#[from] OverlayError),
}

/// Makes `overlay` on the disk of an image. `disk_mib` is rounded up to whole block groups, 128 MiB.
pub(crate) fn make(overlay: &Path, image: &Path, disk_mib: u64) -> Result<(), DiskError> {
    let file = File::open(image)?;
    let size = rounded_size(file.metadata()?.len(), disk_mib << 20);
    let pieces = grow(&file, size)?;
    let pieces: Vec<(u64, &[u8])> = pieces.iter().map(|p| (p.offset, p.bytes.as_slice())).collect();
    Ok(create_overlay(overlay, image, size, &pieces)?)
}
