//! The public REST API: bodies of requests and answers as clients send and read them.
//!
//! The server and our own CLI share these types. Unknown fields of a request are ignored. What a request means is decided once,
//! by `TryFrom` into `warren_model`; its refusals are lists of [`FieldError`].

mod account;
mod build;
mod checkpoint;
mod create;
mod delete;
mod egress;
mod error;
mod gateway;
mod image;
mod jobs;
mod list;
mod login;
mod owned_image;
mod registry;
mod sandbox;
mod secret;
mod snapshot;
mod spec;
mod status;
mod template;
mod timestamp;
mod volume;

pub use account::{
    AccountLimits, Billing, KeyLimits, Member, Members, NewMember, NewTeam, NewUser, Permission, Team, Teams,
    UserCreated, Wallet, Whoami, WhoamiAnswer,
};
pub use build::{
    BuildAccepted, BuildAnswer, BuildImage, BuildLogs, BuildState, BuildStatus, Builds, ContextTaken, OwnerScope,
    SourceResult, StartBuild, Visibility,
};
pub use checkpoint::{
    Checkpoint, CheckpointAnswer, CheckpointDeleted, CheckpointError, CheckpointErrorCode, CheckpointQuery,
    CheckpointWord, Checkpoints, CheckpointsDeleted,
};
pub use create::{CreateSandbox, DISK_GB_DEFAULT, StartCommand, VolumeMount};
pub use delete::{BulkDelete, BulkDeleteAnswer, BulkDeleteFailure, Deleted};
pub use egress::{EgressLists, EgressStatus};
pub use error::{Detail, ErrorBody, ErrorCode, FieldError, Invalid, Location};
pub use gateway::GatewayAuth;
pub use image::{
    CollectImages, CollectedImage, Image, ImageBuildState, ImageBuilds, ImageRemoved, Images, ImagesCollected,
    ImportImage, PullImage,
};
pub use jobs::{JobError, JobErrorCode, JobKey, JobStatus, JobsAnswer, JobsQuery};
pub use list::{ListQuery, SandboxList};
pub use login::{ApproveChallenge, Challenge, ChallengeStatus, NewChallenge};
pub use owned_image::{
    ArtifactType, ImageCoordinate, ImageDeleted, ImageItem, ImageList, ImageListQuery, ImageOwner, ImageUpdate,
    OwnerType, UpdateError, UpdateImages, UpdateImagesAnswer, UpdateResult, UpdateSet, UpdateSource,
};
pub use registry::{
    CheckDockerImage, CheckImage, DockerImageCheck, ImageCheck, NewRegistryCredential, RegistryCredential,
    RegistryCredentials,
};
pub use sandbox::{Created, Sandbox};
pub use secret::{ChangeSecret, NewSecret, Secret, SecretAnswer, Secrets};
pub use snapshot::{
    Fork, Forked, NewSnapshot, Reset, SecretsPolicy, Snapshot, SnapshotDeleted, SnapshotState, Snapshots,
};
pub use status::{
    ErrorContext, Health, Logs, StatusAnswer, StatusError, StatusErrorCode, StatusQuery, StatusSnapshot, StatusWord,
};
pub use template::{NewTemplate, Template, TemplateState, Templates};
pub use timestamp::{BadTimestamp, Timestamp};
pub use volume::{NewVolume, PublishVolume, Volume, VolumeList, VolumeListQuery};

/// Bounds of the public API, each with its unit.
pub mod limits {
    /// Largest request body, bytes.
    pub const BODY_LEN_MAX: usize = 4 << 20;
    /// Ids in one batch call.
    pub const BATCH_MAX: usize = 100;
    /// Ids in one bulk delete.
    pub const BULK_DELETE_MAX: usize = 1000;
    /// Checkpoints of one sandbox, so that their list is bounded.
    pub const CHECKPOINTS_PER_SANDBOX_MAX: u64 = 200;
    /// Sandboxes on one page of a list.
    pub const PER_PAGE_MAX: u32 = 1000;
    /// Sandboxes on one page, if the client does not say.
    pub const PER_PAGE_DEFAULT: u32 = 50;
    /// Label filters of one list.
    pub const LABEL_FILTERS_MAX: usize = 64;
    /// Longest idempotency key, bytes.
    pub const IDEMPOTENCY_KEY_LEN_MAX: usize = 256;
    /// Longest image reference, bytes.
    pub const REFERENCE_LEN_MAX: usize = warren_model::reference::LEN_MAX;
    /// Longest lifetime and idle timeout, minutes (ten years).
    pub const TIMEOUT_MINUTES_MAX: i64 = 10 * 366 * 24 * 60;
    /// Arguments of a start command, its program included.
    pub const ARGV_MAX: usize = 1024;
    /// Program and arguments of a start command together, bytes.
    pub const ARGV_BYTES_MAX: usize = 128 << 10;
    /// Tags on one page of the list of images.
    pub const IMAGES_PER_PAGE_MAX: u64 = 250;
    /// Changes of tags in one call.
    pub const IMAGE_UPDATES_MAX: usize = 100;
    /// Sources of one build call.
    pub const BUILD_SOURCES_MAX: usize = 100;
    /// Build arguments of one build.
    pub const BUILD_ARGS_MAX: usize = 128;
    /// Names and values of build arguments together, bytes.
    pub const BUILD_ARGS_BYTES_MAX: usize = 64 << 10;
    /// Largest context of a build, bytes (compressed, as it comes).
    pub const BUILD_CONTEXT_LEN_MAX: u64 = 2 << 30;
    /// Forks in one call.
    pub const FORKS_MAX: u32 = 256;
    /// Entries of one egress list.
    pub const EGRESS_ENTRIES_MAX: usize = warren_model::egress::ENTRIES_MAX;
}

/// Names the request path of the public API.
pub const API_PREFIX: &str = "/api/v1";
