//! What control says to a node. One process in `warren serve`; over HTTP/2 between machines.

mod build;
mod checkpoint;
mod snapshot;
mod token;

pub use build::{BuildBase, BuildOrder};
pub use checkpoint::{CheckpointMade, CheckpointState, STATE_HOLD_SECS, checkpoint_image, is_checkpoint_image};
pub use snapshot::{SnapshotError, SnapshotInfo};
pub use token::{BadToken, TokenClaims, TokenKey};

use async_trait::async_trait;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::broadcast;
use warren_model::egress::EgressPolicy;
use warren_model::{CheckpointId, EndReason, ErrorType, ImageAccess, SandboxId, SandboxSpec, SnapshotId, Status};

/// Bounds of the node API, each with its unit.
pub mod limits {
    /// Observations that a slow listener may be behind before it must call `list` again.
    pub const OBSERVATIONS_QUEUED_MAX: usize = 65_536;
    /// Output that is kept of one build, bytes.
    pub const BUILD_LOG_LEN_MAX: u64 = 4 << 20;
    /// Largest result of a build on its way out of the builder, bytes.
    pub const BUILD_ARCHIVE_LEN_MAX: u64 = 32 << 30;
    /// Largest Dockerfile, bytes.
    pub const DOCKERFILE_LEN_MAX: usize = 1 << 20;
}

/// One machine that runs sandboxes. Every call is idempotent; every call ends in bounded time.
#[async_trait]
pub trait NodeApi: Send + Sync + 'static {
    /// Records the intent on disk and answers; progress comes as [`Observation`]s. A second call with the same id changes nothing.
    async fn create(&self, id: SandboxId, spec: SandboxSpec) -> Result<(), CreateError>;

    /// Ends a sandbox and answers when nothing of it is left on the host. Wins over a create that is under way; an id that
    /// is unknown is remembered for a while, so that a late create of it is refused.
    async fn terminate(&self, id: &SandboxId, reason: EndReason, message: &str) -> Result<(), NodeError>;

    /// The last observation of one sandbox.
    async fn get(&self, id: &SandboxId) -> Option<Observation>;

    /// The last observation of all sandboxes, ended ones included until [`NodeApi::forget`].
    async fn list(&self) -> Vec<Observation>;

    /// Drops what the node keeps of an ended sandbox.
    async fn forget(&self, id: &SandboxId);

    /// Every change from now on. A listener that lags gets `Lagged` and calls [`NodeApi::list`].
    fn observe(&self) -> broadcast::Receiver<Observation>;

    /// Output of the start command, and boot messages if the machine did not start.
    async fn logs(&self, id: &SandboxId) -> Result<String, NodeError>;

    /// Replaces the egress policy of a running sandbox; answers when no new flow goes by the old one.
    async fn set_egress(&self, id: &SandboxId, policy: EgressPolicy, generation: u64) -> Result<(), NodeError>;

    /// State of background jobs of one sandbox, in order.
    async fn jobs(&self, id: &SandboxId, job_ids: Vec<String>) -> Result<Vec<crate::guest::JobState>, NodeError>;

    /// Makes an image ready; answers its record. A registry is always asked what a tag means now.
    async fn pull_image(&self, reference: &str, access: &ImageAccess) -> Result<ImageRecord, ImageError>;

    /// Whether an image could be had, without fetching it: the digest that it has here or at its registry.
    async fn check_image(&self, reference: &str, access: &ImageAccess) -> Result<String, ImageError>;

    /// Takes an OCI layout, docker-archive or root file system tar from the node's file system under a name of one's own.
    async fn import_image(&self, path: PathBuf, name: &str) -> Result<ImageRecord, ImageError>;

    /// Keeps the image of `digest`, which is here, under a name that no registry is asked for; the name stops leading elsewhere.
    async fn pin_image(&self, digest: &str, name: &str) -> Result<ImageRecord, ImageError>;

    /// Builds what [`NodeApi::open_build`] took into `builder`, a running sandbox of an image with Docker, on the bases of the order,
    /// and takes the result in as `order.name`.
    /// Ends when the builder does; the caller bounds it in time.
    async fn build_image(&self, builder: &SandboxId, order: BuildOrder) -> Result<ImageRecord, ImageError>;

    /// Images on this node.
    async fn images(&self) -> Result<Vec<ImageRecord>, ImageError>;

    /// Removes a name; its bytes go when no sandbox uses them. Whether one does.
    async fn remove_image(&self, reference: &str) -> Result<bool, ImageError>;

    /// Pulls and conversions under way.
    async fn image_builds(&self) -> Vec<ImageBuild>;

    /// Removes images that registries can give again and no sandbox uses, the least recently used first, until at most `keep` bytes are
    /// stored; `None`: until the node's quota is kept. `dry_run` only says which.
    async fn collect_images(&self, keep: Option<u64>, dry_run: bool) -> Result<ImageGc, ImageError>;

    /// Takes a snapshot of a running sandbox, which goes on. An id that is taken already gives the snapshot that there is.
    async fn snapshot(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<SnapshotInfo, SnapshotError>;

    /// Puts a running or paused sandbox back to a snapshot of its own: all that runs in it ends, its generation grows. Answers when it runs again.
    async fn reset(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), SnapshotError>;

    /// Takes a snapshot of a running sandbox and ends its machine; the sandbox is PAUSED, also across restarts of the node.
    async fn pause(&self, id: &SandboxId, snapshot: &SnapshotId) -> Result<(), SnapshotError>;

    /// Lets a paused sandbox go on where it was. Answers when it runs; one that runs already is left alone.
    async fn resume(&self, id: &SandboxId) -> Result<(), SnapshotError>;

    /// From now on, creates of the same image, start command and shape for the same owner go on from this snapshot, taken of a sandbox of `spec`.
    async fn offer_template(&self, snapshot: &SnapshotId, spec: &SandboxSpec) -> Result<(), SnapshotError>;

    /// Runs a command in a running sandbox, its output dropped; its exit code.
    async fn run_command(&self, id: &SandboxId, argv: Vec<String>, wait: Duration) -> Result<i32, NodeError>;

    /// Snapshots on this node that were not deleted.
    async fn snapshots(&self) -> Vec<SnapshotInfo>;

    /// Deletes a snapshot. Its bytes stay while another snapshot or a sandbox lies on them. One that is not here is as good as deleted.
    async fn delete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), SnapshotError>;

    /// What the node is and how full.
    fn info(&self) -> NodeInfo;

    /// A token for the data plane of one sandbox, valid until `expires_at_ms` (milliseconds since 1970).
    fn token(&self, id: &SandboxId, expires_at_ms: u64) -> String;

    /// Freezes the disk of a running sandbox and answers once nothing that happens to the sandbox can harm the checkpoint any more; the rest
    /// goes on by itself, also after a restart. A second call with the same id changes nothing.
    async fn checkpoint(&self, sandbox: &SandboxId, id: &CheckpointId) -> Result<(), NodeError>;

    /// The same with a volume that the sandbox may write to: the disk of that place in its spec's list.
    async fn publish_volume(&self, sandbox: &SandboxId, volume: usize, id: &CheckpointId) -> Result<(), NodeError>;

    /// How far a checkpoint is; held for up to [`STATE_HOLD_SECS`] while it is pending. `None` if this node made none of that id.
    async fn checkpoint_state(&self, id: &CheckpointId) -> Option<CheckpointState>;

    /// Lets a checkpoint go that is not pending; its bytes go when no sandbox uses them. An unknown one is gone already.
    async fn remove_checkpoint(&self, id: &CheckpointId) -> Result<(), ImageError>;

    /// Takes the context of a build into `builder`; answers the Dockerfile in it. To be followed by [`NodeApi::build_image`].
    async fn open_build(&self, builder: &SandboxId, order: &BuildOrder) -> Result<String, ImageError>;
}

/// What a node saw of one sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// Which.
    pub id: SandboxId,
    /// Status.
    pub status: Status,
    /// Digest of the image it runs, once known.
    pub image_digest: Option<String>,
    /// Set while the image is being made ready.
    pub image_build: Option<ImageBuild>,
    /// First RUNNING, milliseconds since 1970.
    pub started_at_ms: Option<u64>,
    /// How it ended.
    pub end: Option<crate::shim::End>,
    /// Last out-of-memory kill in the guest, for people; the sandbox may go on.
    pub last_oom: Option<String>,
    /// Generation of the egress policy in force; 0 is the policy of the spec.
    pub egress_generation: u64,
    /// How often its machine has been put back to a snapshot.
    pub generation: u64,
    /// The app template that it went on from.
    pub template: Option<SnapshotId>,
}

impl Observation {
    /// The error type that the public API shows now.
    pub fn error_type(&self) -> Option<ErrorType> {
        match &self.end {
            Some(end) => end.reason.error_type(),
            None => self.last_oom.as_ref().map(|_| ErrorType::OomKilled),
        }
    }
}

/// Progress of making one image ready.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ImageBuild {
    /// One id per build, shown as `pendingImageBuildId`.
    pub id: String,
    /// Reference.
    pub reference: String,
    /// `resolving`, `pulling`, `converting`.
    pub step: String,
    /// Bytes done of the step.
    pub bytes_done: u64,
    /// Bytes of the step, if known.
    pub bytes_total: Option<u64>,
    /// Layers done of the step.
    pub layers_done: u64,
    /// Layers of the image, if known.
    pub layers_total: Option<u64>,
    /// What it waits for now, for people.
    pub waiting: Option<String>,
    /// Whose it is, `user:ID` or `team:ID`, if the image may not be everybody's to see.
    #[serde(default)]
    pub scope: Option<String>,
}

/// An image on a node.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ImageRecord {
    /// Canonical reference.
    pub reference: String,
    /// Digest of the manifest or of the imported content.
    pub digest: String,
    /// Bytes on disk of the converted root.
    pub size_bytes: u64,
    /// When it was made, milliseconds since 1970.
    pub created_at_ms: u64,
    /// `ENV`.
    pub env: BTreeMap<String, String>,
    /// `USER`.
    pub user: Option<String>,
    /// `WORKDIR`.
    pub workdir: Option<String>,
    /// `ENTRYPOINT`.
    pub entrypoint: Vec<String>,
    /// `CMD`.
    pub cmd: Vec<String>,
    /// `SHELL`, for builds on it.
    #[serde(default)]
    pub shell: Vec<String>,
    /// `ONBUILD`, for builds on it.
    #[serde(default)]
    pub on_build: Vec<String>,
    /// `amd64` or `arm64`.
    pub architecture: String,
    /// Whether it came through somebody's saved login, so that it is not everybody's to see.
    #[serde(default)]
    pub private: bool,
}

/// What a garbage collection did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct ImageGc {
    /// Bytes of all images that are there now.
    pub stored_bytes: u64,
    /// Bytes above which images go by themselves.
    pub quota_bytes: u64,
    /// Those that went, or would go, the least recently used first.
    pub collected: Vec<CollectedImage>,
}

/// An image that went, or would go.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CollectedImage {
    /// Which.
    pub digest: String,
    /// Names that led to it.
    pub references: Vec<String>,
    /// Its last use, milliseconds since 1970.
    pub last_used_ms: u64,
    /// Bytes that were its alone, once those before it had gone.
    pub bytes: u64,
}

/// What a node is and how full.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct NodeInfo {
    /// URL prefix of its data plane, without a trailing slash; `None`: the URL by which the client came, plus `/gw`.
    pub gateway_url: Option<String>,
    /// `kvm` or `tcg`.
    pub accel: String,
    /// Sandboxes that hold resources now.
    pub sandboxes: u64,
    /// Memory promised to them, MiB.
    pub memory_mib_promised: u64,
    /// Memory that may be promised, MiB.
    pub memory_mib_capacity: u64,
}

/// Why a node did not take a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// No room now; ask another node or later.
    #[error("this node is full: {0}")]
    Full(String),
    /// It can never run here.
    #[error("{0}")]
    Refused(String),
    /// The id was terminated before.
    #[error("sandbox {0} was deleted")]
    Deleted(SandboxId),
    /// The node's disk or system failed.
    #[error("{0}")]
    Failed(String),
}

/// Why a call about a sandbox failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The node does not know it.
    #[error("sandbox {0} is not known to this node")]
    NotFound(SandboxId),
    /// It does not run.
    #[error("sandbox {id} is {}", status.as_str())]
    NotRunning {
        /// Which.
        id: SandboxId,
        /// Its status.
        status: Status,
    },
    /// Shim or guest did not answer, or not in time.
    #[error("sandbox {id} did not answer: {problem}")]
    NoAnswer {
        /// Which.
        id: SandboxId,
        /// What happened.
        problem: String,
    },
}

/// Why an image could not be had. `code` is stable: `bad_reference`, `not_found`, `access_denied`, `wrong_architecture`,
/// `digest_mismatch`, `bad_content`, `index_too_deep`, `registry_unreachable`, `rate_limited`, `no_space`, `in_use`, `build_failed`,
/// `failed`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reference}: {message}")]
pub struct ImageError {
    /// Which.
    pub reference: String,
    /// Stable code.
    pub code: &'static str,
    /// What happened and what to do.
    pub message: String,
}
