//! Images on this server: our own API, beside the vendor's image registry. Changes are for administrators.

use super::ApiError;
use super::account::value;
use super::parsed::Parsed;
use crate::auth::Caller;
use crate::context::Context;
use crate::credential::image_access;
use crate::images::is_reserved;
use axum::Json;
use axum::extract::{RawQuery, State};
use std::path::PathBuf;
use std::sync::Arc;
use warren_proto::http::{
    CollectImages, ErrorBody, ErrorCode, FieldError, Image, ImageBuilds, ImageRemoved, Images, ImagesCollected,
    ImportImage, PullImage, limits,
};

/// Makes an image ready; answers when it is. `GET /images/builds` shows how far it is.
#[utoipa::path(
    post, path = "/images/pull", operation_id = "image_pull", tag = "images", request_body = PullImage,
    responses((status = 200, body = Image), (status = "default", body = ErrorBody))
)]
pub(super) async fn pull(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<PullImage>,
) -> Result<Json<Image>, ApiError> {
    caller.admin()?;
    let reference = reference("reference", request.reference)?;
    let team_id = request.team_id.as_deref();
    caller.scope(&cx, team_id).await?;
    let access = image_access(&cx, &caller.user.id, team_id, &reference).await?;
    Ok(Json(cx.node.pull_image(&reference, &access).await?.into()))
}

/// Takes an image from the server's own file system.
#[utoipa::path(
    post, path = "/images/import", operation_id = "image_import", tag = "images", request_body = ImportImage,
    responses((status = 200, body = Image), (status = "default", body = ErrorBody))
)]
pub(super) async fn import(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<ImportImage>,
) -> Result<Json<Image>, ApiError> {
    caller.admin()?;
    let name = reference("name", request.name)?;
    let path = PathBuf::from(request.path);
    if !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(FieldError::body("path", "must be an absolute path on the server's machine").into());
    }
    Ok(Json(cx.node.import_image(path, &name).await?.into()))
}

/// Images that are ready. Those that came through somebody's saved login are shown to administrators only.
#[utoipa::path(
    get, path = "/images/local", operation_id = "image_list", tag = "images",
    responses((status = 200, body = Images), (status = "default", body = ErrorBody))
)]
pub(super) async fn list(State(cx): State<Arc<Context>>, caller: Caller) -> Result<Json<Images>, ApiError> {
    let named = cx.node.images().await?.into_iter().filter(|record| !is_reserved(&record.reference));
    let mut images: Vec<Image> = named.map(Image::from).collect();
    images.retain(|image| caller.user.is_admin || !image.private);
    images.sort_by(|a, b| a.reference.cmp(&b.reference));
    Ok(Json(Images { images }))
}

/// Removes a name; its bytes go when no sandbox uses them.
#[utoipa::path(
    delete, path = "/images/local", operation_id = "image_remove", tag = "images",
    params(("reference" = String, Query)),
    responses((status = 200, body = ImageRemoved), (status = "default", body = ErrorBody))
)]
pub(super) async fn remove(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<ImageRemoved>, ApiError> {
    let who = caller.clone();
    caller.admin()?;
    let given = value(query.as_deref(), "reference");
    let given = given.ok_or_else(|| FieldError::query("reference", "is required"))?;
    let given = reference("reference", given)?;
    let in_use = cx.node.remove_image(&given).await?;
    let Json(Images { images }) = list(State(cx), who).await?;
    Ok(Json(ImageRemoved { images, in_use }))
}

/// Removes images that registries can give again and no sandbox uses, the least recently used first.
#[utoipa::path(
    post, path = "/images/gc", operation_id = "image_gc", tag = "images", request_body = CollectImages,
    responses((status = 200, body = ImagesCollected), (status = "default", body = ErrorBody))
)]
pub(super) async fn gc(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<CollectImages>,
) -> Result<Json<ImagesCollected>, ApiError> {
    caller.admin()?;
    Ok(Json(cx.node.collect_images(request.keep_bytes, request.dry_run).await?.into()))
}

/// Pulls and conversions under way. Those under names of the server's own are shown to administrators only, those that came through a
/// saved login to its owner, too.
#[utoipa::path(
    get, path = "/images/builds", operation_id = "image_builds", tag = "images",
    responses((status = 200, body = ImageBuilds), (status = "default", body = ErrorBody))
)]
pub(super) async fn builds(State(cx): State<Arc<Context>>, caller: Caller) -> Result<Json<ImageBuilds>, ApiError> {
    let mut builds = Vec::new();
    for build in cx.node.image_builds().await {
        let shown = match &build.scope {
            _ if caller.user.is_admin => true,
            _ if is_reserved(&build.reference) => false,
            Some(scope) => caller.is_in_scope(&cx, scope).await?,
            None => true,
        };
        builds.extend(shown.then(|| build.into()));
    }
    Ok(Json(ImageBuilds { builds }))
}

fn reference(field: &str, text: String) -> Result<String, ApiError> {
    let good = (1..=limits::REFERENCE_LEN_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    let detail = format!("{field}: expected 1 to {} printable characters", limits::REFERENCE_LEN_MAX);
    let detail =
        if is_reserved(&text) { format!("{field}: names in this namespace are the server's own") } else { detail };
    let good = good && !is_reserved(&text);
    if good { Ok(text) } else { Err(ApiError::new(ErrorCode::ImageBadReference, detail)) }
}
