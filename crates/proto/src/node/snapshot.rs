use warren_model::{SandboxId, Shape, SnapshotId, Status};

/// A snapshot on a node.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotInfo {
    /// Which.
    pub id: SnapshotId,
    /// The sandbox that it was taken of.
    pub sandbox: SandboxId,
    /// Digest of the image that the sandbox ran.
    pub image_digest: String,
    /// vCPUs and memory that whoever goes on from it has.
    pub shape: Shape,
    /// Size of the disk as the guest sees it, bytes.
    pub disk_bytes: u64,
    /// When it was taken, milliseconds since 1970.
    pub created_at_ms: u64,
    /// How long the sandbox stood still for it, milliseconds.
    pub paused_ms: f64,
    /// Bytes that it holds alone on the node's disk: changed memory and disk since what it lies on.
    pub stored_bytes: u64,
    /// Whether sandboxes can go on from it: the machine version is still the same.
    pub usable: bool,
    /// Hash of what it holds and of what it lies on, `blake3:` and 64 hex digits, once it has been computed.
    pub digest: Option<String>,
}

/// Why a snapshot could not be taken, or not be gone on from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The node does not know the sandbox.
    #[error("sandbox {0} is not known to this node")]
    NoSandbox(SandboxId),
    /// The node does not have the snapshot.
    #[error("snapshot {0} is not on this node")]
    NoSnapshot(SnapshotId),
    /// The sandbox is in a state that does not allow it, or another operation came first.
    #[error("sandbox {id} is {}: {problem}", status.as_str())]
    Conflict {
        /// Which.
        id: SandboxId,
        /// Its status.
        status: Status,
        /// What stands against it.
        problem: String,
    },
    /// It was taken on another machine version: kernel, agent, QEMU or CPU.
    #[error("snapshot {id} cannot be restored here: {problem}")]
    Incompatible {
        /// Which.
        id: SnapshotId,
        /// What differs.
        problem: String,
    },
    /// Host, shim or guest failed; the sandbox runs on as before, if it ran.
    #[error("{0}")]
    Failed(String),
}
