use super::{StartCommand, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Body of `POST /templates`: the creates that are to go on from it, and when it may be taken.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewTemplate {
    /// For people; the image, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Image reference.
    pub docker_image: String,
    /// What is started in it; the image's own start, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_command: Option<StartCommand>,
    /// Runs again and again in it; the snapshot is taken once it exits with 0. At once, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<StartCommand>,
    /// It must be ready within so many seconds; 300 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_within_secs: Option<u64>,
    /// vCPUs; fractions round up; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    /// Memory, GiB; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gb: Option<f64>,
    /// Disk, GiB; 5 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_size_gb: Option<f64>,
    /// Environment of the start command: creates with a start command go on from it only if theirs is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_vars: Option<BTreeMap<String, String>>,
    /// Only these may be reached while it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_allowlist: Option<Vec<String>>,
    /// All but these may be reached while it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_denylist: Option<Vec<String>>,
    /// Team whose creates go on from it; the caller's own, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
}

/// How far a template is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TemplateState {
    /// It is being made; creates start without it.
    Making,
    /// Creates go on from it.
    Ready,
    /// It could not be made.
    Failed,
    /// It was dropped for lack of use; the next create like it has it made again.
    Idle,
    /// It is being let go.
    Deleting,
}

impl TemplateState {
    const ALL: [(TemplateState, &'static str); 5] = [
        (TemplateState::Making, "making"),
        (TemplateState::Ready, "ready"),
        (TemplateState::Failed, "failed"),
        (TemplateState::Idle, "idle"),
        (TemplateState::Deleting, "deleting"),
    ];

    /// The word of the store.
    pub fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find(|(state, _)| *state == self).map_or("", |(_, word)| word)
    }

    /// Reads the word of the store.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == word).map(|(state, _)| state)
    }
}

/// An app template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Unique for all time.
    pub id: String,
    /// For people.
    pub name: String,
    /// How far it is.
    pub state: TemplateState,
    /// Image reference.
    pub docker_image: String,
    /// Digest of the image that it was made of.
    pub image_digest: Option<String>,
    /// What is started in it.
    pub start_command: Option<StartCommand>,
    /// What says that it is ready.
    pub ready: Option<StartCommand>,
    /// vCPUs.
    pub cpu_cores: f64,
    /// Memory, GiB.
    #[serde(rename = "memoryGB")]
    pub memory_gb: f64,
    /// Disk, GiB.
    #[serde(rename = "diskSizeGB")]
    pub disk_size_gb: f64,
    /// Environment of the start command.
    pub environment_vars: Option<BTreeMap<String, String>>,
    /// Why it failed.
    pub error: Option<String>,
    /// Who asked for it.
    pub user_id: String,
    /// Team whose creates go on from it.
    pub team_id: Option<String>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When a create last went on from it.
    #[schema(value_type = String, format = DateTime)]
    pub used_at: Timestamp,
}

/// Many, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Templates {
    /// All of the caller's, or of the team.
    pub templates: Vec<Template>,
}
