//! A sandbox's disk: an overlay on its image, as large as was asked for from the first moment.

use super::arriving::Blocking;
use std::path::Path;
use warren_image::Image;
use warren_image::ext4::PIECE;
use warren_image::ext4::grow::{GrowError, Piece, grow, rounded_size};
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

/// A disk that is about to be made.
pub(crate) struct Plan {
    image: Image,
    size: u64,
    pieces: Vec<Piece>,
}

impl Plan {
    /// A disk on that of an image. `disk_mib` is rounded up to whole block groups, 128 MiB; 0 is as large as the image's. Waits for the parts of the image that say
    /// how large it is, if they are still arriving; nothing is written, so the wait may be broken off.
    pub(crate) async fn new(image: Image, disk_mib: u64) -> Result<Self, DiskError> {
        let runtime = tokio::runtime::Handle::current();
        let planned = tokio::task::spawn_blocking(move || {
            let size = rounded_size(image.disk.size(), disk_mib << 20);
            let pieces = match image.arrival.clone() {
                // What is not to grow may be the disk of a sandbox, which only a kernel should change.
                _ if size == image.disk.size() => Vec::new(),
                Some(arrival) => grow(&Blocking(arrival, runtime), size)?,
                None => grow(&image.disk, size)?,
            };
            Ok(Self { image, size, pieces })
        });
        planned.await?
    }

    /// Makes it at `overlay`, on the file of all images, or on `socket` if the image is still arriving.
    pub(crate) fn make(&self, overlay: &Path, socket: &Path) -> Result<(), DiskError> {
        let pieces: Vec<(u64, &[u8])> = self.pieces.iter().map(|p| (p.offset, p.bytes.as_slice())).collect();
        let disk = &self.image.disk;
        let backing = match self.image.arrival {
            Some(_) => Backing::Served(socket),
            None => Backing::Within { file: disk.file(), offset: disk.offset() },
        };
        Ok(create_overlay(overlay, backing, self.size, &pieces)?)
    }
}
