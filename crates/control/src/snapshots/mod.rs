//! Snapshots as control keeps them: the row comes before the node is asked, and goes after the node has let go.

pub(crate) mod settle;

use crate::api::ApiError;
use crate::clock::now_ms;
use crate::context::Context;
use crate::random;
use crate::reconcile::Begun;
use crate::store::{SandboxRow, SnapshotRow, StoreError};
use warren_model::{SnapshotId, Status};
use warren_proto::http::{ErrorCode, SnapshotState};

/// Snapshots of one user that he has to delete himself.
const SNAPSHOTS_PER_USER_MAX: u64 = 1000;

/// For what a snapshot is taken.
pub(crate) enum Kind {
    /// For somebody to go back to, under a name or not.
    Named(Option<String>),
    /// For a fork; it goes once the forks have started.
    Passing,
}

/// Takes a snapshot of a running sandbox. While what comes with it lives, a passing one is not let go.
pub(crate) async fn take(
    cx: &Context,
    source: &SandboxRow,
    user_id: &str,
    kind: Kind,
) -> Result<(SnapshotRow, Begun<SnapshotId>), ApiError> {
    if !source.is_live() || source.status != Status::Running {
        let detail = format!("sandbox {} is {}; only a running one has a snapshot", source.id, source.status.as_str());
        return Err(ApiError::new(ErrorCode::NotRunning, detail));
    }
    if matches!(kind, Kind::Named(_)) && cx.store.snapshots_count(user_id).await? >= SNAPSHOTS_PER_USER_MAX {
        let detail = format!("the maximum number of {SNAPSHOTS_PER_USER_MAX} snapshots is reached; delete some");
        return Err(ApiError::new(ErrorCode::LimitReached, detail));
    }
    let id = SnapshotId::from_bits(random::bits()?);
    let now = now_ms();
    let (name, passing) = match kind {
        Kind::Named(name) => (name, false),
        Kind::Passing => (None, true),
    };
    let mut row = SnapshotRow {
        secrets: sealed_again(cx, source, &id)?,
        id,
        sandbox_id: source.id.clone(),
        user_id: user_id.to_owned(),
        team_id: source.team_id.clone(),
        name,
        passing,
        state: SnapshotState::Pending,
        request: source.request.clone(),
        egress: source.egress.clone(),
        node_image: source.node_image.clone(),
        image_digest: source.image_digest.clone(),
        paused_us: None,
        stored_bytes: None,
        digest: None,
        error: None,
        created_at_ms: now,
        updated_at_ms: now,
    };
    // Until it is ready, the plan leaves it alone.
    let begun = cx.snapshots_underway.begin(&row.id);
    cx.store.snapshot_insert(&row).await?;
    match cx.node.snapshot(&source.id, &row.id).await {
        Ok(info) => row.is_ready(&info),
        Err(error) => {
            row.state = SnapshotState::Failed;
            row.error = Some(error.to_string());
            row.updated_at_ms = now_ms();
            // One that failed at once is known to its caller; nobody else knows of it.
            cx.store.snapshot_delete(&row.id).await?;
            return Err(error.into());
        }
    }
    row.updated_at_ms = now_ms();
    cx.store.snapshot_update(&row).await?;
    Ok((row, begun))
}

/// The sandbox's secrets, sealed for a snapshot: it may outlive the sandbox.
fn sealed_again(cx: &Context, source: &SandboxRow, id: &SnapshotId) -> Result<Option<String>, ApiError> {
    let Some(sealed) = &source.secrets else { return Ok(None) };
    let plain = cx.sealer.unseal(source.id.as_str(), sealed).map_err(|error| ApiError::internal(&error))?;
    Ok(Some(cx.sealer.seal(id.as_str(), &plain)?))
}

/// Lets a snapshot go. Who goes on from it, or lies on it, keeps what is needed.
pub(crate) async fn delete(cx: &Context, mut row: SnapshotRow) -> Result<(), StoreError> {
    row.state = SnapshotState::Deleting;
    row.updated_at_ms = now_ms();
    cx.store.snapshot_update(&row).await?;
    settle::let_go(cx, &row).await
}
