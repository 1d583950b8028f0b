//! Builds of owned images: request, acceptance, state.

use super::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Who may use an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Visibility {
    /// The person, or the members of the team.
    Private,
    /// Everyone with a key.
    Public,
}

/// Owner that a build asks for beside a person and a team.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OwnerScope {
    /// Nobody: a public image of the platform.
    Platform,
}

/// Body of `POST /images/build`: a Dockerfile whose context is uploaded afterwards, or images of registries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct BuildImage {
    /// Name that it gets; needed for a Dockerfile, else derived from the source.
    #[serde(alias = "imageName")]
    pub image_name: Option<String>,
    /// Tag that it gets; `latest` if there is a name.
    #[serde(alias = "imageTag")]
    pub image_tag: Option<String>,
    /// Path of the Dockerfile in the context. Means nothing beside `source_image`.
    pub dockerfile_path: Option<String>,
    /// References to pull, joined with commas.
    #[serde(alias = "sourceImage")]
    pub source_image: Option<String>,
    /// `linux/amd64` or `linux/arm64`.
    pub platform: Option<String>,
    /// Team that owns it; absent is the caller.
    #[serde(alias = "teamId")]
    pub team_id: Option<String>,
    /// Absent: private if the tag is new, else unchanged.
    pub visibility: Option<Visibility>,
    /// `platform`: a public image of nobody.
    #[serde(alias = "ownerScope")]
    pub owner_scope: Option<OwnerScope>,
    /// Values for the Dockerfile's `ARG`s.
    #[serde(alias = "buildArgs")]
    pub build_args: BTreeMap<String, String>,
}

/// Answer of `POST /images/build`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BuildAnswer {
    /// For several sources.
    Several {
        /// One for each, in the order of the request.
        results: Vec<SourceResult>,
    },
    /// For a Dockerfile or one source.
    One(BuildAccepted),
}

/// What became of one source of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceResult {
    /// As it was asked for.
    pub source_image: String,
    /// The build, if it was accepted.
    pub build: Option<BuildAccepted>,
    /// Why it was not.
    pub error: Option<String>,
    /// Whether the same request may be accepted later.
    pub retryable: bool,
}

/// A build that was accepted. The mixed case of the names is the wire's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BuildAccepted {
    /// Its id.
    pub build_id: String,
    /// The same once more, as a list.
    #[serde(rename = "buildIds")]
    pub build_ids: Vec<String>,
    /// Where the context of a Dockerfile goes: `PUT`, a gzip tar, without a key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_url: Option<String>,
    /// How long that works, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// Reference of the image that it makes.
    #[serde(rename = "fullImagePath")]
    pub full_image_path: String,
    /// What the tag is, or becomes with the end of the build.
    pub visibility: Visibility,
}

/// The word that clients know for where a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum BuildStatus {
    /// Waits for its context, or for its turn.
    Pending,
    /// Its context comes, or came and was not started.
    Uploading,
    /// Under way.
    Building,
    /// The tag leads to its image.
    Completed,
    /// Over without an image.
    Failed,
    /// Over because somebody wanted it.
    Cancelled,
}

impl BuildStatus {
    /// Whether it is over.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Uploading => "UPLOADING",
            Self::Building => "BUILDING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// Answer of `GET /images/build/{id}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildState {
    /// Its id.
    pub id: String,
    /// Where it is.
    pub status: BuildStatus,
    /// Stable code of a failure; see `docs/images.md`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Reference of the image that it makes.
    pub full_image_path: String,
    /// Reference that is pulled; absent for a Dockerfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_image: Option<String>,
    /// Digest that it made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When it began.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When it was over.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub completed_at: Option<Timestamp>,
}

/// Answer of `GET /images/build`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Builds {
    /// The caller's, newest first.
    pub builds: Vec<BuildState>,
}

/// Answer of `GET /images/build/{id}/logs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BuildLogs {
    /// What the build said; its end is cut off where it is longer than the server keeps.
    pub logs: String,
}

/// Body of `POST /images/build/{id}/start`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct StartBuild {
    /// Says nothing that the server does not know better.
    #[serde(alias = "contextUploaded")]
    pub context_uploaded: bool,
}

/// Answer of the upload of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ContextTaken {
    /// Bytes.
    pub size: u64,
}
