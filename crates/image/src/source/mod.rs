//! Where layers come from: a registry, an OCI layout, a docker-archive, a root file system tar.

mod archive;
mod bag;
mod build;

pub(crate) use archive::{hash, open as open_archive, pair};
pub(crate) use build::{BuildError, Built, build};

use crate::convert::Marks;
use crate::oci::{Config, Descriptor};
use std::io::{self, Read};
use warren_model::reference::Digest;

/// Everything that is needed to make a disk.
pub(crate) struct Package {
    /// Digest of the manifest or image config; `None`: that of the one layer's bytes.
    pub(crate) digest: Option<Digest>,
    /// What processes of the image need.
    pub(crate) config: Config,
    /// Lowest first.
    pub(crate) layers: Vec<Layer>,
    /// Whether `.wh.` names are whiteouts.
    pub(crate) marks: Marks,
    /// Bytes of all layers as they are stored.
    pub(crate) bytes: u64,
}

/// One layer that can be read once.
pub(crate) struct Layer {
    /// Its compressed bytes, to be checked; `None` if they were checked before or have no known digest.
    pub(crate) blob: Option<Descriptor>,
    /// Digest of the uncompressed tar, to be checked.
    pub(crate) diff_id: Option<Digest>,
    /// Gives the bytes; may wait for them.
    pub(crate) open: OpenLayer,
}

/// Gives the bytes of a layer.
pub(crate) type OpenLayer = Box<dyn FnOnce() -> io::Result<Box<dyn Read + Send>> + Send>;
