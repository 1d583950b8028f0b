//! Owned images: the list, changes of tags.

use super::{BuildStatus, FieldError, Invalid, Timestamp, Visibility, limits};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// Kind of an artifact: machines boot from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum ArtifactType {
    /// The one kind that clients know.
    #[serde(rename = "VM_SANDBOX")]
    VmSandbox,
}

/// Kind of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OwnerType {
    /// A person.
    Personal,
    /// A team.
    Team,
    /// Nobody: everyone's.
    Platform,
}

/// One row of the list of images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageItem {
    /// Of the tag, or of the build that has not made it.
    pub id: String,
    /// Always `VM_SANDBOX`.
    pub artifact_type: ArtifactType,
    /// Name without owner.
    pub image_name: String,
    /// Tag.
    pub image_tag: String,
    /// COMPLETED for a tag that leads to an image; else where its last build is.
    pub status: BuildStatus,
    /// Reference for `POST /sandbox`.
    pub full_image_path: String,
    /// The same.
    pub display_ref: String,
    /// Why the build failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Bytes on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Digest that the tag leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Who may use it.
    pub visibility: Visibility,
    /// When the tag, or the build, was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When the build began.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub started_at: Option<Timestamp>,
    /// When the build was over.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub completed_at: Option<Timestamp>,
    /// When the tag came to lead where it leads.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub pushed_at: Option<Timestamp>,
    /// Team that owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
    /// Kind of owner.
    pub owner_type: OwnerType,
}

/// Answer of `GET /images`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageList {
    /// Rows of the page; a tag whose last build did not end well has two.
    pub data: Vec<ImageItem>,
    /// Tags on all pages.
    pub total_count: u64,
    /// Tags before this page.
    pub offset: u64,
    /// Tags on a full page.
    pub limit: u64,
}

/// Query of `GET /images`.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct ImageListQuery {
    /// Tags to skip.
    #[param(value_type = Option<u64>)]
    pub offset: u64,
    /// At most [`limits::IMAGES_PER_PAGE_MAX`].
    #[param(value_type = Option<u64>)]
    pub limit: u64,
    /// Of this team; absent is the caller.
    pub team_id: Option<String>,
    /// `ownerScope=platform`: images of the platform.
    #[param(rename = "ownerScope", value_type = Option<String>)]
    pub platform: bool,
    /// Part of a name, tag or reference, in any case.
    pub search: Option<String>,
}

impl ImageListQuery {
    /// Reads the decoded pairs of a query string; unknown keys are ignored, empty values count as absent.
    pub fn from_pairs<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> Result<Self, Invalid> {
        let default = u64::from(limits::PER_PAGE_DEFAULT);
        let mut query = Self { offset: 0, limit: default, team_id: None, platform: false, search: None };
        let mut errors = Vec::new();
        for (key, value) in pairs {
            let value = value.as_ref();
            match key.as_ref() {
                _ if value.is_empty() => {}
                "offset" => match value.parse() {
                    Ok(number) => query.offset = number,
                    Err(_) => errors.push(FieldError::query("offset", "a whole number from 0")),
                },
                "limit" => match value.parse() {
                    Ok(number @ 1..=limits::IMAGES_PER_PAGE_MAX) => query.limit = number,
                    _ => {
                        let msg = format!("a whole number from 1 to {}", limits::IMAGES_PER_PAGE_MAX);
                        errors.push(FieldError::query("limit", msg));
                    }
                },
                "teamId" | "team_id" => query.team_id = Some(value.to_owned()),
                "ownerScope" | "owner_scope" if value == "platform" => query.platform = true,
                "ownerScope" | "owner_scope" => errors.push(FieldError::query("ownerScope", "platform, or absent")),
                "search" => query.search = Some(value.to_owned()),
                _ => {}
            }
        }
        if errors.is_empty() { Ok(query) } else { Err(Invalid { errors }) }
    }
}

/// An owner in a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ImageOwner {
    /// The caller.
    Personal,
    /// A team.
    Team {
        /// Which.
        #[serde(rename = "teamId")]
        team_id: String,
    },
    /// Nobody: everyone's.
    Platform,
}

/// Names the tag that is changed: by owner, name and tag, or by a reference. Answers repeat it in the form that it came in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpdateSource {
    /// Owner, with `name` and `tag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ImageOwner>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Reference, without the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// What is changed; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct UpdateSet {
    /// New name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// New tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// New owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<ImageOwner>,
    /// New visibility.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visibility: Option<Visibility>,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageUpdate {
    /// Of which tag.
    pub source: UpdateSource,
    /// To what.
    pub set: UpdateSet,
}

/// Body of `PATCH /images`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateImages {
    /// `explicit`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Whether only to say what would be done.
    #[serde(default, alias = "dry_run")]
    pub dry_run: bool,
    /// The changes, at most [`limits::IMAGE_UPDATES_MAX`], done in this order.
    pub updates: Vec<ImageUpdate>,
}

/// Answer of `PATCH /images`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateImagesAnswer {
    /// Whether all succeeded.
    pub success: bool,
    /// As asked.
    pub dry_run: bool,
    /// In the order of the request.
    pub results: Vec<UpdateResult>,
}

/// What became of one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpdateResult {
    /// As it came.
    pub source: UpdateSource,
    /// Whether it was done, or would be.
    pub success: bool,
    /// The tag before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<ImageCoordinate>,
    /// The tag after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<ImageCoordinate>,
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<UpdateError>,
}

/// Where a tag is and who may use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageCoordinate {
    /// Owner.
    pub owner: ImageOwner,
    /// Name.
    pub name: String,
    /// Tag.
    pub tag: String,
    /// Who may use it.
    pub visibility: Visibility,
}

/// Why one change was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UpdateError {
    /// `not_found`, `forbidden`, `conflict`, `build_in_progress`, `limit_reached`, `invalid`.
    pub code: String,
    /// For people.
    pub message: String,
}

/// Answer of `DELETE /images/{name}/{tag}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImageDeleted {
    /// Reference that leads nowhere now.
    pub deleted: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_repeated_in_its_form() {
        for text in [
            r#"{"owner":{"type":"team","teamId":"c1"},"name":"a","tag":"b"}"#,
            r#"{"owner":{"type":"personal"},"name":"a","tag":"b"}"#,
            r#"{"reference":"prime/alice/a:b"}"#,
        ] {
            let source: UpdateSource = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&source).unwrap(), text);
        }
    }

    #[test]
    fn the_query_of_the_cli() {
        let query = ImageListQuery::from_pairs([("offset", "50"), ("limit", "250"), ("ownerScope", "platform")]);
        let query = query.unwrap();
        assert_eq!((query.offset, query.limit, query.platform), (50, 250, true));
        for bad in [("limit", "251"), ("limit", "0"), ("offset", "-1"), ("ownerScope", "team")] {
            assert!(ImageListQuery::from_pairs([bad]).is_err(), "{bad:?}");
        }
    }
}
