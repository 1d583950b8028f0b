//! What the operator may set.

use crate::builds::Room;

/// Live sandboxes of one user, the queue included, if the operator sets no other limit.
const SANDBOXES_PER_USER_DEFAULT: u64 = 20_000;

/// Tags of one person or team, if the operator sets no other limit.
const IMAGES_PER_OWNER_DEFAULT: u64 = 1_000;
/// Volumes of one person or team, if the operator sets no other limit.
const VOLUMES_PER_OWNER_DEFAULT: u64 = 1_000;
/// Builds at once, if the operator sets no other limit.
const BUILDS_AT_ONCE_DEFAULT: Room = Room { total: 4, per_owner: 2 };
/// How long a builder waits for the next build of its owner, if the operator sets no other time, minutes.
const BUILDER_IDLE_MINUTES_DEFAULT: i64 = 5;

/// Settings of the control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Most live sandboxes of one user; `None` is unlimited.
    pub sandboxes_per_user_max: Option<u64>,
    /// Most tags of one person or team; `None` is unlimited.
    pub images_per_owner_max: Option<u64>,
    /// Most bytes that the images of one person or team may have when another build is asked for; `None` is unlimited.
    pub image_bytes_per_owner_max: Option<u64>,
    /// Most volumes of one person or team.
    pub volumes_per_owner_max: u64,
    /// Builds of images that may be under way.
    pub builds_at_once: Room,
    /// How long a builder keeps its layer cache for the next build of its owner, minutes.
    pub builder_idle_minutes: i64,
    /// Architecture of the guests: `amd64` or `arm64`.
    pub arch: String,
    /// Whether a reverse proxy in front sets `X-Forwarded-Proto`, so that it may be believed.
    pub trust_forwarded_proto: bool,
}

impl Default for Config {
    fn default() -> Self {
        let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        Config {
            sandboxes_per_user_max: Some(SANDBOXES_PER_USER_DEFAULT),
            images_per_owner_max: Some(IMAGES_PER_OWNER_DEFAULT),
            image_bytes_per_owner_max: None,
            volumes_per_owner_max: VOLUMES_PER_OWNER_DEFAULT,
            builds_at_once: BUILDS_AT_ONCE_DEFAULT,
            builder_idle_minutes: BUILDER_IDLE_MINUTES_DEFAULT,
            arch: arch.to_owned(),
            trust_forwarded_proto: false,
        }
    }
}
