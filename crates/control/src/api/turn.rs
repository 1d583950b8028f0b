//! What a sandbox is put through while it lives: reset, pause, resume.

use super::ApiError;
use super::get::find;
use super::parsed::Parsed;
use super::show;
use super::snapshots::find_snapshot;
use crate::auth::Caller;
use crate::context::Context;
use crate::random;
use crate::reconcile::dispatch;
use crate::store::SandboxRow;
use axum::Json;
use axum::extract::{Path, State};
use std::sync::Arc;
use warren_model::SnapshotId;
use warren_proto::http::{ErrorBody, ErrorCode, Reset, Sandbox, SnapshotState};

/// Puts a sandbox back to a snapshot of its own: same id, same address, next generation. All that ran in it is gone.
#[utoipa::path(
    post, path = "/sandbox/{id}/reset", operation_id = "sandbox_reset", tag = "snapshots", params(("id" = String, Path)),
    request_body = Reset,
    responses((status = 200, body = Sandbox), (status = "default", body = ErrorBody))
)]
pub(super) async fn reset(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
    Parsed(request): Parsed<Reset>,
) -> Result<Json<Sandbox>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    let snapshot = match &request.snapshot_id {
        Some(snapshot) => find_snapshot(&cx, &caller, snapshot).await?,
        None => {
            let newest = cx.store.snapshot_newest(&row.id).await?;
            let none = format!("sandbox {id} has no snapshot to go back to; take one first");
            newest.ok_or_else(|| ApiError::new(ErrorCode::NotFound, none))?
        }
    };
    if snapshot.sandbox_id != row.id {
        let detail =
            format!("snapshot {} is one of sandbox {}; fork it to go on from it", snapshot.id, snapshot.sandbox_id);
        return Err(ApiError::new(ErrorCode::Conflict, detail));
    }
    if snapshot.state != SnapshotState::Ready {
        return Err(ApiError::new(ErrorCode::SnapshotNotReady, format!("snapshot {} is not ready", snapshot.id)));
    }
    cx.node.reset(&row.id, &snapshot.id).await?;
    after(&cx, &row).await
}

/// Pauses a running sandbox: it uses no processor and no memory, and stays as it is until it is resumed or deleted.
#[utoipa::path(
    post, path = "/sandbox/{id}/pause", operation_id = "sandbox_pause", tag = "snapshots", params(("id" = String, Path)),
    responses((status = 200, body = Sandbox), (status = "default", body = ErrorBody))
)]
pub(super) async fn pause(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Sandbox>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    cx.node.pause(&row.id, &SnapshotId::from_bits(random::bits()?)).await?;
    after(&cx, &row).await
}

/// Lets a paused sandbox go on; one that runs is left alone.
#[utoipa::path(
    post, path = "/sandbox/{id}/resume", operation_id = "sandbox_resume", tag = "snapshots", params(("id" = String, Path)),
    responses((status = 200, body = Sandbox), (status = "default", body = ErrorBody))
)]
pub(super) async fn resume(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Sandbox>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    cx.node.resume(&row.id).await?;
    after(&cx, &row).await
}

/// The sandbox as the node sees it now.
async fn after(cx: &Context, row: &SandboxRow) -> Result<Json<Sandbox>, ApiError> {
    dispatch::refresh(cx, &row.id).await?;
    let gone = || ApiError::new(ErrorCode::NotFound, format!("no sandbox {}", row.id));
    Ok(Json(show::sandbox(cx.store.sandbox_get(&row.id).await?.ok_or_else(gone)?)))
}
