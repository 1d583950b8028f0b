//! Checkpoints: which may be made, restored and deleted (`rules`, pure), and how the node gets there (`driver`).

pub(crate) mod driver;
mod rules;

pub(crate) use rules::{Undeletable, deletable};

use crate::api::ApiError;
use crate::auth::Caller;
use crate::context::Context;
use crate::store::{CheckpointRow, CheckpointStage};
use tokio::sync::Notify;
use warren_model::CheckpointId;
use warren_proto::http::{ErrorCode, FieldError};
use warren_proto::node::CheckpointMade;

/// What handlers and driver share.
#[derive(Default)]
pub(crate) struct Checkpoints {
    /// Told when a pending one is durable or has failed.
    pub(crate) settled: Notify,
    /// Asks for those to be let go that were deleted.
    pub(crate) nudge: Notify,
}

/// The checkpoint of that id, if the caller may use it and it was not deleted.
pub(crate) async fn find(cx: &Context, caller: &Caller, id: &str) -> Result<CheckpointRow, ApiError> {
    let row = find_deleted_too(cx, caller, id).await?;
    match row.stage {
        CheckpointStage::Deleting | CheckpointStage::Deleted => Err(unknown(id)),
        CheckpointStage::Pending | CheckpointStage::Durable | CheckpointStage::Failed => Ok(row),
    }
}

/// The same for one that was deleted not long ago.
pub(crate) async fn find_deleted_too(cx: &Context, caller: &Caller, id: &str) -> Result<CheckpointRow, ApiError> {
    let parsed = CheckpointId::parse(id).map_err(|_| unknown(id))?;
    let row = cx.store.checkpoint_get(&parsed).await?.ok_or_else(|| unknown(id))?;
    if !caller.may_use_of(cx, &row.user_id, row.team_id.as_deref()).await? {
        return Err(ApiError::new(ErrorCode::Forbidden, format!("checkpoint {parsed} belongs to somebody else")));
    }
    Ok(row)
}

/// What a new sandbox of this checkpoint starts from.
pub(crate) async fn restorable(
    cx: &Context,
    caller: &Caller,
    id: &str,
) -> Result<(CheckpointRow, CheckpointMade), ApiError> {
    let row = find_deleted_too(cx, caller, id).await?;
    if row.volume_id.is_some() {
        let msg = "is of a volume, which has no system to start: mount the volume instead";
        return Err(FieldError::body("checkpoint_id", msg).into());
    }
    let not_ready = |detail: String| ApiError::new(ErrorCode::CheckpointNotReady, detail);
    match (row.stage, &row.made) {
        (CheckpointStage::Durable, Some(made)) => {
            let made = made.clone();
            Ok((row, made))
        }
        (CheckpointStage::Deleting | CheckpointStage::Deleted, _) => {
            Err(ApiError::new(ErrorCode::NotFound, format!("checkpoint {id} was deleted")))
        }
        (CheckpointStage::Failed, _) => {
            let problem = row.error.as_deref().unwrap_or("no reason is known");
            Err(not_ready(format!("checkpoint {id} failed and cannot be restored: {problem}")))
        }
        (CheckpointStage::Pending | CheckpointStage::Durable, _) => {
            Err(not_ready(format!("checkpoint {id} is still PENDING: wait until it is DURABLE")))
        }
    }
}

fn unknown(id: &str) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("no checkpoint {}", id.escape_debug()))
}
