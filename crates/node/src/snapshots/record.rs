use warren_model::{SandboxId, Shape, SnapshotId};
use warren_proto::node::SnapshotInfo;
use warren_proto::shim::OpenFlows;

/// What is known of a snapshot, as it lies in its folder: without it, the folder is what a kill left of one that was never whole.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Record {
    pub(crate) id: SnapshotId,
    pub(crate) sandbox: String,
    pub(crate) image_digest: String,
    pub(crate) shape: Shape,
    pub(crate) disk_bytes: u64,
    pub(crate) created_at_ms: u64,
    pub(crate) paused_ms: f64,
    /// The base template that all memory lies on in the end.
    pub(crate) template: String,
    /// What its memory lies on; `None`: the base template.
    pub(crate) memory_on: Option<SnapshotId>,
    /// What its lowest layer lies on; `None`: the image.
    pub(crate) disk_on: Option<SnapshotId>,
    /// Number of its layers.
    pub(crate) layers: usize,
    /// Pieces of the exchange disk that transfers had.
    pub(crate) lent: Vec<u32>,
    /// Connections that the guest had open.
    #[serde(default)]
    pub(crate) flows: OpenFlows,
    /// Whether the sandbox had a start command.
    pub(crate) has_start_command: bool,
    /// Bytes of its files.
    pub(crate) stored_bytes: u64,
    /// The life of the host in which it was taken: until it has a digest, its files are not forced onto the disk.
    #[serde(default)]
    pub(crate) boot: String,
    /// Hash of its own files, and of that of what it lies on, once computed.
    #[serde(default)]
    pub(crate) digest: Option<String>,
    /// Hash of the delta, once computed.
    #[serde(default)]
    pub(crate) delta_sum: Option<String>,
    /// Hash of a flat delta that is about to take the place of the delta.
    #[serde(default)]
    pub(crate) flat_sum: Option<String>,
    /// The starts that it stands for as an app template.
    #[serde(default)]
    pub(crate) offered: Option<String>,
    /// Nobody sees it any more, but something lies on it.
    #[serde(default)]
    pub(crate) deleted: bool,
}

impl Record {
    /// As control sees it. Whether it is usable is not its own to say.
    pub(crate) fn info(&self) -> Option<SnapshotInfo> {
        Some(SnapshotInfo {
            id: self.id.clone(),
            sandbox: SandboxId::parse(&self.sandbox).ok()?,
            image_digest: self.image_digest.clone(),
            shape: self.shape,
            disk_bytes: self.disk_bytes,
            created_at_ms: self.created_at_ms,
            paused_ms: self.paused_ms,
            stored_bytes: self.stored_bytes,
            usable: true,
            digest: self.digest.clone(),
        })
    }
}
