use super::ApiError;
use super::parsed::Parsed;
use crate::auth::Caller;
use crate::context::Context;
use crate::store::SandboxRow;
use axum::Json;
use axum::extract::State;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;
use warren_model::{SandboxId, Status};
use warren_proto::guest::JobState;
use warren_proto::http::{ErrorBody, JobError, JobErrorCode, JobKey, JobStatus, JobsAnswer, JobsQuery};
use warren_proto::node::NodeError;

type Outcome = Result<JobStatus, JobError>;

/// State of background jobs in many sandboxes; each sandbox is asked once.
#[utoipa::path(
    post, path = "/sandbox/background-jobs/status:batchGet", operation_id = "jobs_status_batch", tag = "sandbox",
    request_body = JobsQuery,
    responses((status = 200, body = JobsAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn status(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(query): Parsed<JobsQuery>,
) -> Result<Json<JobsAnswer>, ApiError> {
    query.check()?;
    let mut by_sandbox: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for job in &query.jobs {
        by_sandbox.entry(job.sandbox_id.clone()).or_default().push(job.job_id.clone());
    }
    let mut asking = JoinSet::new();
    for (sandbox_id, job_ids) in by_sandbox {
        asking.spawn(of_sandbox(cx.clone(), caller.clone(), sandbox_id, job_ids));
    }
    let mut outcomes = Vec::with_capacity(query.jobs.len());
    while let Some(done) = asking.join_next().await {
        outcomes.extend(done.map_err(|panic| ApiError::internal(&panic))??);
    }
    let at = |sandbox: &str, job: &str| query.jobs.iter().position(|k| k.sandbox_id == sandbox && k.job_id == job);
    outcomes.sort_by_key(|outcome| match outcome {
        Ok(status) => at(&status.sandbox_id, &status.job_id),
        Err(error) => at(&error.sandbox_id, &error.job_id),
    });
    let mut answer = JobsAnswer::default();
    for outcome in outcomes {
        match outcome {
            Ok(status) => answer.statuses.push(status),
            Err(error) => answer.errors.push(error),
        }
    }
    Ok(Json(answer))
}

async fn of_sandbox(
    cx: Arc<Context>,
    caller: Caller,
    sandbox_id: String,
    job_ids: Vec<String>,
) -> Result<Vec<Outcome>, ApiError> {
    let keys = || job_ids.iter().map(|job_id| JobKey { sandbox_id: sandbox_id.clone(), job_id: job_id.clone() });
    let all = |code, message: &str| keys().map(|key| Err(error(key, code, message))).collect::<Vec<Outcome>>();
    let row = match SandboxId::parse(&sandbox_id) {
        Ok(id) => cx.store.sandbox_get(&id).await?,
        Err(_) => None,
    };
    let Some(row) = row else { return Ok(all(JobErrorCode::NotFound, "no such sandbox")) };
    if !caller.may_use(&cx, &row).await? {
        return Ok(all(JobErrorCode::Forbidden, "the sandbox belongs to somebody else"));
    }
    if row.status != Status::Running {
        return Ok(all(JobErrorCode::NotRunning, &not_running(&row)));
    }
    Ok(match cx.node.jobs(&row.id, job_ids.clone()).await {
        Ok(states) if states.len() == job_ids.len() => {
            keys().zip(states).map(|(key, state)| outcome(key, &state)).collect()
        }
        Ok(_) => all(JobErrorCode::RuntimeError, "the guest answered for another number of jobs"),
        Err(NodeError::NotFound(_) | NodeError::NotRunning { .. }) => {
            all(JobErrorCode::NotRunning, "the sandbox has ended")
        }
        Err(error @ NodeError::NoAnswer { .. }) => all(JobErrorCode::RuntimeError, &error.to_string()),
    })
}

fn outcome(key: JobKey, state: &JobState) -> Outcome {
    let status = |completed, exit_code| {
        Ok(JobStatus { sandbox_id: key.sandbox_id.clone(), job_id: key.job_id.clone(), completed, exit_code })
    };
    match state {
        JobState::Running => status(false, None),
        JobState::Completed { exit_code } => status(true, Some(*exit_code)),
        JobState::NotFound => Err(error(key, JobErrorCode::NotFound, "no trace of such a job")),
        JobState::Lost => Err(error(key, JobErrorCode::RuntimeError, "the job died without leaving a status")),
    }
}

fn error(key: JobKey, code: JobErrorCode, message: &str) -> JobError {
    JobError { sandbox_id: key.sandbox_id, job_id: key.job_id, code, message: message.to_owned() }
}

fn not_running(row: &SandboxRow) -> String {
    format!("the sandbox is {}", row.status.as_str())
}
