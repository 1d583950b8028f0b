//! `POST /images/build`: asks for builds of Dockerfiles and of images of registries.

use super::image_show::accepted;
use super::limits::UPLOAD_WITHIN_SECS;
use super::origin::Origin;
use super::parsed::Parsed;
use super::{ApiError, image_upload};
use crate::auth::Caller;
use crate::builds::{self, State as BuildAt, builder_missing, has_image};
use crate::clock::now_ms;
use crate::context::Context;
use crate::images::{Owner, checked, of_source};
use crate::random;
use crate::store::{Begun, BuildRow, ImageQuota, StoreError, Terms};
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use warren_proto::http::{
    BuildAccepted, BuildAnswer, BuildImage, ErrorBody, ErrorCode, FieldError, OwnerScope, SourceResult, Visibility,
    limits,
};

/// Dockerfile of a build that names none.
const DOCKERFILE_DEFAULT: &str = "Dockerfile";
/// Tag of a build that names none.
const TAG_DEFAULT: &str = "latest";

/// Asks for a build of a Dockerfile, whose context is then uploaded and started, or of images of registries, which begin at once.
#[utoipa::path(
    post, path = "/images/build", operation_id = "image_build", tag = "images", request_body = BuildImage,
    responses((status = 200, body = BuildAnswer), (status = "default", body = ErrorBody))
)]
pub(super) async fn build(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    origin: Origin,
    Parsed(request): Parsed<BuildImage>,
) -> Result<Json<BuildAnswer>, ApiError> {
    let platform = format!("linux/{}", cx.config.arch);
    if request.platform.as_ref().is_some_and(|asked| *asked != platform) {
        return Err(FieldError::body("platform", format!("this server builds {platform}")).into());
    }
    match &request.source_image {
        Some(sources) => of_sources(&cx, &caller, &request, sources).await,
        None => of_dockerfile(&cx, &caller, &origin, request).await,
    }
}

async fn of_dockerfile(
    cx: &Context,
    caller: &Caller,
    origin: &Origin,
    request: BuildImage,
) -> Result<Json<BuildAnswer>, ApiError> {
    let owner = owner(cx, caller, &request).await?;
    let name = request.image_name.clone().ok_or_else(|| FieldError::body("image_name", "is required"))?;
    let tag = request.image_tag.clone().unwrap_or_else(|| TAG_DEFAULT.to_owned());
    let dockerfile = request.dockerfile_path.clone().unwrap_or_else(|| DOCKERFILE_DEFAULT.to_owned());
    check_dockerfile(&dockerfile)?;
    check_args(&request)?;
    if !has_image(cx).await {
        return Err(ApiError::new(ErrorCode::NotOffered, builder_missing()));
    }
    let row = BuildRow { dockerfile: Some(dockerfile), ..asked(caller, owner, name, tag, &request)? };
    let (row, visibility) = begin(cx, caller, row, false).await?;
    cx.builds.files.make(&row.id).await?;
    let upload_url = Some(image_upload::url(cx, origin, &row));
    let expires_in = Some(row.upload_by_ms.saturating_sub(now_ms()) / 1000);
    let one = BuildAccepted { upload_url, expires_in, ..accepted(caller, &row, visibility) };
    Ok(Json(BuildAnswer::One(one)))
}

async fn of_sources(
    cx: &Context,
    caller: &Caller,
    request: &BuildImage,
    sources: &str,
) -> Result<Json<BuildAnswer>, ApiError> {
    let field = "source_image";
    let sources: Vec<&str> = sources.split(',').map(str::trim).filter(|source| !source.is_empty()).collect();
    if !(1..=limits::BUILD_SOURCES_MAX).contains(&sources.len()) {
        return Err(FieldError::body(field, format!("expected 1 to {} references", limits::BUILD_SOURCES_MAX)).into());
    }
    if let [source] = sources[..] {
        return of_source_image(cx, caller, request, source).await.map(|one| Json(BuildAnswer::One(one)));
    }
    if request.image_name.is_some() || request.image_tag.is_some() {
        return Err(FieldError::body("image_name", "one name cannot be given to several sources").into());
    }
    let mut results = Vec::with_capacity(sources.len());
    for source in sources {
        let source_image = source.to_owned();
        results.push(match of_source_image(cx, caller, request, source).await {
            Ok(build) => SourceResult { source_image, build: Some(build), error: None, retryable: false },
            Err(error) => {
                SourceResult { source_image, build: None, retryable: error.is_passing(), error: Some(error.text()) }
            }
        });
    }
    Ok(Json(BuildAnswer::Several { results }))
}

async fn of_source_image(
    cx: &Context,
    caller: &Caller,
    request: &BuildImage,
    source: &str,
) -> Result<BuildAccepted, ApiError> {
    let bad = |problem: String| ApiError::new(ErrorCode::ImageBadReference, problem);
    let mut to = of_source(source, request.owner_scope.is_some()).map_err(bad)?;
    if to.is_hub && to.is_fixed && !caller.user.is_admin {
        let msg = "a tag of Docker Hub leads where Docker Hub says: leave out the tag or the digest";
        return Err(FieldError::body("source_image", msg).into());
    }
    let owner = if to.is_hub { hub_owner(request)? } else { owner(cx, caller, request).await? };
    if let Some(name) = &request.image_name {
        (to.name, to.tag) = (name.clone(), request.image_tag.clone().unwrap_or_else(|| TAG_DEFAULT.to_owned()));
    }
    let asked = asked(caller, owner, to.name, to.tag, request)?;
    let now = Some(asked.created_at_ms);
    let row = BuildRow { source: Some(source.to_owned()), state: BuildAt::Queued, queued_at_ms: now, ..asked };
    let (row, visibility) = begin(cx, caller, row, to.is_hub && !to.is_fixed).await?;
    cx.builds.nudge();
    Ok(accepted(caller, &row, visibility))
}

/// Docker Hub's images become the platform's whoever asks: what they are, their registry says.
fn hub_owner(request: &BuildImage) -> Result<Owner, ApiError> {
    let refused = |field: &str, msg: &str| Err(FieldError::body(field, msg).into());
    if request.image_name.is_some() || request.image_tag.is_some() {
        return refused("image_name", "images of Docker Hub keep their name");
    }
    if request.team_id.is_some() {
        return refused("team_id", "images of Docker Hub belong to no team");
    }
    if request.visibility == Some(Visibility::Private) {
        return refused("visibility", "images of Docker Hub are public");
    }
    Ok(Owner::Platform)
}

async fn owner(cx: &Context, caller: &Caller, request: &BuildImage) -> Result<Owner, ApiError> {
    if let Some(OwnerScope::Platform) = request.owner_scope {
        caller.admin()?;
        if request.visibility == Some(Visibility::Private) {
            return Err(FieldError::body("visibility", "images of the platform are public").into());
        }
        return Ok(Owner::Platform);
    }
    match &request.team_id {
        Some(team_id) => {
            caller.in_team(cx, team_id).await?;
            Ok(Owner::Team(team_id.clone()))
        }
        None => Ok(Owner::User(caller.user.id.clone())),
    }
}

/// A build that was just asked for.
fn asked(caller: &Caller, owner: Owner, name: String, tag: String, request: &BuildImage) -> Result<BuildRow, ApiError> {
    let is_platform = owner == Owner::Platform;
    checked(&name, &tag, is_platform).map_err(|problem| FieldError::body("image_name", problem))?;
    let now = now_ms();
    Ok(BuildRow {
        id: random::id('b')?,
        image_id: String::new(),
        user_id: caller.user.id.clone(),
        owner,
        name,
        tag,
        visibility: if is_platform { Some(Visibility::Public) } else { request.visibility },
        source: None,
        dockerfile: None,
        build_args: request.build_args.clone(),
        state: BuildAt::Awaiting,
        attempts: 0,
        error_code: None,
        error_message: None,
        digest: None,
        upload_by_ms: now + UPLOAD_WITHIN_SECS * 1000,
        created_at_ms: now,
        queued_at_ms: None,
        started_at_ms: None,
        ended_at_ms: None,
    })
}

async fn begin(
    cx: &Context,
    caller: &Caller,
    row: BuildRow,
    from_hub: bool,
) -> Result<(BuildRow, Visibility), ApiError> {
    let terms = terms(cx, caller, &row.owner, from_hub).await?;
    match cx.store.build_begin(row, random::id('i')?, terms).await? {
        Begun::New { build, visibility, cancelled } => {
            builds::cancelled(cx, &cancelled).await;
            Ok((*build, visibility))
        }
        Begun::TooBusy(max) => {
            let detail = format!("{max} of your builds are not over; wait for some of them");
            Err(ApiError::new(ErrorCode::LimitReached, detail))
        }
        Begun::NotHis => {
            let detail = "only who made this image, or an administrator, may replace it; push under another name";
            Err(ApiError::new(ErrorCode::Forbidden, detail))
        }
        Begun::Full(full) => Err(ApiError::new(ErrorCode::LimitReached, full.to_string())),
    }
}

/// What an owner may have when this caller gives him an image. What administrators make for the platform is nobody's.
pub(super) fn quota(cx: &Context, caller: &Caller, owner: &Owner) -> ImageQuota {
    if *owner == Owner::Platform && caller.user.is_admin {
        return ImageQuota::default();
    }
    ImageQuota { images_max: cx.config.images_per_owner_max, bytes_max: cx.config.image_bytes_per_owner_max }
}

async fn terms(cx: &Context, caller: &Caller, owner: &Owner, from_hub: bool) -> Result<Terms, StoreError> {
    let replaces_others = match owner {
        Owner::Team(id) => caller.administers(cx, Some(id)).await?,
        Owner::Platform => caller.user.is_admin,
        Owner::User(_) => true,
    };
    Ok(Terms { quota: quota(cx, caller, owner), replaces_others, from_hub })
}

/// A path inside of the context.
fn check_dockerfile(path: &str) -> Result<(), FieldError> {
    let inside = !path.is_empty() && !path.starts_with('/') && path.split('/').all(|step| step != "..");
    let good = inside && path.len() <= limits::REFERENCE_LEN_MAX && !path.chars().any(char::is_control);
    if good { Ok(()) } else { Err(FieldError::body("dockerfile_path", "expected a path inside of the context")) }
}

fn check_args(request: &BuildImage) -> Result<(), FieldError> {
    let args = &request.build_args;
    let bytes: usize = args.iter().map(|(name, value)| name.len() + value.len()).sum();
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let good = |name: &str| !name.is_empty() && name.bytes().all(word) && !name.as_bytes()[0].is_ascii_digit();
    let problem = if args.len() > limits::BUILD_ARGS_MAX || bytes > limits::BUILD_ARGS_BYTES_MAX {
        format!("at most {} arguments and {} bytes", limits::BUILD_ARGS_MAX, limits::BUILD_ARGS_BYTES_MAX)
    } else if !args.keys().all(|name| good(name)) {
        "names are words of A-Z a-z 0-9 _, no digit first".to_owned()
    } else if args.values().any(|value| value.contains('\0')) {
        "values have no NUL bytes".to_owned()
    } else {
        return Ok(());
    };
    Err(FieldError::body("build_args", problem))
}
