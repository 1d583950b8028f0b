use super::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Body of `POST /sandbox/{id}/snapshots`; may be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewSnapshot {
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// How far a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum SnapshotState {
    /// It is being taken.
    Pending,
    /// Sandboxes can go on from it.
    Ready,
    /// It could not be taken, or was lost.
    Failed,
    /// It is being let go.
    Deleting,
}

impl SnapshotState {
    const ALL: [(SnapshotState, &'static str); 4] = [
        (SnapshotState::Pending, "pending"),
        (SnapshotState::Ready, "ready"),
        (SnapshotState::Failed, "failed"),
        (SnapshotState::Deleting, "deleting"),
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

/// Memory, devices and disk of a sandbox at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Unique for all time.
    pub id: String,
    /// For people.
    pub name: Option<String>,
    /// The sandbox that it was taken of; it may be gone.
    pub sandbox_id: String,
    /// How far it is.
    pub state: SnapshotState,
    /// The image of that sandbox, as it was asked for.
    pub docker_image: String,
    /// Digest of that image.
    pub image_digest: Option<String>,
    /// vCPUs of whoever goes on from it.
    pub cpu_cores: f64,
    /// Memory, GiB.
    #[serde(rename = "memoryGB")]
    pub memory_gb: f64,
    /// Disk, GiB.
    #[serde(rename = "diskSizeGB")]
    pub disk_size_gb: f64,
    /// Whether secrets of the sandbox, or of one that it is a fork of, may be in its memory: treat it as one.
    pub has_secrets: bool,
    /// How long the sandbox stood still for it, milliseconds.
    pub paused_ms: Option<f64>,
    /// Bytes that it holds alone on the node's disk.
    pub stored_bytes: Option<u64>,
    /// Hash of what it holds, once computed: two episodes that began from the same one began in the same state.
    pub digest: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
    /// Who took it.
    pub user_id: String,
    /// Team that owns it.
    pub team_id: Option<String>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

/// Many, the oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Snapshots {
    /// At most 1000.
    pub snapshots: Vec<Snapshot>,
}

/// A snapshot was let go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotDeleted {
    /// Which.
    pub id: String,
}

/// What forks get of the secrets of the sandbox that they are forks of. What programs have read of them already is in their memory in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SecretsPolicy {
    /// All of them, for new commands.
    #[default]
    Keep,
    /// None.
    Drop,
}

/// Body of `POST /sandbox/{id}/fork` and of `POST /snapshots/{id}/fork`; may be absent.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Fork {
    /// How many forks; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Name of each; the sandbox's with `-fork`, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Labels of each; the sandbox's, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Lifetime of each from its own start, minutes; the sandbox's, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_minutes: Option<i64>,
    /// More environment for new commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_vars: Option<BTreeMap<String, String>>,
    /// What becomes of the sandbox's secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets_policy: Option<SecretsPolicy>,
    /// More secrets, or new values of old ones, for new commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<BTreeMap<String, String>>,
}

impl std::fmt::Debug for Fork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Environment and secrets stay out of logs.
        write!(f, "Fork({:?} times)", self.count)
    }
}

/// Answer of a fork.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Forked {
    /// As many as were asked for, running, or on their way.
    pub sandboxes: Vec<super::Created>,
}

/// Body of `POST /sandbox/{id}/reset`; may be absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reset {
    /// The snapshot to go back to; the sandbox's newest, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
}
