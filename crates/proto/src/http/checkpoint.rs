use super::status::check_batch;
use super::{Invalid, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The disk of a sandbox at one moment. It outlives the sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoint {
    /// Unique for all time.
    pub id: String,
    /// Whose disk.
    pub sandbox_id: String,
    /// The checkpoint that the disk was before: an earlier one of the sandbox, or the one that the sandbox was made from.
    pub parent_id: Option<String>,
    /// Team that owns it.
    pub team_id: Option<String>,
    /// How far it is.
    pub state: CheckpointWord,
    /// How many checkpoints lie below it.
    pub depth: u64,
    /// Image of the sandbox, as its creator named it.
    pub docker_image: String,
    /// Length of the disk, bytes; once durable.
    pub disk_size_bytes: Option<u64>,
    /// Bytes that it holds and the sandbox's image does not; once durable.
    pub stored_bytes: Option<u64>,
    /// Bytes of all that is no hole in the disk; 0 until it is durable.
    pub occupied_bytes: u64,
    /// Why it failed, for people.
    pub error: Option<String>,
    /// When it was asked for.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When anything of this changed last.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

/// How far a checkpoint is. Clients wait while it is none that they know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CheckpointWord {
    /// Its disk is frozen; it is being made durable.
    Pending,
    /// It can be restored, whatever happens to the sandbox and its node.
    Durable,
    /// It can never be restored.
    Failed,
}

/// Answer of `GET /sandbox/{id}/checkpoints`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Checkpoints {
    /// The oldest first.
    pub checkpoints: Vec<Checkpoint>,
}

/// Body of `POST /sandbox/checkpoints:batchGet`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointQuery {
    /// 1 to [`super::limits::BATCH_MAX`] ids, each once.
    pub checkpoint_ids: Vec<String>,
}

impl CheckpointQuery {
    /// Number of ids, and that each is there once.
    pub fn check(&self) -> Result<(), Invalid> {
        check_batch("checkpoint_ids", &self.checkpoint_ids)
    }
}

/// Every id asked for is in one of the lists, in the order asked.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointAnswer {
    /// Checkpoints that the caller may see.
    pub checkpoints: Vec<Checkpoint>,
    /// The others.
    pub errors: Vec<CheckpointError>,
}

/// Answer of `DELETE /sandbox/checkpoints/{id}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointDeleted {
    /// Which.
    pub id: String,
}

/// Answer of `DELETE /sandbox/{id}/checkpoints`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointsDeleted {
    /// Deleted now.
    pub deleted: Vec<String>,
    /// Not deleted.
    pub errors: Vec<CheckpointError>,
}

/// Why a checkpoint of several was not shown or deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointError {
    /// Which.
    pub checkpoint_id: String,
    /// Closed list.
    pub code: CheckpointErrorCode,
    /// For people.
    pub message: String,
}

/// The codes that clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CheckpointErrorCode {
    /// No such checkpoint, or it is somebody else's.
    NotFound,
    /// It is pending, or the newest of a sandbox that lives. Only of deletes.
    Conflict,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_the_clients() {
        let word = |word: CheckpointWord| serde_json::to_value(word).unwrap();
        assert_eq!([word(CheckpointWord::Pending), word(CheckpointWord::Durable)], ["PENDING", "DURABLE"]);
        assert_eq!(serde_json::to_value(CheckpointErrorCode::NotFound).unwrap(), "NOT_FOUND");
    }

    #[test]
    fn a_batch_is_bounded_and_has_each_id_once() {
        let query = |ids: Vec<String>| CheckpointQuery { checkpoint_ids: ids };
        assert!(query(vec![]).check().is_err());
        assert!(query(vec!["k1".into(), "k1".into()]).check().is_err());
        assert!(query((0..101).map(|i| format!("k{i}")).collect()).check().is_err());
        assert!(query((0..100).map(|i| format!("k{i}")).collect()).check().is_ok());
    }
}
