use super::{FieldError, Invalid, limits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::ToSchema;
use warren_model::Status;

/// The seven words for what a sandbox is doing; clients refuse any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StatusWord {
    /// Accepted; waits for its image or for room.
    Pending,
    /// Its machine is being started.
    Provisioning,
    /// It takes commands.
    Running,
    /// It is kept without using CPU or memory.
    Paused,
    /// It ended by a fault.
    Error,
    /// It ended because somebody asked, or because it was idle.
    Terminated,
    /// Its lifetime was over.
    Timeout,
}

impl From<Status> for StatusWord {
    fn from(status: Status) -> Self {
        match status {
            Status::Pending => StatusWord::Pending,
            Status::Provisioning => StatusWord::Provisioning,
            Status::Running => StatusWord::Running,
            Status::Paused => StatusWord::Paused,
            Status::Error => StatusWord::Error,
            Status::Terminated => StatusWord::Terminated,
            Status::Timeout => StatusWord::Timeout,
        }
    }
}

impl From<StatusWord> for Status {
    fn from(word: StatusWord) -> Self {
        match word {
            StatusWord::Pending => Status::Pending,
            StatusWord::Provisioning => Status::Provisioning,
            StatusWord::Running => Status::Running,
            StatusWord::Paused => Status::Paused,
            StatusWord::Error => Status::Error,
            StatusWord::Terminated => Status::Terminated,
            StatusWord::Timeout => Status::Timeout,
        }
    }
}

/// Body of `POST /sandbox/status:batchGet`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusQuery {
    /// 1 to [`limits::BATCH_MAX`] ids, each once.
    pub sandbox_ids: Vec<String>,
}

impl StatusQuery {
    /// Number of ids, and that each is there once.
    pub fn check(&self) -> Result<(), Invalid> {
        check_batch("sandbox_ids", &self.sandbox_ids)
    }
}

/// Refuses a batch, the field `field` of a body, that has no ids, too many, or one twice.
pub(super) fn check_batch(field: &str, ids: &[String]) -> Result<(), Invalid> {
    let refuse = |msg: String| Err(FieldError::body(field, msg).into());
    if ids.is_empty() || ids.len() > limits::BATCH_MAX {
        return refuse(format!("expected 1 to {} ids", limits::BATCH_MAX));
    }
    let unique: BTreeSet<_> = ids.iter().collect();
    if unique.len() == ids.len() { Ok(()) } else { refuse("an id is there twice".to_owned()) }
}

/// Every id asked for is in one of the lists, in the order asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusAnswer {
    /// Sandboxes that the caller may see.
    pub statuses: Vec<StatusSnapshot>,
    /// The others.
    pub errors: Vec<StatusError>,
}

/// Where a sandbox is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusSnapshot {
    /// Which.
    pub sandbox_id: String,
    /// Status.
    pub status: StatusWord,
    /// From the closed list of error types.
    pub error_type: Option<String>,
    /// For people.
    pub error_message: Option<String>,
    /// Set while its image is being made ready.
    pub pending_image_build_id: Option<String>,
}

/// Why an id has no status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StatusError {
    /// Which.
    pub sandbox_id: String,
    /// Closed list.
    pub code: StatusErrorCode,
    /// For people.
    pub message: String,
}

/// The codes that clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StatusErrorCode {
    /// No such sandbox.
    NotFound,
    /// It belongs to somebody else.
    Forbidden,
}

/// Answer of `GET /sandbox/{id}/logs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Logs {
    /// Output of the start command, and boot messages if the machine did not start.
    pub logs: String,
}

/// Answer of `GET /sandbox/{id}/error-context`: what a client asks after a vague fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorContext {
    /// Status.
    pub status: Option<StatusWord>,
    /// From the closed list of error types.
    pub error_type: Option<String>,
    /// For people.
    pub error_message: Option<String>,
    /// Whether the platform failed, so that the episode says nothing about the task.
    #[serde(rename = "infra_fault")]
    pub infra_fault: bool,
}

/// Answer of `GET /healthz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`.
    pub status: String,
    /// `kvm` or `tcg`.
    pub accel: String,
    /// Sandboxes that hold resources now.
    pub sandboxes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_model() {
        for status in Status::ALL {
            let word = serde_json::to_value(StatusWord::from(status)).unwrap();
            assert_eq!(word, status.as_str());
            assert_eq!(Status::from(StatusWord::from(status)), status);
        }
    }

    #[test]
    fn a_batch_is_bounded_and_has_each_id_once() {
        let query = |ids: Vec<String>| StatusQuery { sandbox_ids: ids };
        assert!(query(vec![]).check().is_err());
        assert!(query(vec!["a".into(), "a".into()]).check().is_err());
        assert!(query((0..101).map(|i| i.to_string()).collect()).check().is_err());
        assert!(query((0..100).map(|i| i.to_string()).collect()).check().is_ok());
    }
}
