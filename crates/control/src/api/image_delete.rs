//! `DELETE /images/{name...}/{tag}`. Clients do not escape the slashes of a reference: the last segment is the tag.

use super::ApiError;
use super::account::value;
use super::image_update::may_change;
use crate::auth::Caller;
use crate::builds;
use crate::clock::now_ms;
use crate::context::Context;
use crate::images::{Owner, find};
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use std::sync::Arc;
use warren_proto::http::{ErrorBody, ErrorCode, ImageDeleted};

/// Deletes a tag. Sandboxes that run what it led to run on. An owner before the name makes the path longer.
#[utoipa::path(
    delete, path = "/images/{name}/{tag}", operation_id = "owned_image_delete", tag = "images",
    params(("name" = String, Path), ("tag" = String, Path), ("teamId" = Option<String>, Query)),
    responses((status = 200, body = ImageDeleted), (status = "default", body = ErrorBody))
)]
pub(super) async fn delete(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path((name, tag)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Json<ImageDeleted>, ApiError> {
    one(&cx, &caller, &name, &tag, query.as_deref()).await
}

/// The same for every longer path.
pub(super) async fn delete_longer(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path((first, second, rest)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Json<ImageDeleted>, ApiError> {
    let path = format!("{first}/{second}/{rest}");
    let (name, tag) = path.rsplit_once('/').unwrap_or((&path, ""));
    one(&cx, &caller, name, tag, query.as_deref()).await
}

async fn one(
    cx: &Context,
    caller: &Caller,
    name: &str,
    tag: &str,
    query: Option<&str>,
) -> Result<Json<ImageDeleted>, ApiError> {
    let shown = format!("{name}:{tag}");
    let row = match value(query, "teamId") {
        Some(team_id) => {
            caller.in_team(cx, &team_id).await?;
            cx.store.image_get(&Owner::Team(team_id).key(), name, tag).await?
        }
        None => match find(cx, &caller.user, &shown).await {
            Err(error) if error.is_refusal() => None,
            row => row?,
        },
    };
    let row = row.ok_or_else(|| ApiError::new(ErrorCode::ImageNotFound, format!("{shown}: no such image")))?;
    if !may_change(cx, caller, &row).await? {
        let detail = format!("{shown}: only who made an image, or an administrator, may delete it");
        return Err(ApiError::new(ErrorCode::Forbidden, detail));
    }
    let cancelled = cx.store.image_delete(&row.id, now_ms()).await?;
    builds::cancelled(cx, &cancelled).await;
    Ok(Json(ImageDeleted { deleted: shown }))
}

/// The same for an image whose name is `build`: its path is that of a build.
pub(super) async fn delete_named_build(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(tag): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Json<ImageDeleted>, ApiError> {
    one(&cx, &caller, "build", &tag, query.as_deref()).await
}
