//! Volumes: disks that outlive sandboxes, by name within their owner's scope.

use super::ApiError;
use super::account::value;
use super::parsed::Parsed;
use crate::auth::Caller;
use crate::clock::now_ms;
use crate::context::Context;
use crate::random;
use crate::store::{Page, VolumeDeleted, VolumeRow};
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use http::StatusCode;
use std::sync::Arc;
use warren_model::VolumeName;
use warren_proto::http::{ErrorBody, ErrorCode, FieldError, NewVolume, Timestamp, Volume, VolumeList, VolumeListQuery};

/// Makes an empty volume.
#[utoipa::path(
    post, path = "/sandbox/volumes", operation_id = "volume_create", tag = "volumes", request_body = NewVolume,
    responses((status = 200, body = Volume), (status = "default", body = ErrorBody))
)]
pub(super) async fn create(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<NewVolume>,
) -> Result<Json<Volume>, ApiError> {
    let name = VolumeName::parse(&request.name).map_err(|bad| FieldError::body("name", bad.to_string()))?;
    let row = VolumeRow {
        id: random::id('v')?,
        scope: caller.scope(&cx, request.team_id.as_deref()).await?,
        name: name.as_str().to_owned(),
        creator_id: caller.user.id.clone(),
        head: None,
        created_at_ms: now_ms(),
    };
    if cx.store.volume_insert(&row, cx.config.volumes_per_owner_max).await? {
        Ok(Json(shown(row)))
    } else {
        let most = cx.config.volumes_per_owner_max;
        Err(ApiError::new(ErrorCode::LimitReached, format!("the maximum number of volumes, {most}, is reached")))
    }
}

/// A page of the caller's volumes, or of a team's, by name.
#[utoipa::path(
    get, path = "/sandbox/volumes", operation_id = "volume_list", tag = "volumes", params(VolumeListQuery),
    responses((status = 200, body = VolumeList), (status = "default", body = ErrorBody))
)]
pub(super) async fn list(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<VolumeList>, ApiError> {
    let pairs = form_urlencoded::parse(query.as_deref().unwrap_or_default().as_bytes());
    let VolumeListQuery { page, per_page, team_id } = VolumeListQuery::from_pairs(pairs)?;
    let scope = caller.scope(&cx, team_id.as_deref()).await?;
    let offset = u64::from(page - 1) * u64::from(per_page);
    let (rows, total) = cx.store.volumes_list(&scope, Page { offset, limit: u64::from(per_page) }).await?;
    Ok(Json(VolumeList {
        has_next: offset + (rows.len() as u64) < total,
        volumes: rows.into_iter().map(shown).collect(),
        total,
        page,
        per_page,
        storage_used_bytes: cx.store.volumes_bytes(&scope).await?,
        storage_limit_gb: None,
    }))
}

/// One volume.
#[utoipa::path(
    get, path = "/sandbox/volumes/{name}", operation_id = "volume_get", tag = "volumes",
    params(("name" = String, Path), ("team_id" = Option<String>, Query)),
    responses((status = 200, body = Volume), (status = "default", body = ErrorBody))
)]
pub(super) async fn get(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<Volume>, ApiError> {
    let row = find(&cx, &caller, &name, team_id(query.as_deref()).as_deref()).await?;
    let used = cx.store.volumes_bytes(&row.scope).await?;
    Ok(Json(Volume { account_storage_used_bytes: Some(used), ..shown(row) }))
}

/// Deletes a volume that no sandbox uses. One of a team is for its administrators to delete.
#[utoipa::path(
    delete, path = "/sandbox/volumes/{name}", operation_id = "volume_delete", tag = "volumes",
    params(("name" = String, Path), ("team_id" = Option<String>, Query)),
    responses((status = 204), (status = "default", body = ErrorBody))
)]
pub(super) async fn delete(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, ApiError> {
    let team_id = team_id(query.as_deref());
    let row = find(&cx, &caller, &name, team_id.as_deref()).await?;
    if team_id.is_some() && !caller.administers(&cx, team_id.as_deref()).await? {
        let detail = "only an administrator of the team may delete its volumes";
        return Err(ApiError::new(ErrorCode::Forbidden, detail));
    }
    match cx.store.volume_delete(&row.id, now_ms()).await? {
        VolumeDeleted::Gone => {
            cx.checkpoints.nudge.notify_one();
            Ok(StatusCode::NO_CONTENT)
        }
        VolumeDeleted::Attached(sandbox) => {
            let detail = format!("volume {name} is in use by sandbox {sandbox}; delete that first");
            Err(ApiError::new(ErrorCode::VolumeInUse, detail))
        }
        VolumeDeleted::Publishing(checkpoint) => {
            let detail = format!("publish {checkpoint} of volume {name} is not over; try again when it is");
            Err(ApiError::new(ErrorCode::VolumePublishPending, detail))
        }
    }
}

fn team_id(query: Option<&str>) -> Option<String> {
    value(query, "team_id")
}

async fn find(cx: &Context, caller: &Caller, name: &str, team_id: Option<&str>) -> Result<VolumeRow, ApiError> {
    let scope = caller.scope(cx, team_id).await?;
    let found = cx.store.volume_get(&scope, name).await?;
    found.ok_or_else(|| ApiError::new(ErrorCode::NotFound, format!("no volume {}", name.escape_debug())))
}

/// As lists show it.
fn shown(row: VolumeRow) -> Volume {
    let owner = |kind: &str| row.scope.strip_prefix(kind).map(str::to_owned);
    Volume {
        user_id: owner("user:"),
        team_id: owner("team:"),
        id: row.id,
        name: row.name,
        occupied_bytes: row.head.as_ref().map_or(0, |head| head.bytes),
        head_checkpoint_id: row.head.map(|head| head.checkpoint_id),
        created_at: Timestamp::from_ms(row.created_at_ms),
        account_storage_used_bytes: None,
        account_storage_limit_gb: None,
    }
}
