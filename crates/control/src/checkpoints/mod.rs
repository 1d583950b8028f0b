//! Checkpoints: which may be made, restored and deleted (`rules`, pure), and how the node gets there (`driver`).

pub(crate) mod driver;
mod rules;

pub(crate) use rules::{Undeletable, deletable};

use crate::api::ApiError;
use crate::auth::Caller;
use crate::context::Context;
use crate::reconcile::Underway;
use crate::store::{CheckpointRow, CheckpointStage};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use warren_model::{CheckpointId, SandboxId};
use warren_proto::http::{ErrorCode, FieldError};
use warren_proto::node::CheckpointMade;

/// Longest that the end of a sandbox waits here for a checkpoint of it: the node, once it has begun, waits on its own.
const FREEZE_BEGINS_WAIT: Duration = Duration::from_secs(2);

/// What handlers and driver share.
#[derive(Default)]
pub(crate) struct Checkpoints {
    /// Sandboxes whose disk is being frozen.
    pub(crate) freezing: Underway<SandboxId>,
    /// Told when a pending one is durable or has failed.
    pub(crate) settled: Notify,
    /// Asks for those to be let go that were deleted.
    pub(crate) nudge: Notify,
}

/// Waits a little until no disk of a sandbox is being frozen: a checkpoint that was asked for before a delete is whole.
pub(crate) async fn until_frozen(cx: &Context, sandbox: &SandboxId) {
    let waiter = cx.changes.listen(vec![sandbox.clone()]);
    let deadline = Instant::now() + FREEZE_BEGINS_WAIT;
    while cx.checkpoints.freezing.is_begun(sandbox) && waiter.changed(deadline).await {}
}

/// Freezes a disk of a sandbox; an end of the sandbox that is asked for meanwhile waits a little.
pub(crate) async fn while_freezing<T>(cx: &Context, sandbox: &str, freeze: impl Future<Output = T>) -> T {
    // Noted before anything is looked at, so that a delete that comes a moment later waits for it.
    let begun = SandboxId::parse(sandbox).ok().map(|id| (cx.checkpoints.freezing.begin(&id), id));
    let answer = freeze.await;
    if let Some((begun, sandbox)) = begun {
        drop(begun);
        cx.changes.tell(&sandbox);
    }
    answer
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
