//! Builds of owned images: state, logs, cancel, the layer cache.

use super::ApiError;
use super::account::value;
use super::image_show::state;
use crate::auth::Caller;
use crate::builds::{self, Event};
use crate::clock::now_ms;
use crate::context::Context;
use crate::images::Owner;
use crate::store::{BuildRow, Moved};
use axum::Json;
use axum::extract::{Path, RawQuery, State};
use std::io;
use std::sync::Arc;
use warren_proto::http::{BuildLogs, BuildState, Builds, ErrorBody, ErrorCode};

/// Builds that a list answers.
const BUILDS_LISTED_MAX: u64 = 200;

/// The build, if the caller may know of it: his own, his team's, or any for who administers the server.
pub(super) async fn find(cx: &Context, caller: &Caller, id: &str) -> Result<BuildRow, ApiError> {
    let row = cx.store.build_get(id).await?.ok_or_else(|| unknown(id))?;
    let of_team = match &row.owner {
        Owner::Team(team_id) => cx.store.role(team_id, &caller.user.id).await?.is_some(),
        _ => false,
    };
    match caller.user.is_admin || row.user_id == caller.user.id || of_team {
        true => Ok(row),
        false => Err(unknown(id)),
    }
}

pub(super) fn unknown(id: &str) -> ApiError {
    ApiError::new(ErrorCode::NotFound, format!("no build {id}"))
}

/// Where a build is.
#[utoipa::path(
    get, path = "/images/build/{id}", operation_id = "image_build_get", tag = "images", params(("id" = String, Path)),
    responses((status = 200, body = BuildState), (status = "default", body = ErrorBody))
)]
pub(super) async fn get(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<BuildState>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    Ok(Json(state(&caller, row)))
}

/// The caller's last builds, newest first.
#[utoipa::path(
    get, path = "/images/build", operation_id = "image_build_list", tag = "images",
    responses((status = 200, body = Builds), (status = "default", body = ErrorBody))
)]
pub(super) async fn list(State(cx): State<Arc<Context>>, caller: Caller) -> Result<Json<Builds>, ApiError> {
    let rows = cx.store.builds_of(&caller.user.id, BUILDS_LISTED_MAX).await?;
    Ok(Json(Builds { builds: rows.into_iter().map(|row| state(&caller, row)).collect() }))
}

/// What a build of a Dockerfile said so far.
#[utoipa::path(
    get, path = "/images/build/{id}/logs", operation_id = "image_build_logs", tag = "images", params(("id" = String, Path)),
    responses((status = 200, body = BuildLogs), (status = "default", body = ErrorBody))
)]
pub(super) async fn logs(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<BuildLogs>, ApiError> {
    let row = find(&cx, &caller, &id).await?;
    let bytes = match tokio::fs::read(cx.builds.files.log(&row.id)).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read?,
    };
    Ok(Json(BuildLogs { logs: String::from_utf8_lossy(&bytes).into_owned() }))
}

/// Ends a build. One that is over stays as it ended.
#[utoipa::path(
    post, path = "/images/build/{id}/cancel", operation_id = "image_build_cancel", tag = "images", params(("id" = String, Path)),
    responses((status = 200, body = BuildState), (status = "default", body = ErrorBody))
)]
pub(super) async fn cancel(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<BuildState>, ApiError> {
    find(&cx, &caller, &id).await?;
    match cx.store.build_move(&id, Event::Cancel, now_ms(), |_| {}).await? {
        Moved::To(row) => {
            builds::cancelled(&cx, &[id]).await;
            Ok(Json(state(&caller, row)))
        }
        Moved::Refused(row) => Ok(Json(state(&caller, row))),
        Moved::Missing => Err(unknown(&id)),
    }
}

/// Drops the layer cache of the caller's own builds, or of his team's. Builds that are under way go on.
#[utoipa::path(
    delete, path = "/images/build-cache", operation_id = "image_build_cache_drop", tag = "images",
    params(("teamId" = Option<String>, Query)),
    responses((status = 200, body = Builds), (status = "default", body = ErrorBody))
)]
pub(super) async fn drop_cache(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<Builds>, ApiError> {
    let owner = match value(query.as_deref(), "teamId") {
        Some(team_id) => {
            caller.in_team(&cx, &team_id).await?;
            Owner::Team(team_id)
        }
        None => Owner::User(caller.user.id.clone()),
    };
    builds::drop_cache(&cx, &owner).await?;
    if caller.user.is_admin {
        builds::drop_cache(&cx, &Owner::Platform).await?;
    }
    list(State(cx), caller).await
}
