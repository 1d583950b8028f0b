//! Saved logins at image registries, and whether an image can be had with them. Passwords go in and never come out of this API.

use super::ApiError;
use super::account::value;
use super::parsed::Parsed;
use crate::auth::{Caller, scope_of};
use crate::clock::now_ms;
use crate::context::Context;
use crate::credential::{image_access, opened};
use crate::images;
use crate::random;
use crate::store::CredentialRow;
use axum::Json;
use axum::extract::{RawQuery, State};
use std::sync::Arc;
use warren_model::ImageAccess;
use warren_model::reference::{Reference, parse_registry};
use warren_proto::http::{
    CheckDockerImage, CheckImage, DockerImageCheck, ErrorBody, ErrorCode, FieldError, ImageCheck,
    NewRegistryCredential, RegistryCredential, RegistryCredentials, Timestamp,
};

/// Longest user name, bytes.
const USERNAME_LEN_MAX: usize = 256;
/// Longest password or token, bytes; cloud registries have tokens of a few KiB.
const PASSWORD_LEN_MAX: usize = 16 << 10;

/// Saved logins of the caller, or of a team.
#[utoipa::path(
    get, path = "/registry/credentials", operation_id = "registry_list", tag = "registries",
    params(("teamId" = Option<String>, Query)),
    responses((status = 200, body = RegistryCredentials), (status = "default", body = ErrorBody))
)]
pub(super) async fn list(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<RegistryCredentials>, ApiError> {
    let team_id = value(query.as_deref(), "teamId");
    let rows = cx.store.credentials_list(&caller.scope(&cx, team_id.as_deref()).await?).await?;
    Ok(Json(RegistryCredentials { credentials: rows.into_iter().map(show).collect() }))
}

/// Saves a login, in place of the one for the same registry.
#[utoipa::path(
    put, path = "/registry/credentials", operation_id = "registry_add", tag = "registries",
    request_body = NewRegistryCredential,
    responses((status = 200, body = RegistryCredential), (status = "default", body = ErrorBody))
)]
pub(super) async fn put(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<NewRegistryCredential>,
) -> Result<Json<RegistryCredential>, ApiError> {
    let scope = caller.scope(&cx, request.team_id.as_deref()).await?;
    let (id, now) = (random::id('r')?, now_ms());
    let password = bounded("password", request.password, PASSWORD_LEN_MAX)?;
    let row = CredentialRow {
        server: server(&request.server)?,
        username: bounded("username", request.username, USERNAME_LEN_MAX)?,
        sealed: cx.sealer.seal(&id, password.as_bytes())?,
        id,
        scope,
        created_at_ms: now,
        updated_at_ms: now,
    };
    if !cx.store.credential_put(&row).await? {
        return Err(ApiError::new(ErrorCode::LimitReached, "the maximum number of saved logins is reached"));
    }
    let kept = cx.store.credential_get(&row.scope, &row.server).await?;
    Ok(Json(show(kept.unwrap_or(row))))
}

/// Removes a saved login; answers those that are left.
#[utoipa::path(
    delete, path = "/registry/credentials", operation_id = "registry_remove", tag = "registries",
    params(("server" = String, Query), ("teamId" = Option<String>, Query)),
    responses((status = 200, body = RegistryCredentials), (status = "default", body = ErrorBody))
)]
pub(super) async fn remove(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    RawQuery(query): RawQuery,
) -> Result<Json<RegistryCredentials>, ApiError> {
    let team_id = value(query.as_deref(), "teamId");
    let scope = caller.scope(&cx, team_id.as_deref()).await?;
    let given = value(query.as_deref(), "server").ok_or_else(|| FieldError::query("server", "is required"))?;
    if !cx.store.credential_delete(&scope, &server(&given)?).await? {
        return Err(ApiError::new(ErrorCode::NotFound, format!("no login is saved for {given:?}")));
    }
    list(State(cx), caller, RawQuery(query)).await
}

/// Says whether an image can be had with what the caller has saved, without fetching it.
#[utoipa::path(
    post, path = "/registry/check-image", operation_id = "registry_check_image", tag = "registries",
    request_body = CheckImage,
    responses((status = 200, body = ImageCheck), (status = "default", body = ErrorBody))
)]
pub(super) async fn check_image(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<CheckImage>,
) -> Result<Json<ImageCheck>, ApiError> {
    let team_id = request.team_id.as_deref();
    caller.scope(&cx, team_id).await?;
    let access = image_access(&cx, &caller.user.id, team_id, &request.reference).await?;
    Ok(Json(check(&cx, &caller, &request.reference, &access).await?))
}

/// Saved logins of the caller and of his teams, for older clients.
#[utoipa::path(
    get, path = "/template/registry-credentials", operation_id = "template_registry_credentials", tag = "registries",
    responses((status = 200, body = RegistryCredentials), (status = "default", body = ErrorBody))
)]
pub(super) async fn list_all(
    State(cx): State<Arc<Context>>,
    caller: Caller,
) -> Result<Json<RegistryCredentials>, ApiError> {
    let credentials = all(&cx, &caller).await?.into_iter().map(show).collect();
    Ok(Json(RegistryCredentials { credentials }))
}

/// Says whether an image can be had, for older clients; a saved login may be named by its id.
#[utoipa::path(
    post, path = "/template/check-docker-image", operation_id = "template_check_docker_image", tag = "registries",
    request_body = CheckDockerImage,
    responses((status = 200, body = DockerImageCheck), (status = "default", body = ErrorBody))
)]
pub(super) async fn check_docker_image(
    State(cx): State<Arc<Context>>,
    caller: Caller,
    Parsed(request): Parsed<CheckDockerImage>,
) -> Result<Json<DockerImageCheck>, ApiError> {
    let access = match &request.registry_credentials_id {
        None => image_access(&cx, &caller.user.id, None, &request.image).await?,
        Some(id) => {
            let unknown = || ApiError::new(ErrorCode::NotFound, "no saved login with this id");
            let row = all(&cx, &caller).await?.into_iter().find(|row| row.id == *id).ok_or_else(unknown)?;
            let parsed = Reference::parse(&request.image).ok();
            let fits = parsed.is_some_and(|image| image.registry() == Some(&row.server));
            if !fits {
                let details = format!("{} is not an image of {}", request.image, row.server);
                return Ok(Json(DockerImageCheck { accessible: false, details }));
            }
            opened(&cx, row)
        }
    };
    let ImageCheck { accessible, details, .. } = check(&cx, &caller, &request.image, &access).await?;
    Ok(Json(DockerImageCheck { accessible, details }))
}

/// An owned image or one of the platform is what it leads to for this caller; of all others the node asks the registry.
async fn check(cx: &Context, caller: &Caller, reference: &str, access: &ImageAccess) -> Result<ImageCheck, ApiError> {
    let refused = |code: ErrorCode, details: String| ImageCheck {
        accessible: false,
        digest: None,
        code: Some(code.as_str().to_owned()),
        details,
    };
    let digest = match images::resolve(cx, &caller.user, reference).await {
        Ok(Some(pinned)) => pinned.digest,
        Ok(None) => match cx.node.check_image(reference, access).await {
            Ok(digest) => digest,
            Err(error) => return Ok(refused(ErrorCode::of_image_error(error.code), error.to_string())),
        },
        Err(error) if error.is_refusal() => return Ok(refused(error.code(), error.text())),
        Err(error) => return Err(error),
    };
    let details = format!("{reference} is {digest}");
    Ok(ImageCheck { accessible: true, details, digest: Some(digest), code: None })
}

async fn all(cx: &Context, caller: &Caller) -> Result<Vec<CredentialRow>, ApiError> {
    let mut rows = cx.store.credentials_list(&scope_of(&caller.user.id, None)).await?;
    for team in cx.store.teams_of(&caller.user.id).await? {
        rows.extend(cx.store.credentials_list(&scope_of(&caller.user.id, Some(&team.team_id))).await?);
    }
    Ok(rows)
}

fn server(text: &str) -> Result<String, ApiError> {
    parse_registry(text).map_err(|error| FieldError::body("server", error.problem).into())
}

fn bounded(field: &str, text: String, len_max: usize) -> Result<String, ApiError> {
    let good = (1..=len_max).contains(&text.len()) && !text.chars().any(char::is_control);
    let refused = || FieldError::body(field, format!("expected 1 to {len_max} bytes without control characters"));
    if good { Ok(text) } else { Err(refused().into()) }
}

fn show(row: CredentialRow) -> RegistryCredential {
    let (kind, owner) = row.scope.split_once(':').unwrap_or_default();
    RegistryCredential {
        id: row.id,
        name: row.server.clone(),
        server: row.server,
        username: row.username,
        created_at: Timestamp::from_ms(row.created_at_ms),
        updated_at: Timestamp::from_ms(row.updated_at_ms),
        user_id: (kind == "user").then(|| owner.to_owned()),
        team_id: (kind == "team").then(|| owner.to_owned()),
    }
}
