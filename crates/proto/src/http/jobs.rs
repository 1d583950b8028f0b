use super::{FieldError, Invalid, limits};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Body of `POST /sandbox/background-jobs/status:batchGet`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobsQuery {
    /// 1 to [`limits::BATCH_MAX`].
    pub jobs: Vec<JobKey>,
}

/// One background job of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub struct JobKey {
    /// The sandbox.
    pub sandbox_id: String,
    /// 8 hex digits.
    pub job_id: String,
}

/// Every job asked for is in one of the lists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobsAnswer {
    /// Jobs with a known state.
    pub statuses: Vec<JobStatus>,
    /// Jobs without one.
    pub errors: Vec<JobError>,
}

/// State of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobStatus {
    /// The sandbox.
    pub sandbox_id: String,
    /// The job.
    pub job_id: String,
    /// Whether it ended.
    pub completed: bool,
    /// Exit code; present exactly if it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
}

/// Why a job has no state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobError {
    /// The sandbox.
    pub sandbox_id: String,
    /// The job.
    pub job_id: String,
    /// Closed list.
    pub code: JobErrorCode,
    /// For people.
    pub message: String,
}

/// The codes that clients know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobErrorCode {
    /// No such sandbox, or no trace of such a job in it.
    NotFound,
    /// The sandbox belongs to somebody else.
    Forbidden,
    /// The sandbox does not run.
    NotRunning,
    /// The job died without a status, or the guest did not answer.
    RuntimeError,
}

impl JobsQuery {
    /// Number and shape of the jobs.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.jobs.is_empty() || self.jobs.len() > limits::BATCH_MAX {
            return Err(FieldError::body("jobs", format!("expected 1 to {} jobs", limits::BATCH_MAX)).into());
        }
        let bad = self.jobs.iter().position(|job| !is_job_id(&job.job_id));
        match bad {
            None => Ok(()),
            Some(at) => Err(FieldError::at(&["jobs"], at, "job_id", "expected 8 hex digits").into()),
        }
    }
}

fn is_job_id(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|b| b.is_ascii_hexdigit())
}
