use super::limits::CHECKPOINT_HOLD_MS;
use super::parsed::Parsed;
use super::{ApiError, checkpoint_show as show, get};
use crate::auth::Caller;
use crate::checkpoints::{driver, find, while_freezing};
use crate::clock::now_ms;
use crate::context::Context;
use crate::random;
use crate::store::{CheckpointRow, CheckpointStage, NewCheckpoint, SandboxRow, Taken};
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use warren_model::{CheckpointId, SandboxId, Status};
use warren_proto::http::{
    Checkpoint, CheckpointAnswer, CheckpointError, CheckpointErrorCode, CheckpointQuery, Checkpoints, ErrorBody,
    ErrorCode, limits,
};
use warren_proto::node::NodeError;

/// Freezes the disk of a running sandbox; answers once nothing that happens to the sandbox can harm the checkpoint any more. It is durable a
/// little later.
#[utoipa::path(
    post, path = "/sandbox/{id}/checkpoints", operation_id = "checkpoint_create", tag = "checkpoints",
    params(("id" = String, Path)),
    responses((status = 200, body = Checkpoint), (status = "default", body = ErrorBody))
)]
pub(super) async fn create(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Checkpoint>, ApiError> {
    // Noted before anything is looked at, so that a delete that comes a moment later waits for it.
    while_freezing(&cx, &id, freeze(&cx, &caller, &id)).await
}

async fn freeze(cx: &Arc<Context>, caller: &Caller, id: &str) -> Result<Json<Checkpoint>, ApiError> {
    let sandbox = get::find(cx, caller, id).await?;
    if !sandbox.is_live() || sandbox.status != Status::Running {
        let detail =
            format!("sandbox {} is {}: only a running one has a disk to freeze", sandbox.id, sandbox.status.as_str());
        return Err(ApiError::new(ErrorCode::NotRunning, detail));
    }
    let id = CheckpointId::parse(&random::id('k')?).map_err(|error| ApiError::internal(&error))?;
    // The intent comes first: whatever happens after it, a restart finds out what became of it.
    let (count_max, now_ms) = (limits::CHECKPOINTS_PER_SANDBOX_MAX, now_ms());
    let new = NewCheckpoint { id: &id, sandbox: &sandbox, count_max, now_ms };
    let row = match cx.store.checkpoint_insert(&new).await? {
        Taken::New(row) => row,
        Taken::TooMany => {
            let detail = format!("the maximum number of checkpoints of one sandbox is {count_max}: delete some");
            return Err(ApiError::new(ErrorCode::LimitReached, detail));
        }
    };
    match cx.node.checkpoint(&sandbox.id, &id).await {
        Ok(()) => {
            cx.tasks.spawn(driver::follow(cx.clone(), id));
            Ok(Json(show::checkpoint(*row)))
        }
        Err(error) => Err(refused(cx, &id, error).await?),
    }
}

/// A node that could not do it has nothing of it; one that did not answer in time may have, and is asked.
pub(super) async fn refused(cx: &Arc<Context>, id: &CheckpointId, error: NodeError) -> Result<ApiError, ApiError> {
    match cx.node.checkpoint_state(id).await {
        None => cx.store.checkpoint_withdraw(id).await?,
        Some(_) => drop(cx.tasks.spawn(driver::follow(cx.clone(), id.clone()))),
    }
    Ok(error.into())
}

/// Checkpoints of a sandbox, the oldest first; also after its end.
#[utoipa::path(
    get, path = "/sandbox/{id}/checkpoints", operation_id = "checkpoint_list", tag = "checkpoints",
    params(("id" = String, Path), ("checkpoint_id" = Option<String>, Query)),
    responses((status = 200, body = Checkpoints), (status = "default", body = ErrorBody))
)]
pub(super) async fn list(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Checkpoints>, ApiError> {
    let (_, rows) = of_sandbox(&cx, &caller, &id).await?;
    let mut pairs = form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes());
    let only = pairs.find(|(name, _)| name == "checkpoint_id").map(|(_, id)| id);
    let wanted = |row: &CheckpointRow| only.as_deref().is_none_or(|id| id == row.id.as_str());
    Ok(Json(Checkpoints { checkpoints: rows.into_iter().filter(wanted).map(show::checkpoint).collect() }))
}

/// A sandbox, which may have been dropped long after its end, and its checkpoints.
pub(super) async fn of_sandbox(
    cx: &Context,
    caller: &Caller,
    id: &str,
) -> Result<(Option<SandboxRow>, Vec<CheckpointRow>), ApiError> {
    let unknown = || ApiError::new(ErrorCode::NotFound, format!("no sandbox {}", id.escape_debug()));
    let parsed = SandboxId::parse(id).map_err(|_| unknown())?;
    let rows = cx.store.checkpoints_of(&parsed).await?;
    let sandbox = cx.store.sandbox_get(&parsed).await?;
    let owner = match (&sandbox, rows.first()) {
        (Some(row), _) => (&row.user_id, &row.team_id),
        (None, Some(row)) => (&row.user_id, &row.team_id),
        (None, None) => return Err(unknown()),
    };
    if !caller.may_use_of(cx, owner.0, owner.1.as_deref()).await? {
        return Err(ApiError::new(ErrorCode::Forbidden, format!("sandbox {parsed} belongs to somebody else")));
    }
    Ok((sandbox, rows))
}

/// One checkpoint.
#[utoipa::path(
    get, path = "/sandbox/checkpoints/{id}", operation_id = "checkpoint_get", tag = "checkpoints",
    params(("id" = String, Path)),
    responses((status = 200, body = Checkpoint), (status = "default", body = ErrorBody))
)]
pub(super) async fn get_one(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Checkpoint>, ApiError> {
    Ok(Json(show::checkpoint(find(&cx, &caller, &id).await?)))
}

/// Many checkpoints; held for a moment while all of them are pending.
#[utoipa::path(
    post, path = "/sandbox/checkpoints:batchGet", operation_id = "checkpoint_batch", tag = "checkpoints",
    request_body = CheckpointQuery,
    responses((status = 200, body = CheckpointAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn batch(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(query): Parsed<CheckpointQuery>,
) -> Result<Json<CheckpointAnswer>, ApiError> {
    query.check()?;
    let ids: Vec<CheckpointId> = query.checkpoint_ids.iter().filter_map(|id| CheckpointId::parse(id).ok()).collect();
    let mut settled = std::pin::pin!(cx.checkpoints.settled.notified());
    // From here on nothing that becomes durable is missed.
    settled.as_mut().enable();
    let mut rows = cx.store.checkpoints_get(&ids).await?;
    let all_wait =
        rows.len() == query.checkpoint_ids.len() && rows.iter().all(|row| row.stage == CheckpointStage::Pending);
    if all_wait && timeout(Duration::from_millis(CHECKPOINT_HOLD_MS), settled).await.is_ok() {
        rows = cx.store.checkpoints_get(&ids).await?;
    }
    let mut by_id: HashMap<String, CheckpointRow> = rows.into_iter().map(|row| (row.id.to_string(), row)).collect();
    let mut answer = CheckpointAnswer::default();
    for checkpoint_id in query.checkpoint_ids {
        let shown = match by_id.remove(&checkpoint_id) {
            Some(row)
                if show::is_shown(&row) && caller.may_use_of(&cx, &row.user_id, row.team_id.as_deref()).await? =>
            {
                Some(row)
            }
            _ => None,
        };
        match shown {
            Some(row) => answer.checkpoints.push(show::checkpoint(row)),
            None => answer.errors.push(CheckpointError {
                checkpoint_id,
                code: CheckpointErrorCode::NotFound,
                message: "no such checkpoint, or it belongs to somebody else".to_owned(),
            }),
        }
    }
    Ok(Json(answer))
}
