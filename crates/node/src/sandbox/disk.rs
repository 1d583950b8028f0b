//! A sandbox's disk: an overlay on its image, as large as was asked for from the first moment.

use super::arriving::Blocking;
use crate::host::joined;
use std::path::Path;
use warren_image::Image;
use warren_image::ext4::PIECE;
use warren_image::ext4::grow::{GrowError, Piece, grow, rounded_size};
use warren_proto::shim::ImageDisk;
use warren_vmm::{OVERLAY_PIECE, OverlayError, create_overlay};

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

/// A disk that is about to be made.
pub(crate) struct Plan {
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
            Ok(Self { size, pieces })
        });
        joined(planned).await
    }

    /// How large it will be, bytes.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Makes it at `overlay`.
    pub(crate) fn make(&self, overlay: &Path) -> Result<(), DiskError> {
        let pieces: Vec<(u64, &[u8])> = self.pieces.iter().map(|p| (p.offset, p.bytes.as_slice())).collect();
        Ok(create_overlay(overlay, self.size, &pieces)?)
    }
}

/// The disk of an image as a VMM reads it: in the file of all images, or on `socket` if it is still arriving.
pub(crate) fn image_disk(image: &Image, socket: &Path) -> ImageDisk {
    match image.arrival {
        Some(_) => ImageDisk::Served(socket.to_owned()),
        None => ImageDisk::Within { file: image.disk.file().to_owned(), offset: image.disk.offset() },
    }
}
