//! The public REST API: one file a use case. Handlers read, call, answer; what should run is decided elsewhere.

mod account;
mod admin;
mod batch;
mod bound;
mod checkpoint_delete;
mod checkpoint_show;
mod checkpoints;
mod create;
mod delete;
mod egress;
mod error;
mod fork;
mod gateway;
mod get;
mod health;
mod image_build;
mod image_builds;
mod image_delete;
mod image_list;
mod image_show;
mod image_update;
mod image_upload;
mod images;
mod jobs;
mod list;
mod login;
mod origin;
mod parsed;
mod registries;
mod router;
mod secrets;
mod show;
mod snapshots;
mod templates;
mod turn;
mod volume;
mod volume_publish;

pub(crate) use error::ApiError;
pub use origin::OverTls;
pub use router::openapi;
pub(crate) use router::router;

/// Bounds of the handlers, each with its unit. Those of bodies are in `warren_proto::http::limits`.
pub mod limits {
    /// Every handler but those of pulls, imports and uploads ends within this time, seconds.
    pub const HANDLER_SECS_MAX: u64 = 30;
    /// A pull or an import ends within this time, seconds.
    pub const IMAGE_HANDLER_SECS_MAX: u64 = 3600;
    /// The context of a build is asked for within this time of the request for the build, seconds.
    pub const UPLOAD_WITHIN_SECS: u64 = 3600;
    /// The upload of a context ends within this time, seconds.
    pub const UPLOAD_SECS_MAX: u64 = 600;
    /// A create is answered when the sandbox runs or has ended, at the latest after this time, milliseconds: the client sleeps a
    /// second after a first look that shows no RUNNING.
    pub const CREATE_HOLD_MS: u64 = 1500;
    /// An image build that others have waited for so long will not be over soon: a create is then answered at once, milliseconds.
    pub const IMAGE_BUILD_LONG_MS: u64 = 1000;
    /// `status:batchGet` is answered when one of the sandboxes changes, at the latest after this time, milliseconds.
    pub const STATUS_HOLD_MS: u64 = 500;
    /// A look at checkpoints that are all pending is answered when one of them is durable, at the latest after this time, milliseconds.
    pub const CHECKPOINT_HOLD_MS: u64 = 1_000;
    /// A delete is answered when nothing is left on the node, at the latest after this time, milliseconds. The intent is
    /// durable before, so the answer is the same.
    pub const DELETE_HOLD_MS: u64 = 15_000;
    /// A new egress policy is answered when it is applied, at the latest after this time, milliseconds.
    pub const EGRESS_HOLD_MS: u64 = 2_000;
    /// A fork is answered when all run or have ended, at the latest after this time, milliseconds.
    pub const FORK_HOLD_MS: u64 = 20_000;
    /// An error context is answered when the guest was asked, at the latest after this time, milliseconds: the client gives up
    /// after ten seconds.
    pub const REFRESH_HOLD_MS: u64 = 3_000;
    /// Lifetime of a token for the data plane, milliseconds (24 hours).
    pub const TOKEN_LIFE_MS: u64 = 24 * 3600 * 1000;
    /// Sandboxes that one bulk delete ends on the node at once.
    pub const BULK_DELETE_AT_ONCE_MAX: usize = 16;
    /// Sandboxes that one bulk delete by selection reads at once.
    pub const BULK_DELETE_PAGE: u64 = 500;
    /// A request body arrives within this time, seconds.
    pub const BODY_SECS_MAX: u64 = 20;
    /// Body bytes above the limit that are still read and thrown away, so that the client sees the refusal, bytes.
    pub const BODY_DRAIN_MAX: usize = 64 << 20;
}
