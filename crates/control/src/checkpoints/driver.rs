//! Brings checkpoints to where they should be: pending ones to an end, deleted ones off the node.

use crate::clock::now_ms;
use crate::context::Context;
use crate::reconcile::driver::chain;
use crate::store::{CheckpointRow, CheckpointStage, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use warren_model::CheckpointId;
use warren_proto::node::{CheckpointState, checkpoint_image};

/// Pause before what failed is tried again, and between two looks at a node that does not hold its answers.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Longest time between two looks for checkpoints that are to be let go.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// How long a version of a volume that is not its head any more can still be asked for, so that whoever waits for it sees that it
/// became durable, milliseconds.
const VERSION_KEPT_MS: u64 = 3600 * 1000;

/// Follows those that an earlier run left pending.
pub(crate) async fn recover(cx: &Arc<Context>) -> Result<(), StoreError> {
    for row in cx.store.checkpoints_at(CheckpointStage::Pending).await? {
        cx.tasks.spawn(follow(cx.clone(), row.id));
    }
    Ok(())
}

/// Waits until the node says what became of a pending checkpoint, and writes that down.
pub(crate) async fn follow(cx: Arc<Context>, id: CheckpointId) {
    loop {
        let state = tokio::select! {
            // Followed again by the next start.
            () = cx.stop.cancelled() => return,
            state = cx.node.checkpoint_state(&id) => state,
        };
        let lost =
            || CheckpointState::Failed { problem: "its disk was not frozen before the node was restarted".to_owned() };
        let state = state.unwrap_or_else(lost);
        if state != CheckpointState::Pending {
            match cx.store.checkpoint_settle(&id, &state, now_ms()).await {
                Ok(()) => {
                    cx.checkpoints.settled.notify_waiters();
                    return;
                }
                Err(error) => tracing::error!(checkpoint = %id, error = chain(&error), "state not stored; tried again"),
            }
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Lets go of deleted checkpoints until shutdown.
pub(crate) async fn drive(cx: Arc<Context>) {
    loop {
        let before_ms = now_ms().saturating_sub(VERSION_KEPT_MS);
        let swept = match cx.store.superseded_delete(before_ms).await {
            Ok(_) => sweep(&cx).await,
            Err(error) => Err(error),
        };
        if let Err(error) = swept {
            tracing::error!(error = chain(&error), "deleted checkpoints not looked at; tried again");
        }
        tokio::select! {
            () = cx.stop.cancelled() => return,
            () = cx.checkpoints.nudge.notified() => {}
            () = sleep(SWEEP_EVERY) => {}
        }
    }
}

/// Has the node let go of those that were deleted and that no sandbox needs.
pub(crate) async fn sweep(cx: &Context) -> Result<(), StoreError> {
    let rows = cx.store.checkpoints_at(CheckpointStage::Deleting).await?;
    if rows.is_empty() {
        return Ok(());
    }
    // A sandbox that is being asked for has read its checkpoint, or will find it deleted.
    let _turn = cx.builds.pins.write().await;
    for row in rows {
        if is_needed(cx, &row).await? {
            continue;
        }
        match cx.node.remove_checkpoint(&row.id).await {
            Ok(()) => cx.store.checkpoint_deleted(&row.id, now_ms()).await?,
            Err(error) => tracing::warn!(checkpoint = %row.id, %error, "checkpoint not let go; tried again"),
        }
    }
    Ok(())
}

async fn is_needed(cx: &Context, row: &CheckpointRow) -> Result<bool, StoreError> {
    match &row.made {
        Some(made) if row.volume_id.is_some() => cx.store.volume_image_needed(&made.digest).await,
        Some(made) => cx.store.image_needed(&checkpoint_image(&row.id, &made.digest)).await,
        None => Ok(false),
    }
}
