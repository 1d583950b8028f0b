//! The context of a build: where it goes, its coming, its start.

use super::ApiError;
use super::image_show::state;
use super::limits::UPLOAD_SECS_MAX;
use super::origin::Origin;
use crate::auth::{Caller, hash_key};
use crate::builds::Event;
use crate::clock::now_ms;
use crate::context::Context;
use crate::store::{BuildRow, Moved};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::{self, File};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use warren_proto::http::limits::BUILD_CONTEXT_LEN_MAX;
use warren_proto::http::{API_PREFIX, BuildState, ContextTaken, ErrorBody, ErrorCode};

/// Where the context of a build goes. Whoever has the URL may upload, until it expires: it needs no key.
pub(super) fn url(cx: &Context, origin: &Origin, build: &BuildRow) -> String {
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("expires", &build.upload_by_ms.to_string())
        .append_pair("signature", &signature(cx, build))
        .finish();
    format!("{}{API_PREFIX}/images/build/{}/context?{query}", origin.0, build.id)
}

fn signature(cx: &Context, build: &BuildRow) -> String {
    cx.sealer.fingerprint(format!("context\0{}\0{}", build.id, build.upload_by_ms).as_bytes())
}

/// Takes the context of a build: a gzip tar. Needs no key; the URL is the permission.
#[utoipa::path(
    put, path = "/images/build/{id}/context", operation_id = "image_build_context", tag = "images",
    params(("id" = String, Path), ("expires" = u64, Query), ("signature" = String, Query)), security(()),
    responses((status = 200, body = ContextTaken), (status = "default", body = ErrorBody))
)]
pub(super) async fn context(
    State(cx): State<Arc<Context>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Json<ContextTaken>, ApiError> {
    let refused = || ApiError::new(ErrorCode::Forbidden, "this upload URL is not valid, or not any more");
    let build = cx.store.build_get(&id).await?.ok_or_else(refused)?;
    let given = super::account::value(query.as_deref(), "signature").unwrap_or_default();
    // Hashes are compared, so that the time of a comparison tells nothing of the signature.
    if hash_key(&given) != hash_key(&signature(&cx, &build)) || build.upload_by_ms <= now_ms() {
        return Err(refused());
    }
    if !matches!(cx.store.build_move(&id, Event::UploadBegan, now_ms(), |_| {}).await?, Moved::To(_)) {
        return Err(ApiError::new(
            ErrorCode::Conflict,
            "the context of this build comes already, or the build has begun",
        ));
    }
    let limit = Duration::from_secs(UPLOAD_SECS_MAX);
    let slow = |_| ApiError::new(ErrorCode::TimedOut, format!("the context did not arrive within {UPLOAD_SECS_MAX} s"));
    let taken = timeout(limit, take(&cx, &id, request.into_body())).await.map_err(slow).flatten();
    let event = if taken.is_ok() { Event::UploadDone } else { Event::UploadBroke };
    let moved = cx.store.build_move(&id, event, now_ms(), |_| {}).await?;
    if !matches!(moved, Moved::To(_)) {
        // Whoever ended it may have cleared up before the last of it came.
        cx.builds.files.settle(&id).await?;
        return Err(ApiError::new(ErrorCode::Conflict, "the build was ended while its context came"));
    }
    Ok(Json(ContextTaken { size: taken? }))
}

/// Writes the body to disk, piece by piece.
async fn take(cx: &Context, id: &str, mut body: Body) -> Result<u64, ApiError> {
    let files = &cx.builds.files;
    files.make(id).await?;
    let part = files.part(id);
    let mut file = File::create(&part).await?;
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| ApiError::new(ErrorCode::Conflict, "the upload was cut off; repeat it"))?;
        let Ok(data) = frame.into_data() else { continue };
        size += data.len() as u64;
        if size > BUILD_CONTEXT_LEN_MAX {
            drop(file);
            fs::remove_file(&part).await?;
            let detail = format!(
                "the context is larger than {BUILD_CONTEXT_LEN_MAX} bytes; a .dockerignore keeps out what no build needs"
            );
            return Err(ApiError::new(ErrorCode::BodyTooLarge, detail));
        }
        file.write_all(&data).await?;
    }
    file.flush().await?;
    file.sync_data().await?;
    fs::rename(&part, files.context(id)).await?;
    Ok(size)
}

/// Puts a build in the queue once its context is there. A second call changes nothing.
#[utoipa::path(
    post, path = "/images/build/{id}/start", operation_id = "image_build_start", tag = "images", params(("id" = String, Path)),
    responses((status = 200, body = BuildState), (status = "default", body = ErrorBody))
)]
pub(super) async fn start(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<BuildState>, ApiError> {
    super::image_builds::find(&cx, &caller, &id).await?;
    match cx.store.build_move(&id, Event::Start, now_ms(), |_| {}).await? {
        Moved::To(row) => {
            cx.builds.nudge();
            Ok(Json(state(&caller, row)))
        }
        Moved::Refused(row) if row.queued_at_ms.is_some() => Ok(Json(state(&caller, row))),
        Moved::Refused(_) => Err(ApiError::new(ErrorCode::Conflict, "the context of this build was not uploaded")),
        Moved::Missing => Err(super::image_builds::unknown(&id)),
    }
}
