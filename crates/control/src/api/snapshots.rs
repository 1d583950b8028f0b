//! Snapshots of sandboxes: taken, shown, deleted.

use super::ApiError;
use super::account::value;
use super::get::find;
use super::parsed::Parsed;
use crate::auth::Caller;
use crate::context::Context;
use crate::snapshots::{self, Kind};
use crate::store::{SnapshotRow, SnapshotsOf};
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use std::sync::Arc;
use warren_model::{SnapshotId, limits};
use warren_proto::http::{
    DISK_GB_DEFAULT, ErrorBody, ErrorCode, FieldError, NewSnapshot, Snapshot, SnapshotDeleted, Snapshots, Timestamp,
};

/// Takes a snapshot of a running sandbox: memory, devices and disk at one moment. The sandbox stands still for milliseconds and goes on.
#[utoipa::path(
    post, path = "/sandbox/{id}/snapshots", operation_id = "snapshot_create", tag = "snapshots", params(("id" = String, Path)),
    request_body = NewSnapshot,
    responses((status = 200, body = Snapshot), (status = "default", body = ErrorBody))
)]
pub(super) async fn create(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
    Parsed(request): Parsed<NewSnapshot>,
) -> Result<Json<Snapshot>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    let good = |name: &String| (1..=limits::NAME_LEN_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    if request.name.as_ref().is_some_and(|name| !good(name)) {
        let msg = format!("expected 1 to {} bytes without control characters", limits::NAME_LEN_MAX);
        return Err(FieldError::body("name", msg).into());
    }
    let (taken, _begun) = snapshots::take(&cx, &row, &caller.user.id, Kind::Named(request.name)).await?;
    Ok(Json(show(taken)))
}

/// Snapshots of one sandbox, which may be gone.
#[utoipa::path(
    get, path = "/sandbox/{id}/snapshots", operation_id = "snapshot_list_of_sandbox", tag = "snapshots",
    params(("id" = String, Path)),
    responses((status = 200, body = Snapshots), (status = "default", body = ErrorBody))
)]
pub(super) async fn list_of_sandbox(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Snapshots>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    let rows = cx.store.snapshots_list(SnapshotsOf::Sandbox(&row.id)).await?;
    Ok(Json(Snapshots { snapshots: rows.into_iter().map(show).collect() }))
}

/// The caller's snapshots, or a team's.
#[utoipa::path(
    get, path = "/snapshots", operation_id = "snapshot_list", tag = "snapshots", params(("teamId" = Option<String>, Query)),
    responses((status = 200, body = Snapshots), (status = "default", body = ErrorBody))
)]
pub(super) async fn list(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Snapshots>, ApiError> {
    let team_id = value(query.as_deref(), "teamId");
    let rows = match &team_id {
        Some(team_id) => {
            caller.in_team(&cx, team_id).await?;
            cx.store.snapshots_list(SnapshotsOf::Team(team_id)).await?
        }
        None => cx.store.snapshots_list(SnapshotsOf::User(&caller.user.id)).await?,
    };
    Ok(Json(Snapshots { snapshots: rows.into_iter().map(show).collect() }))
}

/// One snapshot.
#[utoipa::path(
    get, path = "/snapshots/{id}", operation_id = "snapshot_get", tag = "snapshots", params(("id" = String, Path)),
    responses((status = 200, body = Snapshot), (status = "default", body = ErrorBody))
)]
pub(super) async fn get(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<Snapshot>, ApiError> {
    Ok(Json(show(find_snapshot(&cx, &caller, &id).await?)))
}

/// Deletes a snapshot. What went on from it, and other snapshots that lie on it, stay as they are.
#[utoipa::path(
    delete, path = "/snapshots/{id}", operation_id = "snapshot_delete", tag = "snapshots", params(("id" = String, Path)),
    responses((status = 200, body = SnapshotDeleted), (status = "default", body = ErrorBody))
)]
pub(super) async fn delete(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SnapshotDeleted>, ApiError> {
    let row = find_snapshot(&cx, &caller, &id).await?;
    snapshots::delete(&cx, row).await?;
    Ok(Json(SnapshotDeleted { id }))
}

/// The snapshot of that id, if the caller may use it: it is his own, of a team of his, or he administers the server.
pub(super) async fn find_snapshot(cx: &Context, caller: &Caller, id: &str) -> Result<SnapshotRow, ApiError> {
    let unknown = || ApiError::new(ErrorCode::NotFound, format!("no snapshot {}", id.escape_debug()));
    let parsed = SnapshotId::parse(id).map_err(|_| unknown())?;
    let row = cx.store.snapshot_get(&parsed).await?.filter(|row| !row.passing).ok_or_else(unknown)?;
    let may = caller.may_use_of(cx, &row.user_id, row.team_id.as_deref()).await?;
    may.then_some(row)
        .ok_or_else(|| ApiError::new(ErrorCode::Forbidden, format!("snapshot {parsed} belongs to somebody else")))
}

fn show(row: SnapshotRow) -> Snapshot {
    let request = row.request;
    Snapshot {
        id: row.id.to_string(),
        name: row.name,
        sandbox_id: row.sandbox_id.to_string(),
        state: row.state,
        docker_image: request.docker_image.unwrap_or_default(),
        image_digest: row.image_digest,
        cpu_cores: request.cpu_cores,
        memory_gb: request.memory_gb,
        disk_size_gb: request.disk_size_gb.unwrap_or(DISK_GB_DEFAULT),
        has_secrets: request.secrets.is_some(),
        paused_ms: row.paused_us.map(|us| us as f64 / 1000.0),
        stored_bytes: row.stored_bytes,
        digest: row.digest,
        error: row.error,
        user_id: row.user_id,
        team_id: row.team_id,
        created_at: Timestamp::from_ms(row.created_at_ms),
    }
}
