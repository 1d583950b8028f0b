use serde::{Deserialize, Serialize};

/// Serial number of the disk that becomes the root.
pub const ROOT_DISK: &str = "root";
/// What a volume disk's name starts with.
const PREFIX: &str = "volume-";

/// Code of a [`super::GuestError`] that answers an [`super::Init`]: a volume cannot be mounted where it is wanted.
pub const VOLUME_UNUSABLE: &str = "volume_unusable";

/// Serial number of a machine's volume disk, counted from 0; also its name in the VMM.
pub fn volume_disk(number: usize) -> String {
    format!("{PREFIX}{number}")
}

/// Whether a disk of this serial number holds a volume.
pub fn is_volume_disk(serial: &str) -> bool {
    serial.starts_with(PREFIX)
}

/// A volume in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Serial number of its disk, see [`volume_disk`].
    pub disk: String,
    /// Absolute path; made if missing.
    pub path: String,
    /// Whether the disk cannot be written to.
    pub read_only: bool,
}

/// Which file system is to rest, or to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestDisk {
    /// Serial number of its disk: [`ROOT_DISK`] or a volume's.
    pub disk: String,
}
