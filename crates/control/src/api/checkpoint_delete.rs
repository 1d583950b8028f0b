use super::ApiError;
use super::checkpoints::of_sandbox;
use crate::auth::Caller;
use crate::checkpoints::{Undeletable, deletable, driver, find_deleted_too};
use crate::clock::now_ms;
use crate::context::Context;
use crate::store::{CheckpointRow, CheckpointStage, StoreError};
use axum::Json;
use axum::extract::{Path, State};
use std::sync::Arc;
use warren_model::SandboxId;
use warren_proto::http::{
    CheckpointDeleted, CheckpointError, CheckpointErrorCode, CheckpointsDeleted, ErrorBody, ErrorCode,
};

/// Deletes a checkpoint; one that was deleted before is deleted already. What was made from it keeps its bytes.
#[utoipa::path(
    delete, path = "/sandbox/checkpoints/{id}", operation_id = "checkpoint_delete", tag = "checkpoints",
    params(("id" = String, Path)),
    responses((status = 200, body = CheckpointDeleted), (status = "default", body = ErrorBody))
)]
pub(super) async fn delete(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<CheckpointDeleted>, ApiError> {
    let row = find_deleted_too(&cx, &caller, &id).await?;
    if !matches!(row.stage, CheckpointStage::Deleting | CheckpointStage::Deleted) {
        let (lives, others) = beside(&cx, &row).await?;
        deletable(&row, &others, lives).map_err(|why| conflict(&id, why))?;
        if cx.store.is_head(&row.id).await? {
            return Err(conflict(&id, Undeletable::Head));
        }
        // Where another was faster, it is deleted all the same.
        cx.store.checkpoint_delete(&row.id, now_ms()).await?;
        clear(&cx).await?;
    }
    Ok(Json(CheckpointDeleted { id }))
}

/// Deletes all checkpoints of a sandbox that may be.
#[utoipa::path(
    delete, path = "/sandbox/{id}/checkpoints", operation_id = "checkpoint_delete_all", tag = "checkpoints",
    params(("id" = String, Path)),
    responses((status = 200, body = CheckpointsDeleted), (status = "default", body = ErrorBody))
)]
pub(super) async fn delete_all(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<CheckpointsDeleted>, ApiError> {
    let (sandbox, rows) = of_sandbox(&cx, &caller, &id).await?;
    let lives = sandbox.is_some_and(|sandbox| sandbox.is_live());
    let mut answer = CheckpointsDeleted::default();
    for row in &rows {
        let checkpoint_id = row.id.to_string();
        let problem = match deletable(row, &rows, lives) {
            Err(why) => Some((CheckpointErrorCode::Conflict, why.to_string())),
            Ok(()) if cx.store.checkpoint_delete(&row.id, now_ms()).await? => None,
            Ok(()) => Some((CheckpointErrorCode::NotFound, "it was deleted by somebody else".to_owned())),
        };
        match problem {
            None => answer.deleted.push(checkpoint_id),
            Some((code, message)) => answer.errors.push(CheckpointError { checkpoint_id, code, message }),
        }
    }
    clear(&cx).await?;
    Ok(Json(answer))
}

/// Whether the sandbox of a checkpoint lives, and all its checkpoints.
async fn beside(cx: &Context, row: &CheckpointRow) -> Result<(bool, Vec<CheckpointRow>), StoreError> {
    let Ok(sandbox) = SandboxId::parse(&row.sandbox_id) else { return Ok((false, Vec::new())) };
    let lives = cx.store.sandbox_get(&sandbox).await?.is_some_and(|sandbox| sandbox.is_live());
    Ok((lives, cx.store.checkpoints_of(&sandbox).await?))
}

/// Has the node let go what it may; the rest once nothing needs it.
async fn clear(cx: &Context) -> Result<(), StoreError> {
    let swept = driver::sweep(cx).await;
    cx.checkpoints.nudge.notify_one();
    swept
}

fn conflict(id: &str, why: Undeletable) -> ApiError {
    ApiError::new(ErrorCode::CheckpointInUse, format!("checkpoint {id} is not deleted: {why}"))
}
