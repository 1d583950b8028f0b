//! A sandbox's volumes: each a disk of its own, an overlay on what was published last or on an empty file system.

use super::disk::{DiskError, Plan};
use std::path::Path;
use warren_image::{Image, Lease, Store};
use warren_model::{VolumeMount, limits};
use warren_proto::guest::{Mount, volume_disk};
use warren_proto::node::ImageError;
use warren_proto::shim::{DiskBase, ImageDisk};

/// Why a sandbox's volumes cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeError {
    /// What it lies on went, which only a loss of files explains.
    #[error("volume {name}: what was published last, {digest}, is not on this node any more")]
    Lost { name: String, digest: String },
    /// The empty file system.
    #[error("make an empty volume: {0}")]
    Blank(#[from] ImageError),
    /// Its overlay.
    #[error("volume {name}: {error}")]
    Disk { name: String, error: DiskError },
}

/// What the volumes of a sandbox lie on, in the order of their mounts.
pub(super) struct Bases(Vec<Image>);

impl Bases {
    /// Holds them for a sandbox that is to start.
    pub(super) async fn find(images: &Store, mounts: &[VolumeMount]) -> Result<Self, VolumeError> {
        let mut found = Vec::with_capacity(mounts.len());
        for mount in mounts {
            let lost = |digest: &str| VolumeError::Lost { name: mount.name.to_string(), digest: digest.to_owned() };
            found.push(match &mount.base {
                // Published volumes are here whole: nothing of them is served while it arrives.
                Some(digest) => {
                    let image = images.lease(digest).filter(|image| image.arrival.is_none());
                    image.ok_or_else(|| lost(digest))?
                }
                None => images.blank().await?,
            });
        }
        Ok(Self(found))
    }

    /// Digests of them, from which [`leases`] takes them up again.
    pub(super) fn digests(&self) -> Vec<String> {
        self.0.iter().map(|image| image.record.digest.clone()).collect()
    }

    /// Makes the disks in the VM's folder.
    pub(super) async fn make_disks(&self, mounts: &[VolumeMount], vm: &Path) -> Result<(), VolumeError> {
        for (number, (image, mount)) in self.0.iter().zip(mounts).enumerate() {
            let overlay = vm.join(warren_shim::volume_file(&volume_disk(number)));
            let plan = Plan::new(image.clone(), limits::VOLUME_MIB).await;
            let failed = |error| VolumeError::Disk { name: mount.name.to_string(), error };
            plan.and_then(|plan| plan.make(&overlay)).map_err(failed)?;
        }
        Ok(())
    }

    /// What the disks lie on.
    pub(super) fn disks(&self) -> Vec<DiskBase> {
        let on = |image: &Image| {
            let image = ImageDisk::Within { file: image.disk.file().to_owned(), offset: image.disk.offset() };
            DiskBase { image, layers: Vec::new() }
        };
        self.0.iter().map(on).collect()
    }

    /// What keeps that.
    pub(super) fn leases(self) -> Vec<Lease> {
        self.0.into_iter().map(|image| image.lease).collect()
    }
}

/// For the guest: which disk is mounted where.
pub(super) fn mounts(asked: &[VolumeMount]) -> Vec<Mount> {
    let mount = |(number, mount): (usize, &VolumeMount)| Mount {
        disk: volume_disk(number),
        path: mount.path.as_str().to_owned(),
        read_only: mount.read_only,
    };
    asked.iter().enumerate().map(mount).collect()
}

/// For a sandbox that runs already; `None` if one of them is gone.
pub(super) fn leases(images: &Store, digests: &[String]) -> Option<Vec<Lease>> {
    digests.iter().map(|digest| images.lease(digest).map(|image| image.lease)).collect()
}
