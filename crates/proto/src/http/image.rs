use super::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Body of `POST /images/pull`: makes an image ready before its first use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullImage {
    /// Any reference that a sandbox could name.
    pub reference: String,
    /// Team whose saved login is used; the caller's own, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
}

/// Body of `POST /images/import`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportImage {
    /// OCI layout, docker-archive or root file system tar; an absolute path on the server's machine.
    pub path: String,
    /// `NAME:TAG` that it gets.
    pub name: String,
}

/// An image that is ready on this server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Image {
    /// Canonical reference.
    pub reference: String,
    /// Digest of the manifest, or of the imported content.
    pub digest: String,
    /// Bytes on disk of the converted root.
    pub size_bytes: u64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// `amd64` or `arm64`.
    pub architecture: String,
    /// Whether it came through a saved login, so that who has none may not use it.
    #[serde(default)]
    pub private: bool,
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
}

/// Answer of `GET /images/local`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Images {
    /// All of them, by reference.
    pub images: Vec<Image>,
}

/// Answer of `DELETE /images/local`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageRemoved {
    /// Those that are left, by reference.
    pub images: Vec<Image>,
    /// Whether sandboxes use the removed one: its bytes stay until they have ended.
    pub in_use: bool,
}

/// Answer of `GET /images/builds`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ImageBuilds {
    /// Pulls and conversions under way.
    pub builds: Vec<ImageBuildState>,
}

/// Progress of making one image ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageBuildState {
    /// As in `pendingImageBuildId`.
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
    /// What it waits for now, for people: its turn, or a registry that limits the rate of requests.
    pub waiting: Option<String>,
}

/// Body of `POST /images/gc`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CollectImages {
    /// Only says what would go.
    pub dry_run: bool,
    /// Bytes of images that may stay; absent: the server's quota.
    pub keep_bytes: Option<u64>,
}

/// Answer of `POST /images/gc`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagesCollected {
    /// Bytes of all images that are there now.
    pub stored_bytes: u64,
    /// Bytes above which images go by themselves.
    pub quota_bytes: u64,
    /// Those that went, or would go, the least recently used first.
    pub collected: Vec<CollectedImage>,
}

/// An image that went, or would go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectedImage {
    /// Which.
    pub digest: String,
    /// Names that led to it.
    pub references: Vec<String>,
    /// Its last use.
    #[schema(value_type = String, format = DateTime)]
    pub last_used_at: Timestamp,
    /// Bytes that were its alone, once those before it had gone.
    pub bytes: u64,
}

impl From<crate::node::ImageGc> for ImagesCollected {
    fn from(gc: crate::node::ImageGc) -> Self {
        ImagesCollected {
            stored_bytes: gc.stored_bytes,
            quota_bytes: gc.quota_bytes,
            collected: gc.collected.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<crate::node::CollectedImage> for CollectedImage {
    fn from(image: crate::node::CollectedImage) -> Self {
        CollectedImage {
            digest: image.digest,
            references: image.references,
            last_used_at: Timestamp::from_ms(image.last_used_ms),
            bytes: image.bytes,
        }
    }
}

impl From<crate::node::ImageRecord> for Image {
    fn from(record: crate::node::ImageRecord) -> Self {
        Image {
            reference: record.reference,
            digest: record.digest,
            size_bytes: record.size_bytes,
            created_at: Timestamp::from_ms(record.created_at_ms),
            architecture: record.architecture,
            private: record.private,
            env: record.env,
            user: record.user,
            workdir: record.workdir,
            entrypoint: record.entrypoint,
            cmd: record.cmd,
        }
    }
}

impl From<crate::node::ImageBuild> for ImageBuildState {
    fn from(build: crate::node::ImageBuild) -> Self {
        ImageBuildState {
            id: build.id,
            reference: build.reference,
            step: build.step,
            bytes_done: build.bytes_done,
            bytes_total: build.bytes_total,
            layers_done: build.layers_done,
            layers_total: build.layers_total,
            waiting: build.waiting,
        }
    }
}
